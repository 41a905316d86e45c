// What tests of the disk cache share.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/cache/cache.hpp"

namespace attune::cache_tests {

namespace fs = std::filesystem;

/// A cache in a folder of its own that goes when the test ends, with its log kept.
class TemporaryCache {
 public:
  [[nodiscard]] Cache open(long long limit = 0) {
    const auto keep = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_.push_back(line);
    };
    return Cache(root(), keep, limit);
  }
  [[nodiscard]] fs::path root() const { return folder_.path() / "attune"; }
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }

 private:
  ScratchFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> log_;
};

inline Source source_of(const std::string& text) { return {Variant{}, "prefill_test", text}; }

inline Compiled compiled_of(std::size_t bytes) {
  Compiled compiled;
  for (std::size_t i = 0; i < bytes; ++i) compiled.image += static_cast<char>(i * 31 % 251);
  compiled.usage = {.registers = 168,
                    .static_shared_bytes = 16,
                    .stack_bytes = 8,
                    .spill_stores = 4,
                    .spill_loads = 2,
                    .code_bytes = 4096};
  compiled.seconds = 0.5;
  return compiled;
}

inline const Source source = source_of("extern \"C\" __global__ void prefill_test() {}\n");
inline const CacheKey key = cache_key(source, "sm_90", {}, "13.0");
inline const Compiled kernel = compiled_of(50'000);

/// The entry's folder; there must be exactly one.
inline fs::path only_entry(const Cache& cache) {
  const auto entries = cache.list();
  REQUIRE(entries.size() == 1);
  return entries.front().folder;
}

/// Every name below a folder's architectures, hidden ones too.
inline std::vector<std::string> names_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root / "v1" / "sm_90")) names.push_back(entry.path().filename());
  return names;
}

inline void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

inline std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace attune::cache_tests
