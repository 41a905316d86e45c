// One kernel on disk: the three files of an entry's folder, written and read.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/files.hpp"
#include "runtime/cache/cache.hpp"

namespace attune::cache {

/// An entry as the disk has it: the kernel, or what is wrong with it.
struct Entry {
  CacheKey key;
  Compiled compiled;
  std::string problem;  ///< empty: whole
  /// When the kernel was last fetched, to the hour: what the modification time of meta.json says.
  std::chrono::system_clock::time_point last_use;
};

/// Writes the files of an entry into an empty folder and waits until they are on the disk. Throws
/// std::filesystem::filesystem_error.
void write_entry(const std::filesystem::path& folder, const CacheKey& key, const Source& source,
                 const Compiled& compiled);

/// Whatever entry lies in a folder of this name below an open one.
Entry read_entry(const FileDescriptor& parent, const std::string& name);

/// The entry of this key below the open folder of its architecture: whole, damaged, or (nothing) not there.
std::optional<Entry> read_entry(const FileDescriptor& arch, const CacheKey& key);

/// Notes that a kernel was fetched now, where that may be written and was not noted within the hour.
void note_use(const FileDescriptor& arch, const CacheKey& key, const Entry& entry);

/// When the entry in this folder was last fetched; long ago where nothing says so.
std::chrono::system_clock::time_point last_use(const std::filesystem::path& folder);

/// Bytes of the files in a folder.
long long bytes_in(const std::filesystem::path& folder);

}  // namespace attune::cache
