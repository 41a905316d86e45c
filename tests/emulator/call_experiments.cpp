// The mutation test's launches of store_kv and of rotary_embedding.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "runtime/call/chunk_plan.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/rotary/arguments.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "tests/emulator/experiment.hpp"
#include "tests/harness/rotary_call.hpp"
#include "tests/harness/store_image.hpp"

namespace attune::mutation_tests {
namespace {

using testing::RotaryCall;
using testing::StoreCase;
using testing::StoreImage;

bool agrees(const StoreImage& image, const Memory& after) { return image.agrees(after); }
bool agrees(const RotaryCall& call, const Memory& after) { return after == call.expected(); }

/// A call that is one launch of a kernel.
template <class Call>
class CallExperiment : public Experiment {
 public:
  CallExperiment(const Variant& variant, Call call) : call_(std::move(call)), memory_(call_.memory()) {
    const auto args = call_.args(memory_.data());
    params_ = make_params(args, call_.problem());
    const Launch planned = plan(variant, call_.problem());
    launch_.grid = planned.grid;
    launch_.threads = planned.threads;
    launch_.params = &params_;
    launch_.memory = buffers_of([&](VisitOperand visit) { visit_operands(args, call_.problem(), visit); });
    launch_.jobs = 1;
  }

 private:
  Seen launch(const emulator::Kernel& kernel) override {
    std::ranges::copy(call_.memory(), memory_.begin());  // the launch knows where it is
    const emulator::Report report = kernel.run(launch_);
    fault_ = report.fault;
    if (!report.ok()) return {Notice::fault};
    return {agrees(call_, memory_) ? Notice::none : Notice::numbers};
  }

  [[nodiscard]] std::string complaint() const override {
    return fmt::format("{}: {}", call_.problem().text(), fault_.empty() ? "numbers disagree" : fault_);
  }

  Call call_;
  Memory memory_;
  decltype(make_params(std::declval<Call>().args(nullptr), std::declval<Call>().problem())) params_{};
  emulator::Launch launch_;
  std::string fault_;
};

constexpr auto least = std::numeric_limits<std::int32_t>::min();
constexpr auto most = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::vector<std::unique_ptr<Experiment>> store_experiments(const Variant& variant) {
  StoreProblem problem{.dtype = static_cast<Dtype>(variant.dtype),
                       .batch = 3,
                       .tokens = 5,
                       .heads_kv = 2,
                       .head_dim = 72,
                       .page_size = 4,
                       .pages = 6,
                       .rotary = static_cast<Rotary>(variant.rotary)};
  if (variant.cut_rows != 0) problem.head_dim -= cut_columns;
  if (problem.rotates()) {
    problem.rotary_dim = 32;
    problem.rotations = 14;
  }
  std::vector<std::unique_ptr<Experiment>> result;
  const auto add = [&](StoreCase one) {
    one.v_heads_outermost = true;
    result.push_back(std::make_unique<CallExperiment<StoreImage>>(variant, StoreImage(std::move(one), 19)));
  };
  // Slots at both ends of the cache and of pages, and just outside of it.
  StoreCase slots{.problem = problem};
  slots.slots = {0,
                 3,
                 4,
                 23,
                 24,
                 -1,
                 -2,
                 std::numeric_limits<std::int64_t>::max(),
                 std::numeric_limits<std::int64_t>::min(),
                 9,
                 12,
                 11,
                 1LL << 34U,
                 25,
                 16};
  slots.lengths = {0, 11, 9};
  add(slots);
  // Appended to sequences that are empty, end on a page and run out of room; a page that does not exist.
  StoreCase paged{.problem = problem};
  paged.problem.table_width = 3;
  paged.lengths = {0, 4, 9};
  paged.table = {5, 0, most, 1, 6, 4, -1, least, 2};
  paged.new_heads_outermost = true;
  add(paged);
  paged.lengths = {-2, least, most};
  add(paged);
  // A contiguous cache, whose sequences need no table and no lengths.
  StoreCase contiguous{.problem = problem};
  contiguous.problem.pages = 3;
  contiguous.problem.page_size = 5;
  contiguous.k_heads_outermost = true;
  if (problem.rotates()) contiguous.positions = {0, 13, 14, -1, least, most, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  add(contiguous);
  return result;
}

std::vector<std::unique_ptr<Experiment>> rotary_experiments(const Variant& variant) {
  std::vector<std::unique_ptr<Experiment>> result;
  Random random(47);
  while (result.size() < 24) {
    RotaryCall call(random);
    const RotaryProblem& problem = call.problem();
    if (static_cast<int>(problem.dtype) != variant.dtype || static_cast<int>(problem.rotary) != variant.rotary)
      continue;
    if (problem.batch * problem.seqlen > 40 || problem.head_dim > 80) continue;  // mutants run often
    result.push_back(std::make_unique<CallExperiment<RotaryCall>>(variant, std::move(call)));
  }
  return result;
}

}  // namespace attune::mutation_tests
