#include "tests/emulator/plan_experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/check.hpp"

namespace attune::mutation_tests {
namespace {

/// The words by which blocks take turns.
std::vector<std::uint64_t> turns_of(const Operands& operands) {
  std::vector<std::uint64_t> result;
  operands([&](const Operand& operand) {
    const std::string_view name = operand.name;
    if ((name != "turns" && name != "key_turns") || operand.data == nullptr) return;
    const auto* const words = static_cast<const std::uint64_t*>(operand.data);
    const std::int64_t count =
        std::accumulate(operand.extents.begin(), operand.extents.end(), std::int64_t{1}, std::multiplies());
    result.insert(result.end(), words, words + count);
  });
  return result;
}

/// Whether one has been written and is not 0: the next launch may bear the same number, as one of a graph that is
/// replayed does.
bool is_left(const std::vector<std::uint64_t>& before, const std::vector<std::uint64_t>& after) {
  const auto same_or_none = [](std::uint64_t was, std::uint64_t is) { return is == was || is == 0; };
  return !std::ranges::equal(before, after, same_or_none);
}

}  // namespace

PlanExperiment::PlanExperiment(const Variant& variant, const Device& device, Memory before, const Options& options,
                               std::shared_ptr<HostKernels> others)
    : EmulatorExecutor({.jobs = 1}),
      options_(options),
      own_{variant, device},
      others_(std::move(others)),
      memory_(before),
      first_(std::move(before)) {}

void PlanExperiment::serve(const ProblemView& part, int family) {
  if (part.operation() == family_of(own_.variant).operation) {
    kernels_.add(own_);
    return;
  }
  if (family < 0) {
    family = std::ranges::find(families(), part.operation(), &Family::operation)->defaults.family;
  }
  kernels_.add((*others_)[default_variant(family, part.need(), own_.device.shared_per_block)]);
}

Experiment::Seen PlanExperiment::launch(const emulator::Kernel& kernel) {
  kernel_ = &kernel;
  std::ranges::copy(before_.empty() ? first_ : before_, memory_.begin());
  fault_.clear();
  leaves_turns_ = false;
  call(Backend{kernels_, *this, nullptr});
  if (!fault_.empty()) return {Notice::fault};
  if (leaves_turns_ || !wrong(memory_).empty()) return {Notice::numbers};
  return {Notice::none, wavefronts_};
}

std::string PlanExperiment::complaint() const {
  if (!fault_.empty()) return fmt::format("{}: {}", text(), fault_);
  return fmt::format("{}: {}", text(), leaves_turns_ ? "words of turns are left" : wrong(memory_));
}

void PlanExperiment::run(const Plan& plan, void* /*stream*/) {
  bool is_after = before_.empty();  // what comes before the kernel with the bug has left its results
  for (std::size_t i = 0; i < plan.size() && fault_.empty(); ++i) {
    const bool is_own = plan[i].kernel == &own_;
    if (is_own && before_.empty()) before_ = memory_;
    is_after = is_after || is_own;
    if (is_after) launch_step(plan[i], is_own);
  }
}

void PlanExperiment::launch_step(const Step& step, bool is_own) {
  emulator::Launch launch{.grid = step.grid,
                          .threads = step.threads,
                          .shared_bytes = step.shared_bytes,
                          .params = step.params,
                          .memory = buffers_of(step.operands),
                          .jobs = 1,
                          .count_banks = is_own && options_.count_banks};
  if (is_own && options_.group > 0) {
    const unsigned heads = launch.grid.x * launch.grid.z;
    launch.grid.x = options_.group;
    launch.grid.z = (heads + options_.group - 1) / options_.group;
  }
  const emulator::Kernel& kernel = is_own ? *kernel_ : static_cast<const EmulatedKernel&>(*step.kernel).kernel;
  const std::vector<std::uint64_t> turns = is_own ? turns_of(step.operands) : std::vector<std::uint64_t>{};
  const emulator::Report report = kernel.run(launch);
  fault_ = report.fault;  // a launch after the one with the bug may meet anything
  if (!is_own) return;
  leaves_turns_ |= is_left(turns, turns_of(step.operands));
  wavefronts_ = 0;
  for (const emulator::BankSite& site : report.sites) wavefronts_ += site.wavefronts;
}

}  // namespace attune::mutation_tests
