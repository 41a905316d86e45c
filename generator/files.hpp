// Files as the build reads and writes them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "generator/diagnostic.hpp"
#include "generator/emit.hpp"

namespace attune {

/// The bytes of a file; "" where there is none.
std::string read_bytes(const std::filesystem::path& file);

/// What a file that somebody named holds: up to `most` bytes, and one more where there is more, as a device or a pipe
/// may have no end. Where it cannot be read, a problem; `wanted` says what was to be named: "a path to a .yaml spec".
Result<std::string> read_named(const std::filesystem::path& file, std::size_t most, std::string_view wanted);

/// Writes beside, then renames: nobody meets half a file. Links are followed; a file that is replaced leaves its
/// permissions to the new one. A device, a terminal or a pipe is written into instead. Throws
/// std::filesystem::filesystem_error, for a folder, a socket or a disk too.
void write_bytes(const std::filesystem::path& file, std::string_view bytes);

/// The same unless the file holds these bytes already: what does not change is not made again.
void write_if_changed(const std::filesystem::path& file, const std::string& bytes);

/// The emitted sources of a folder that are not among these: .cu files whose first line is their own name.
std::set<std::filesystem::path> leftovers(const std::filesystem::path& folder, std::span<const Source> sources);

/// Makes the folder hold these sources as NAME.cu, and no others.
void write_sources(const std::filesystem::path& folder, std::span<const Source> sources);

}  // namespace attune
