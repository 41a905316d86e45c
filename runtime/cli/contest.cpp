#include "runtime/cli/contest.hpp"

#include <algorithm>
#include <utility>

namespace attune::cli {
namespace {

/// Beyond the L2, whatever it keeps.
std::size_t flush_bytes(const Device& device) { return 2 * static_cast<std::size_t>(device.l2_bytes); }

}  // namespace

Contest::Contest(const Gpu& gpu, std::unique_ptr<const Trial> trial, const std::vector<FixedKernels>& contestants)
    : gpu_(&gpu),
      trial_(std::move(trial)),
      flushed_bytes_(flush_bytes(gpu.device)),
      flushed_(gpu.driver, flushed_bytes_) {
  std::size_t workspace_bytes = 0;
  for (const FixedKernels& kernels : contestants) {
    plans_.push_back(trial_->plan_with(kernels));
    workspace_bytes = std::max(workspace_bytes, plans_.back().workspace_bytes);
  }
  on_device_.emplace(gpu.driver, *trial_, trial_->inputs(), workspace_bytes);
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

Outputs Contest::result_of(int contestant) {
  on_device_->poison();
  launch(contestant);
  return on_device_->fetch();
}

}  // namespace attune::cli
