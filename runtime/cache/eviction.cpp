#include "runtime/cache/eviction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/cache/entry.hpp"
#include "runtime/cache/layout.hpp"

namespace attune::cache {
namespace {

namespace fs = std::filesystem;

constexpr double patience = 10;  // seconds for others to enter what they have; each takes milliseconds
constexpr long long slack = 8;   // one part in so many is freed, so that the next ones need not count again
constexpr std::size_t max_note_bytes = 64;

/// The bytes of all entries as they were last counted, and of what was entered since. Too many where entries went
/// otherwise than through prune(), and too few only after a power cut: a count puts it right.
fs::path note_path(const fs::path& root) { return version_folder(root) / ".bytes"; }

std::optional<FileLock> lock_note(const fs::path& root) {
  return FileLock::acquire(version_folder(root) / ".bytes.lock", patience);
}

std::optional<long long> noted_bytes(const fs::path& root) {
  const auto text = read_file(note_path(root), max_note_bytes);
  long long bytes = 0;
  if (!text || !text->ends_with('\n')) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), bytes);
  return error == std::errc() && *end == '\n' && bytes >= 0 ? std::optional(bytes) : std::nullopt;
}

void note_bytes(const fs::path& root, long long bytes) {
  forget_bytes(root);  // a death from here on means a count
  write_file(note_path(root), fmt::format("{}\n", bytes));
}

struct Candidate {
  fs::path folder;
  long long bytes = 0;
  std::chrono::system_clock::time_point last_use;
};

std::vector<Candidate> oldest_first(const fs::path& root) {
  std::vector<Candidate> result;
  for (fs::path& folder : entry_folders(root)) {
    const long long bytes = bytes_in(folder);
    const auto used = last_use(folder);
    result.push_back({std::move(folder), bytes, used});
  }
  std::ranges::sort(result, [](const Candidate& a, const Candidate& b) {
    return std::tie(a.last_use, a.folder) < std::tie(b.last_use, b.folder);
  });
  return result;
}

/// Whether the entry is gone: it stays while anybody holds its lock, as who makes it does until it is entered.
bool evict(const fs::path& folder) {
  const auto lock = FileLock::acquire(lock_path(folder), 0);
  if (!lock) return false;
  remove_entry(folder);
  std::error_code error;
  return !fs::exists(fs::symlink_status(folder, error));
}

/// Counts; beyond `limit`, evicts down to `target`. For the holder of the note's lock.
Pruned count_and_evict(const fs::path& root, long long limit, long long target) {
  Pruned pruned;
  const std::vector<Candidate> candidates = oldest_first(root);
  for (const Candidate& candidate : candidates) pruned.bytes_left += candidate.bytes;
  if (pruned.bytes_left > limit) {
    for (const Candidate& candidate : candidates) {
      if (pruned.bytes_left <= target) break;
      if (!evict(candidate.folder)) continue;
      ++pruned.kernels;
      pruned.bytes += candidate.bytes;
      pruned.bytes_left -= candidate.bytes;
    }
  }
  note_bytes(root, pruned.bytes_left);
  return pruned;
}

}  // namespace

void enter(const fs::path& root, const fs::path& unfinished, const fs::path& folder, long long limit) {
  if (limit == 0) {
    forget_bytes(root);
    fs::rename(unfinished, folder);
    return;
  }
  const auto lock = lock_note(root);
  const std::optional<long long> before = lock ? noted_bytes(root) : std::nullopt;
  const std::optional<long long> after = before ? std::optional(*before + bytes_in(unfinished)) : std::nullopt;
  // Noted before it is so: a death in between must not leave a number that is too small.
  if (after) {
    note_bytes(root, *after);
  } else {
    forget_bytes(root);
  }
  fs::rename(unfinished, folder);
  if (!lock || (after && *after <= limit)) return;
  try {
    // This entry stays, however small the limit: its lock is held.
    count_and_evict(root, limit, limit - limit / slack);
    remove_leftovers(root);
  } catch (const fs::filesystem_error&) {
    forget_bytes(root);  // the entry is there; whoever comes next tries again
  }
}

Pruned prune(const fs::path& root, long long bytes) {
  const auto lock = lock_note(root);
  Pruned pruned = count_and_evict(root, bytes, bytes);
  remove_leftovers(root);
  return pruned;
}

void remove_leftovers(const fs::path& root) {
  for (const fs::path& folder : begun_folders(root)) {
    const auto lock = FileLock::acquire(lock_path(folder), 0);
    if (lock) remove_unfinished(folder);
  }
}

void forget_bytes(const fs::path& root) {
  std::error_code ignored;
  fs::remove(note_path(root), ignored);
}

}  // namespace attune::cache
