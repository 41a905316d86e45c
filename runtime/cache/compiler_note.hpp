// Which libnvrtc this machine has, noted in the cache folder: opening it relocates a library of 100 MB, which takes
// longer than all else that a kernel from the disk does.
#pragma once

#include <optional>
#include <string>

#include "runtime/cache/cache.hpp"
#include "runtime/compiler/compile.hpp"

namespace attune {

/// Compiler::identity() as it was when a process like this one last noted it, if that library is still the same file
/// and what says where libraries are found has not changed. Another one may have come to stand in front of it: good for
/// looking a kernel up, not for naming a new one. Nothing where a libnvrtc is open already: it tells itself.
std::optional<std::string> noted_compiler(const Cache& cache);

/// Notes which one was opened, if that is not what noted_compiler() would say; where nothing can be written it is not
/// noted.
void note_compiler(const Cache& cache, const Compiler& compiler);

}  // namespace attune
