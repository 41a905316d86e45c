// Kernels that need no compiler any more, by what they compute.
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/base/log.hpp"
#include "runtime/bundle/bundle.hpp"
#include "runtime/bundle/ready_kernel.hpp"

namespace attune {

/// What a registry can load as it is.
class ReadyKernels {
 public:
  /// Of these bundles, then of those that $ATTUNE_BUNDLES names (refused ones are left out, which is said through
  /// `log`), of those that the process has added, and of the library. Throws Error{ATTUNE_INVALID_ARGUMENT} when one of
  /// `bundles` is refused.
  explicit ReadyKernels(std::span<const std::filesystem::path> bundles = {}, const LineLog& log = log_to_stderr);

  /// These alone, in the order of preference; of two of the same variant only the first counts. They outlive it.
  explicit ReadyKernels(std::span<const ReadyKernel> kernels) { add(kernels); }

  /// Every variant of an operation, in the order of preference.
  [[nodiscard]] std::span<const Variant> variants(Operation operation) const;

  /// Of them those that the heuristic chooses from: not what tables of tuned problems alone asked for.
  [[nodiscard]] std::span<const Variant> heuristic_variants(Operation operation) const;

  /// The tables of tuned problems that came with them, in the order of preference.
  [[nodiscard]] const std::vector<BundledTable>& tables() const { return tables_; }

  /// The kernel of this variant; null where there is none.
  [[nodiscard]] const ReadyKernel* find(const Variant& variant) const;

 private:
  void add(std::span<const ReadyKernel> kernels);

  Bundles bundles_;  ///< whose images they are, the library's apart
  std::vector<ReadyKernel> kernels_;
  std::vector<BundledTable> tables_;
  std::array<std::vector<Variant>, operation_count> variants_;
  std::array<std::vector<Variant>, operation_count> heuristic_variants_;
};

}  // namespace attune
