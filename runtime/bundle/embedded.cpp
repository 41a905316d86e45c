#include "runtime/bundle/embedded.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"
#include "runtime/bundle/bundle.hpp"

extern "C" {
// kernels.attune of the build, from runtime/bundle/embedded_bundle.S.
extern const char attune_embedded_bundle_begin[];
extern const char attune_embedded_bundle_end[];
extern const char attune_embedded_bundle_file[];  // a file's name, or ""
}

namespace attune {
namespace {

namespace fs = std::filesystem;

/// The folder of the library, module or program that this code is linked into; empty where it cannot be told.
fs::path own_folder() {
  Dl_info found{};
  if (::dladdr(attune_embedded_bundle_begin, &found) == 0 || found.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path name = found.dli_fname;
  // Of a program it is what it was called by.
  const fs::path binary = fs::canonical(name.is_absolute() ? name : fs::path("/proc/self/exe"), error);
  return error ? fs::path() : binary.parent_path();
}

/// The bundle of that name in the binary's folder or the one above; null where there is none that fits.
std::shared_ptr<const LoadedBundle> bundle_beside(std::string_view name) {
  const fs::path folder = own_folder();
  for (const fs::path& place : {folder, folder.parent_path()}) {
    std::error_code ignored;
    if (place.empty() || !fs::is_regular_file(place / name, ignored)) continue;
    try {
      return LoadedBundle::from_file(place / name);
    } catch (const Error& error) {
      log_to_stderr(fmt::format("the kernels of this installation are not used: {}", error.what()));
      return nullptr;
    }
  }
  log_to_stderr(
      fmt::format("the kernels of this installation are missing: there is no {} beside {}", name, folder.string()));
  return nullptr;
}

std::shared_ptr<const LoadedBundle> find_bundle() {
  const std::string_view name = attune_embedded_bundle_file;
  if (!name.empty()) {
    if (std::shared_ptr<const LoadedBundle> beside = bundle_beside(name)) return beside;
  }
  return LoadedBundle::from_memory({attune_embedded_bundle_begin, attune_embedded_bundle_end},
                                   "the bundle inside the library");
}

const LoadedBundle& bundle() {
  static const std::shared_ptr<const LoadedBundle> embedded = find_bundle();
  return *embedded;
}

}  // namespace

std::span<const ReadyKernel> embedded_kernels() { return bundle().kernels(); }

std::span<const BundledTable> embedded_tables() { return bundle().tables(); }

}  // namespace attune
