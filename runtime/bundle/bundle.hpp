// Bundles (generator/bundle.hpp) that a registry takes kernels and tables of tuned problems from: files, and what a
// program has in its own image.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/bundle.hpp"
#include "runtime/base/log.hpp"
#include "runtime/bundle/ready_kernel.hpp"

namespace attune {

/// What one bundle holds, and the bytes that its images lie in.
class LoadedBundle {
 public:
  /// Reads a file as a whole. Throws Error{ATTUNE_INVALID_ARGUMENT} with the reason for which it is refused.
  static std::shared_ptr<const LoadedBundle> from_file(const std::filesystem::path& file);

  /// Of bytes that outlive it; `where` names them in messages. Throws likewise.
  static std::shared_ptr<const LoadedBundle> from_memory(std::string_view bytes, const std::string& where);

  /// In the bundle's order; what they point to lives as long as this object.
  [[nodiscard]] const std::vector<ReadyKernel>& kernels() const { return kernels_; }
  [[nodiscard]] const std::vector<BundledTable>& tables() const { return bundled_.tables; }

 private:
  LoadedBundle(std::string bytes, Bundle bundled);

  std::string bytes_;  ///< of a file; else empty
  Bundle bundled_;     ///< has the names
  std::vector<ReadyKernel> kernels_;
};

using Bundles = std::vector<std::shared_ptr<const LoadedBundle>>;

/// What $ATTUNE_BUNDLES names: files with colons between them, first come first. One that is refused is left out, with
/// a line to `log`.
Bundles environment_bundles(const LineLog& log);

/// Adds a bundle in memory that stays: every registry created from now on has its kernels. Throws as from_memory().
/// Thread-safe.
void register_bundle(std::string_view bytes);

/// What was added in this process so far, in order. Thread-safe.
Bundles registered_bundles();

}  // namespace attune
