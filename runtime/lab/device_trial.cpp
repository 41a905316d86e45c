#include "runtime/lab/device_trial.hpp"

#include <utility>

namespace attune {
namespace {

std::size_t bytes_of(const Memory& memory) { return memory.size() * sizeof(Memory::value_type); }

}  // namespace

DeviceTrial::DeviceTrial(const Driver& driver, const Trial& trial, const Memory& inputs, std::size_t workspace_bytes)
    : driver_(&driver),
      trial_(&trial),
      inputs_bytes_(bytes_of(inputs)),
      poisoned_(trial.poisoned_results(workspace_bytes)),
      memory_(driver, inputs_bytes_ + bytes_of(poisoned_)),
      executor_(driver) {
  memory_.upload(inputs);
  poison();
}

void DeviceTrial::poison() const {
  driver_->synchronize();
  memory_.upload(poisoned_, inputs_bytes_);
}

Outputs DeviceTrial::fetch() const {
  driver_->synchronize();
  Memory results(poisoned_.size());
  memory_.download(results, inputs_bytes_);
  return trial_->outputs(std::move(results));
}

}  // namespace attune
