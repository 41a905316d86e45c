#include "runtime/cache/cache.hpp"

#include <fmt/format.h>

#include <system_error>

#include "runtime/base/environment.hpp"
#include "runtime/base/files.hpp"
#include "runtime/cache/entry.hpp"
#include "runtime/cache/eviction.hpp"
#include "runtime/cache/layout.hpp"
#include "runtime/cache/limit.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr double builder_patience = 120;  // seconds; no kernel takes that long to compile

LineLog or_silence(LineLog log) {
  return log ? std::move(log) : [](const std::string&) {};
}

}  // namespace

fs::path default_cache_root() {
  if (std::string own = environment("ATTUNE_CACHE_DIR"); !own.empty()) return own;
  // A relative $XDG_CACHE_HOME is to be ignored (XDG Base Directory Specification).
  if (const fs::path xdg = environment("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "attune";
  if (const fs::path home = environment("HOME"); home.is_absolute()) return home / ".cache" / "attune";
  return {};
}

Cache::Cache(fs::path root, LineLog log, long long limit)
    : root_(std::move(root)),
      log_(or_silence(std::move(log))),
      limit_(limit),
      said_not_kept_(std::make_shared<std::atomic<bool>>(false)) {}

Cache::Cache(fs::path root, LineLog log) : Cache(std::move(root), std::move(log), 0) { limit_ = cache_limit(log_); }

void Cache::say_not_kept(const std::string& reason) const {
  if (!said_not_kept_->exchange(true)) log_("kernels are not kept on disk: " + reason);
}

std::string Cache::refusal() const { return root_.empty() ? std::string() : cache::open_version(root_).refusal; }

bool Cache::usable() const {
  if (root_.empty()) return false;
  const std::string why_not = refusal();
  if (!why_not.empty()) say_not_kept(why_not);
  return why_not.empty();
}

void Cache::drop(const fs::path& folder, const std::string& problem) const {
  cache::remove_entry(folder);
  log_(fmt::format("dropped a damaged cache entry ({}): {}", problem, folder.string()));
}

std::optional<Compiled> Cache::find(const CacheKey& key) const {
  if (root_.empty()) return std::nullopt;
  const cache::OpenedFolder arch = cache::open_arch(root_, key.arch);
  if (!arch.refusal.empty()) say_not_kept(arch.refusal);
  if (!arch.fd.open()) return std::nullopt;
  auto entry = cache::read_entry(arch.fd, key);
  if (!entry) return std::nullopt;
  const auto fetched = [&] {
    cache::note_use(arch.fd, key, *entry);
    return std::move(entry->compiled);
  };
  if (entry->problem.empty()) return fetched();
  const fs::path folder = cache::entry_folder(root_, key);
  try {
    // What looks damaged may be an entry that another process is replacing: only the lock's holder can tell.
    const auto lock = FileLock::acquire(cache::lock_path(folder), 0);
    if (!lock) return std::nullopt;
    entry = cache::read_entry(arch.fd, key);
    if (entry && entry->problem.empty()) return fetched();
    if (entry) drop(folder, entry->problem);
  } catch (const fs::filesystem_error&) {
    log_(fmt::format("ignored a damaged cache entry ({}): {}", entry->problem, folder.string()));
  }
  return std::nullopt;
}

void Cache::publish(const CacheKey& key, const Source& source, const Compiled& compiled) const {
  const fs::path folder = cache::entry_folder(root_, key);
  fs::path unfinished;
  try {
    make_private_folders(folder.parent_path());  // again, if somebody removed them while the kernel was built
    cache::remove_unfinished(folder);
    unfinished = make_unique_folder(cache::unfinished_prefix(folder));
    cache::write_entry(unfinished, key, source, compiled);
    cache::enter(root_, unfinished, folder, limit_);
    sync_folder(folder.parent_path());
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    if (!unfinished.empty()) fs::remove_all(unfinished, ignored);
    // Another has built it where the lock was removed by hand: either result will do.
    const bool already_there = error.code() == std::errc::directory_not_empty || error.code() == std::errc::file_exists;
    if (!already_there) say_not_kept(error.what());
  }
}

std::optional<FileLock> Cache::lock_for_building(const CacheKey& key) const {
  const fs::path path = cache::lock_path(cache::entry_folder(root_, key));
  try {
    make_private_folders(path.parent_path());
    auto lock = FileLock::acquire(path, builder_patience);
    if (!lock) {
      log_(
          fmt::format("another process has held {} for {:.0f} s; not waiting for it", path.string(), builder_patience));
    }
    return lock;
  } catch (const fs::filesystem_error& error) {
    say_not_kept(error.what());
    return std::nullopt;
  }
}

Compiled Cache::find_or_build(const CacheKey& key, const Source& source, const std::function<Compiled()>& build) const {
  if (root_.empty()) say_not_kept("none of ATTUNE_CACHE_DIR, XDG_CACHE_HOME and HOME names a folder");
  if (auto found = find(key)) return std::move(*found);
  if (!usable()) return build();
  const std::optional<FileLock> lock = lock_for_building(key);
  if (!lock) return build();

  // Whoever held the lock before has built it, or found it damaged, or died.
  const cache::OpenedFolder arch = cache::open_arch(root_, key.arch);
  if (!arch.refusal.empty()) say_not_kept(arch.refusal);
  if (!arch.fd.open()) return build();
  if (auto entry = cache::read_entry(arch.fd, key)) {
    if (entry->problem.empty()) return std::move(entry->compiled);
    drop(cache::entry_folder(root_, key), entry->problem);
  }
  Compiled compiled = build();
  publish(key, source, compiled);
  return compiled;
}

std::vector<CacheEntry> Cache::list() const {
  std::vector<CacheEntry> result;
  if (!usable()) return result;
  for (const fs::path& folder : cache::entry_folders(root_)) {
    const std::string file_name = folder.filename().string();
    const std::string arch = folder.parent_path().filename().string();
    const std::size_t dash = file_name.rfind('-');
    const cache::Entry entry = cache::read_entry(cache::open_arch(root_, arch).fd, file_name);
    CacheEntry listed{.folder = folder,
                      .name = file_name.substr(0, dash),
                      .arch = arch,
                      .hash = file_name.substr(dash + 1),
                      .bytes = cache::bytes_in(folder),
                      .last_use = entry.last_use,
                      .problem = entry.problem};
    if (entry.problem.empty() && cache::entry_folder(root_, entry.key) != folder) {
      listed.problem = "meta.json speaks of another kernel";
    }
    listed.valid = listed.problem.empty();
    result.push_back(std::move(listed));
  }
  return result;
}

std::size_t Cache::clear() const {
  std::size_t removed = 0;
  if (!usable()) return removed;
  for (const fs::path& folder : cache::entry_folders(root_)) {
    cache::remove_entry(folder);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(folder, error))) ++removed;
  }
  try {
    cache::remove_leftovers(root_);
  } catch (const fs::filesystem_error&) {
    // What cannot be removed stays, as the entries above.
  }
  cache::forget_bytes(root_);
  return removed;
}

Pruned Cache::prune(long long bytes) const {
  std::error_code error;
  const bool there = usable() && fs::is_directory(cache::version_folder(root_), error);
  return there ? cache::prune(root_, bytes) : Pruned{};
}

}  // namespace attune
