// What keeps a cache within its limit: the entries that nobody has fetched for the longest time go first.
#pragma once

#include <filesystem>

#include "runtime/cache/cache.hpp"

namespace attune::cache {

/// Renames a finished entry into its place and, where the cache then holds more than `limit` bytes (0: any number
/// will do), removes others until an eighth of that is free again. What the cache holds is noted beside the entries,
/// so that nothing is counted as long as there is room. Only for the holder of the entry's lock. Throws
/// std::filesystem::filesystem_error where the entry cannot be renamed.
void enter(const std::filesystem::path& root, const std::filesystem::path& unfinished,
           const std::filesystem::path& folder, long long limit);

/// Removes entries until those left have at most `bytes`, and what builders that died have left. An entry that is being
/// made or removed by another stays. Throws std::filesystem::filesystem_error where nothing can be locked.
Pruned prune(const std::filesystem::path& root, long long bytes);

/// Removes what builders that died have left: unfinished folders and locks.
void remove_leftovers(const std::filesystem::path& root);

/// Forgets how much the cache holds: the next one to enter something counts.
void forget_bytes(const std::filesystem::path& root);

}  // namespace attune::cache
