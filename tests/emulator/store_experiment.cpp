// The mutation test's launches of store_kv.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/operations/chunk_plan.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "tests/emulator/experiment.hpp"
#include "tests/emulator/mutate.hpp"
#include "tests/harness/store_image.hpp"

namespace attune::mutation_tests {
namespace {

using testing::StoreCase;

class StoreExperiment : public Experiment {
 public:
  StoreExperiment(const Variant& variant, StoreCase one) : image_(std::move(one), 19), memory_(image_.memory()) {
    const attune_store_kv_args args = image_.args(memory_.data());
    params_ = make_params(args, image_.problem());
    const ChunkPlan planned = plan(variant, image_.problem());
    launch_.grid = planned.grid;
    launch_.threads = planned.threads;
    launch_.params = &params_;
    launch_.memory = buffers_of([&](VisitOperand visit) { visit_operands(args, image_.problem(), visit); });
    launch_.jobs = 1;
  }

  std::string run_unmutated(const emulator::Kernel& kernel) override {
    const Notice notice = run(kernel);
    if (notice == Notice::none) return "";
    return fmt::format("{}: {}", image_.problem().text(), notice == Notice::fault ? fault_ : "numbers disagree");
  }

  Notice run(const emulator::Kernel& kernel) override {
    std::ranges::copy(image_.memory(), memory_.begin());  // the launch knows where it is
    *static_cast<long long*>(kernel.symbol(steps_symbol)) = 0;
    const emulator::Report report = kernel.run(launch_);
    fault_ = report.fault;
    if (!report.ok()) return Notice::fault;
    return image_.agrees(memory_) ? Notice::none : Notice::numbers;
  }

 private:
  testing::StoreImage image_;
  Memory memory_;
  AttuneStoreParams params_{};
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
  if (problem.rotates()) {
    problem.rotary_dim = 32;
    problem.rotations = 14;
  }
  std::vector<std::unique_ptr<Experiment>> result;
  const auto add = [&](StoreCase one) {
    one.v_heads_outermost = true;
    result.push_back(std::make_unique<StoreExperiment>(variant, std::move(one)));
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

}  // namespace attune::mutation_tests
