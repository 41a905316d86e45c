#include "runtime/record/workload.hpp"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "runtime/choice/choice.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"

namespace attune {
namespace {

/// Gathers what one problem needs on one device.
class KernelCollector {
 public:
  KernelCollector(const Device& device, const ReadyKernels& ready, std::vector<UnservedProblem>& unserved)
      : device_(device), ready_(ready), unserved_(unserved) {}

  [[nodiscard]] const std::vector<Variant>& variants() const { return variants_; }

  void operator()(const DecodeProblem& problem) {
    add(problem);
    if (problem.splits != 1) add(problem.merge());
    if (problem.appends()) add(problem.store());
  }

  void operator()(const Problem& problem) {
    add(problem);
    const std::optional<DecodeProblem> part = short_sequences(problem);
    if (!part || !find(*part)) return;  // without a kernel for them its own has all sequences
    add(*part);
    add(part->merge());
  }

  void operator()(const auto& problem) { add(problem); }

 private:
  template <class OneProblem>
  void add(const OneProblem& problem) {
    if (const std::optional<Variant> found = find(problem)) return variants_.push_back(*found);
    unserved_.push_back(
        {.problem = problem.text(), .device = device_.name, .reasons = choose_own(problem, device_).refusals});
  }

  /// What serves it; nothing where nothing does.
  [[nodiscard]] std::optional<Variant> find(const ProblemView& problem) const {
    const ReadyChoice choice = choose_ready(ready_, problem, device_, ATTUNE_COMPILE_EXACT);
    if (choice.preferred) return choice.kernel->variant;
    const OwnChoice own = choose_own(problem, device_);
    if (own.refusals.empty()) return own.variant;
    return choice.kernel != nullptr ? std::optional(choice.kernel->variant) : std::nullopt;
  }

  const Device& device_;
  const ReadyKernels& ready_;
  std::vector<UnservedProblem>& unserved_;
  std::vector<Variant> variants_;
};

}  // namespace

std::vector<Variant> WorkloadKernels::variants() const {
  std::vector<Variant> result;
  result.reserve(kernels.size());
  for (const NeededKernel& kernel : kernels) result.push_back(kernel.variant);
  return result;
}

WorkloadKernels kernels_for(std::span<const Recorded> workload, std::span<const Device> devices,
                            const ReadyKernels& ready) {
  WorkloadKernels result;
  std::map<Variant, NeededKernel> needed;  // by the variant for any GPU
  std::map<Variant, ArchSet> archs;
  for (const Recorded& one : workload) {
    std::set<Variant> met;
    for (const Device& device : devices) {
      KernelCollector needs(device, ready, result.unserved);
      std::visit(needs, one.problem);
      for (Variant variant : needs.variants()) {
        variant.arch = 0;
        met.insert(variant);
        archs[variant] |= set_of(arch_of(device));
      }
    }
    for (const Variant& variant : met) {
      NeededKernel& kernel = needed[variant];
      kernel.problems += 1;
      kernel.calls = added_calls(kernel.calls, one.calls);
    }
  }
  for (auto& [variant, kernel] : needed) {
    kernel.variant = variant;
    kernel.variant.arch = archs.at(variant);
    result.kernels.push_back(kernel);
  }
  return result;
}

}  // namespace attune
