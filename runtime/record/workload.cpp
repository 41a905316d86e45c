#include "runtime/record/workload.hpp"

#include <map>
#include <optional>
#include <set>
#include <variant>

#include "runtime/choice/explain.hpp"
#include "runtime/operations/operations.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"

namespace attune {
namespace {

/// Gathers what one problem needs on one device.
class KernelCollector {
 public:
  KernelCollector(const Device& device, const ReadyKernels& ready, std::vector<UnservedProblem>& unserved)
      : device_(device), ready_(ready), unserved_(unserved) {}

  [[nodiscard]] const std::vector<Variant>& variants() const { return variants_; }

  template <class OneProblem>
  void operator()(const OneProblem& problem) {
    const Explanation exact = explain(problem, device_, ready_, {}, ATTUNE_COMPILE_EXACT);
    // What is generated may not serve where a ready kernel does, which pads.
    const Explanation padded = exact.served() ? exact : explain(problem, device_, ready_, {}, ATTUNE_COMPILE_FROZEN);
    if (padded.served()) {
      add(padded);
      add_merges(problem);
    } else {
      unserved_.push_back({.problem = exact.problem, .device = device_.name, .reasons = exact.refusals});
    }
  }

 private:
  void add(const Explanation& explained) {
    variants_.push_back(explained.serving.variant);
    for (const OtherLaunch& other : explained.others) variants_.push_back(other.serving.variant);
    for (const Explanation& part : explained.short_sequences) add(part);
  }

  /// What merges parts of keys: these lengths may have one, others of the same kernels have more.
  void add_merges(const DecodeProblem& problem) {
    if (problem.splits == 1) return;
    variants_.push_back(serve(ready_, {}, problem.merge(), device_, ATTUNE_COMPILE_EXACT).variant);
  }

  void add_merges(const Problem& problem) {
    if (const std::optional<DecodeProblem> part = short_sequences(problem)) add_merges(*part);
  }

  void add_merges(const auto& /*problem*/) {}

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
