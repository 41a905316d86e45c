// Where the cache keeps what: <root>/v<format>/<arch>/<entry>, an entry being <variant name>-<hash>. Beside the entries
// lie, hidden, the folders of entries that are not finished and the locks of those who make them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/cache/cache.hpp"

namespace attune::cache {

/// Of everything below; another one is another folder.
inline constexpr int format_version = 1;

/// <root>/v<format>
std::filesystem::path version_folder(const std::filesystem::path& root);

/// Names of an entry and of its architecture's folder: letters, digits and _ of the key's own, whatever those hold.
std::string entry_name(const CacheKey& key);
std::string arch_folder_name(const std::string& arch);

/// An entry's folder in full.
std::filesystem::path entry_folder(const std::filesystem::path& root, const CacheKey& key);

/// The lock of whoever makes or removes the entry of this folder.
std::filesystem::path lock_path(const std::filesystem::path& folder);

/// What the unfinished folders of this entry start with.
std::filesystem::path unfinished_prefix(const std::filesystem::path& folder);

/// A folder of the cache, open. Where another user may have written into it, or into one above it within the cache, it
/// is not, and `refusal` says which and what would be right; neither where it is missing.
struct OpenedFolder {
  FileDescriptor fd;
  std::string refusal;
};

/// Opens <root>/v<format>.
OpenedFolder open_version(const std::filesystem::path& root);

/// Opens <root>/v<format>/<arch>.
OpenedFolder open_arch(const std::filesystem::path& root, const std::string& arch);

/// The folders of all entries, sorted.
std::vector<std::filesystem::path> entry_folders(const std::filesystem::path& root);

/// The folders of all entries of which a lock or an unfinished folder lies there, sorted; whether or not they exist.
std::vector<std::filesystem::path> begun_folders(const std::filesystem::path& root);

/// Removes the unfinished folders of this entry. Only for the holder of its lock.
void remove_unfinished(const std::filesystem::path& folder);

/// Takes the entry out of sight in one step, then removes it.
void remove_entry(const std::filesystem::path& folder);

}  // namespace attune::cache
