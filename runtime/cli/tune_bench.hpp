// One GPU of the tuner's laboratory.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cli/contest.hpp"
#include "runtime/cli/tune_lab.hpp"

namespace attune::cli {

/// How the results of two kernels for one trial differ; empty when as little as two right ones may. A row of O or of a
/// gradient is compared by its root mean square: where it cancels, rounding of the weights is as large as where it does
/// not.
std::string differences(const Trial& trial, const Outputs& outputs, const Outputs& trusted);

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
  /// What calls of these launch besides, each once.
  [[nodiscard]] std::vector<LoadedKernel> load_companions(std::span<const Variant> variants) const;

  GpuLab* lab_;
  Gpu gpu_;
  std::vector<LoadedKernel> kernels_;     ///< the candidates for the problem that is open
  std::vector<LoadedKernel> companions_;  ///< what they launch besides
  std::optional<Contest> contest_;        ///< between them
};

}  // namespace attune::cli
