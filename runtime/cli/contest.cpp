#include "runtime/cli/contest.hpp"

#include <algorithm>

namespace attune::cli {
namespace {

constexpr std::size_t most_copies = 64;

/// How many copies of so many bytes exceed the L2 twice.
std::size_t copies_of(std::size_t bytes, const Device& device) {
  const std::size_t beyond_l2 = 2 * static_cast<std::size_t>(device.l2_bytes);
  return std::clamp<std::size_t>(beyond_l2 / std::max<std::size_t>(1, bytes) + 1, 2, most_copies);
}

}  // namespace

Contest::Contest(const Gpu& gpu, const tune::AnyProblem& problem, const std::vector<const LoadedKernel*>& kernels,
                 const LoadedKernel* merge, std::uint64_t seed)
    : gpu_(&gpu), merge_(merge) {
  for (const LoadedKernel* kernel : kernels) contestants_.push_back({.kernel = kernel, .prefill = {}, .decode = {}});
  std::visit([&](const auto& one) { open(one, seed); }, problem);
}

void Contest::open(const Problem& problem, std::uint64_t seed) {
  const HostInputs inputs(problem, seed);
  const std::size_t copies = copies_of(DeviceProblem::bytes(problem), gpu_->device);
  for (std::size_t i = 0; i < copies; ++i) problems_.emplace_back(*gpu_, problem, inputs);
  for (Contestant& one : contestants_) {
    one.prefill = plan(one.kernel->variant(), problem, gpu_->device);
    for (DeviceProblem& copy : problems_) copy.make_room(one.prefill.workspace_bytes);
  }
}

void Contest::open(const DecodeProblem& problem, std::uint64_t seed) {
  std::size_t workspace = 0;
  for (Contestant& one : contestants_) {
    one.decode = plan(one.kernel->variant(), problem, gpu_->device);
    workspace = std::max(workspace, one.decode.workspace_bytes);
  }
  const DecodeTrial trial = full_trial(problem);
  const CacheInputs inputs(trial, seed);
  const std::size_t copies = copies_of(DeviceTrial::bytes(problem), gpu_->device);
  for (std::size_t i = 0; i < copies; ++i) trials_.emplace_back(*gpu_, trial, inputs, workspace);
}

void Contest::launch(int kernel, std::size_t copy) {
  const Contestant& contestant = contestants_[static_cast<std::size_t>(kernel)];
  if (trials_.empty()) {
    problems_[copy].launch(*contestant.kernel, contestant.prefill);
  } else {
    trials_[copy].launch(*contestant.kernel, *merge_, contestant.decode);
  }
}

std::vector<double> Contest::time(std::span<const int> order) {
  const std::size_t copies = std::max(problems_.size(), trials_.size());
  while (events_.size() < 2 * order.size()) events_.emplace_back(gpu_->driver);
  launch(order.back(), turn_++ % copies);
  for (std::size_t i = 0; i < order.size(); ++i) {
    events_[2 * i].record();
    launch(order[i], turn_++ % copies);
    events_[2 * i + 1].record();
  }
  gpu_->driver.synchronize();
  std::vector<double> seconds;
  for (std::size_t i = 0; i < order.size(); ++i) {
    seconds.push_back(events_[2 * i + 1].seconds_since(events_[2 * i]));
  }
  return seconds;
}

Outputs Contest::result_of(int kernel) {
  if (trials_.empty()) {
    problems_.front().poison();
  } else {
    trials_.front().poison();
  }
  launch(kernel, 0);
  return trials_.empty() ? problems_.front().fetch() : trials_.front().fetch();
}

}  // namespace attune::cli
