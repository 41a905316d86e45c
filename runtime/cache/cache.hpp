// Compiled kernels on disk: <root>/v<format>/<arch>/<variant name>-<hash>/{kernel.cu, kernel.cubin, meta.json};
// for the emulator kernel.so in place of kernel.cubin.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/base/log.hpp"
#include "runtime/compiler/compile.hpp"

namespace attune {

/// Everything that can change the machine code of a kernel.
struct CacheKey {
  std::string name;  ///< of the variant
  std::string arch;  ///< "sm_90", or emulator_arch
  std::string hash;  ///< 128 bits in hex over source, or what it follows from, flags, arch, compiler and params ABI
};

/// The architecture of kernels that the host's compiler made.
inline constexpr const char* emulator_arch = "emulator";

/// `options` are all that the compiler gets; `compiler` tells builds of it apart, and whatever else is compiled along.
CacheKey cache_key(const Source& source, const std::string& arch, const std::vector<std::string>& options,
                   const std::string& compiler);

/// All that a variant's source follows from: its family and values, expressions by their texts, and `generation`, which
/// tells generators and templates apart.
std::string followed_from(const Variant& variant, std::string_view generation);

/// Of a kernel that NVRTC, whose identity() `compiler` is, makes of the source that this library generates: by what
/// that follows from, as generating it takes longer than all else that a kernel from the disk does.
CacheKey cache_key(const Variant& variant, int capability, const std::string& compiler);

/// $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else $HOME/.cache/attune; empty (no caching) when none is set.
std::filesystem::path default_cache_root();

struct CacheEntry {
  std::filesystem::path folder;
  std::string name;
  std::string arch;
  std::string hash;
  long long bytes = 0;
  std::chrono::system_clock::time_point last_use{};  ///< to the hour
  bool valid = false;
  std::string problem;  ///< why it is not valid
};

/// What was removed to make room.
struct Pruned {
  std::size_t kernels = 0;
  long long bytes = 0;
  long long bytes_left = 0;
};

/// One cache folder, shared by any number of threads and processes. An empty root means no caching, and so does a
/// folder that another user than root and the effective one may write to: what lies in it is executed. A folder that
/// cannot be written still serves what it holds.
class Cache {
 public:
  /// Holds at most as much as $ATTUNE_CACHE_BYTES says, else 1 GiB.
  explicit Cache(std::filesystem::path root, LineLog log = log_to_stderr);

  /// Holds at most `limit` bytes; 0: as many as there are.
  Cache(std::filesystem::path root, LineLog log, long long limit);

  /// The kernel if the cache holds it whole. An altered or cut entry is dropped, said once through `log`.
  std::optional<Compiled> find(const CacheKey& key) const;

  /// The kernel from the cache, or from `build` and then in the cache. One builder per key at a time,
  /// across processes; the others wait for it and read its result. A folder that cannot be written only
  /// costs the caching. A kernel too many makes those go that nobody has fetched for the longest time.
  Compiled find_or_build(const CacheKey& key, const Source& source, const std::function<Compiled()>& build) const;

  [[nodiscard]] std::vector<CacheEntry> list() const;  ///< each entry checked
  std::size_t clear() const;                           ///< entries removed

  /// Removes kernels, those first that nobody has fetched for the longest time, until at most `bytes` are left. Throws
  /// std::filesystem::filesystem_error where the folder cannot be written.
  Pruned prune(long long bytes) const;

  /// Why the folder, as it is there, is not used; empty where it is, or will be made.
  [[nodiscard]] std::string refusal() const;

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] long long limit() const { return limit_; }

 private:
  void drop(const std::filesystem::path& folder, const std::string& problem) const;
  [[nodiscard]] std::optional<FileLock> lock_for_building(const CacheKey& key) const;
  void publish(const CacheKey& key, const Source& source, const Compiled& compiled) const;
  [[nodiscard]] bool usable() const;
  void say_not_kept(const std::string& reason) const;

  std::filesystem::path root_;
  LineLog log_;
  long long limit_;
  std::shared_ptr<std::atomic<bool>> said_not_kept_;  ///< shared by copies: said once
};

}  // namespace attune
