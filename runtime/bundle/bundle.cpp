#include "runtime/bundle/bundle.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "runtime/base/environment.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"

namespace attune {
namespace {

constexpr std::size_t max_bundle_bytes = std::size_t{1} << 32;

Bundle read(std::string_view bytes, const std::string& where) {
  Result<Bundle> bundle = read_bundle(bytes, where);
  if (!bundle.ok()) throw Error(ATTUNE_INVALID_ARGUMENT, bundle.problems.front().text());
  return std::move(bundle.value);
}

struct Registered {
  std::mutex mutex;
  Bundles bundles;
};

/// Of the process: what programs add before main() has no other place to be.
Registered& registered() {
  static Registered all;
  return all;
}

}  // namespace

LoadedBundle::LoadedBundle(std::string bytes, Bundle bundled) : bytes_(std::move(bytes)), bundled_(std::move(bundled)) {
  kernels_.reserve(bundled_.kernels.size());
  for (const BundledKernel& kernel : bundled_.kernels) {
    kernels_.push_back({kernel.variant, kernel.name, kernel.image, kernel.tables_only});
  }
}

std::shared_ptr<const LoadedBundle> LoadedBundle::from_file(const std::filesystem::path& file) {
  std::optional<std::string> bytes = read_file(file, max_bundle_bytes);
  if (!bytes) {
    throw Error(ATTUNE_INVALID_ARGUMENT,
                fmt::format("{}: the bundle is missing or cannot be read; attune pack makes one", file.string()));
  }
  // More bytes than a string holds within itself, or refused: moving it does not move them.
  Bundle bundled = read(*bytes, file.string());
  return std::shared_ptr<const LoadedBundle>(new LoadedBundle(std::move(*bytes), std::move(bundled)));
}

std::shared_ptr<const LoadedBundle> LoadedBundle::from_memory(std::string_view bytes, const std::string& where) {
  return std::shared_ptr<const LoadedBundle>(new LoadedBundle({}, read(bytes, where)));
}

Bundles environment_bundles(const LineLog& log) {
  const std::string value = environment("ATTUNE_BUNDLES");
  Bundles bundles;
  std::string_view left = value;
  while (!left.empty()) {
    const std::size_t end = std::min(left.find(':'), left.size());
    const std::string_view file = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    if (file.empty()) continue;
    try {
      bundles.push_back(LoadedBundle::from_file(file));
    } catch (const Error& error) {
      log(fmt::format("$ATTUNE_BUNDLES: {}", error.what()));
    }
  }
  return bundles;
}

void register_bundle(std::string_view bytes) {
  std::shared_ptr<const LoadedBundle> bundle = LoadedBundle::from_memory(bytes, "a bundle in memory");
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  all.bundles.push_back(std::move(bundle));
}

Bundles registered_bundles() {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  return all.bundles;
}

}  // namespace attune
