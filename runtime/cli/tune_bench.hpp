// One GPU of the tuner's laboratory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cli/contest.hpp"
#include "runtime/cli/tune_lab.hpp"

namespace attune::cli {

/// The kernel that merges what a decode kernel leaves.
Variant merging_variant(const Variant& decode, const Device& device);

/// How the results of two kernels for one problem differ; empty when as little as two right ones may. A row of O is
/// compared by its root mean square: where it cancels, rounding of the weights is as large as where it does not.
std::string differences(const Problem& shape, const Outputs& outputs, const Outputs& trusted);

/// Checks a candidate on small problems, and times those of a problem in a contest.
class GpuBench final : public tune::Bench {
 public:
  GpuBench(GpuLab& lab, int ordinal);

  std::string check(const Variant& variant) override;
  void open(const tune::AnyProblem& problem, std::span<const Variant> candidates) override;
  std::vector<double> time(int round, std::span<const int> order) override;
  std::string compare(int candidate, int trusted) override;

 private:
  [[nodiscard]] LoadedKernel load(const Variant& variant) const;

  GpuLab* lab_;
  Gpu gpu_;
  std::map<std::string, DeviceProblem> small_;  ///< what check() launches, by text
  Problem shape_;                               ///< of the outputs of the problem that is open
  std::vector<LoadedKernel> kernels_;           ///< its candidates
  std::optional<LoadedKernel> merge_;
  std::optional<Contest> contest_;  ///< between them
};

}  // namespace attune::cli
