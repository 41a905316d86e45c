#include "runtime/cli/contest.hpp"

#include <algorithm>

namespace attune::cli {
namespace {

/// Beyond the L2, whatever it keeps.
std::size_t flush_bytes(const Device& device) { return 2 * static_cast<std::size_t>(device.l2_bytes); }

}  // namespace

Contest::Contest(const Gpu& gpu, const tune::AnyProblem& problem, const std::vector<const LoadedKernel*>& kernels,
                 const LoadedKernel* merge, std::uint64_t seed)
    : gpu_(&gpu), merge_(merge), flushed_bytes_(flush_bytes(gpu.device)), flushed_(gpu.driver, flushed_bytes_) {
  for (const LoadedKernel* kernel : kernels) contestants_.push_back({.kernel = kernel, .prefill = {}, .decode = {}});
  std::visit([&](const auto& one) { open(one, seed); }, problem);
}

void Contest::open(const Problem& problem, std::uint64_t seed) {
  problem_.emplace(*gpu_, problem, HostInputs(problem, seed));
  for (Contestant& one : contestants_) {
    one.prefill = plan(one.kernel->variant, problem, gpu_->device);
    problem_->make_room(one.prefill.workspace_bytes);
  }
}

void Contest::open(const DecodeProblem& problem, std::uint64_t seed) {
  std::size_t workspace = 0;
  for (Contestant& one : contestants_) {
    one.decode = plan(one.kernel->variant, problem, gpu_->device);
    workspace = std::max(workspace, one.decode.workspace_bytes);
  }
  const DecodeTrial trial = full_trial(problem);
  trial_.emplace(*gpu_, trial, CacheInputs(trial, seed), workspace);
}

void Contest::launch(int kernel) {
  const Contestant& contestant = contestants_[static_cast<std::size_t>(kernel)];
  if (problem_) {
    problem_->launch(*contestant.kernel, contestant.prefill);
  } else {
    trial_->launch(*contestant.kernel, *merge_, contestant.decode);
  }
}

std::vector<double> Contest::time(std::span<const int> order) {
  while (events_.size() < 2 * order.size()) events_.emplace_back(gpu_->driver);
  launch(order.back());
  for (std::size_t i = 0; i < order.size(); ++i) {
    gpu_->driver.clear(flushed_.data(), flushed_bytes_, nullptr);
    events_[2 * i].record();
    launch(order[i]);
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
  if (problem_) {
    problem_->poison();
  } else {
    trial_->poison();
  }
  launch(kernel);
  return problem_ ? problem_->fetch() : trial_->fetch();
}

}  // namespace attune::cli
