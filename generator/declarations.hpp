// What the files of a kernel declare, and which of it the kernel uses.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "generator/template_file.hpp"

namespace attune {

/// A declaration: of a type, a function, a constant, a macro, or of a member of a type.
struct Declaration {
  std::size_t first_line = 0;  ///< of the comment right above it
  std::size_t end_line = 0;    ///< one past its last
  std::vector<std::string_view> names;
  std::set<std::string_view> words;     ///< that it uses, but for its members
  std::set<std::string_view> accessed;  ///< words that it uses behind . or ->, which can only be members
  bool needed = false;                  ///< whether or not its name is used: the kernel, what has no name
  std::vector<Declaration> members;     ///< those of a type that it can do without: functions, constants, types
};

/// Those of a file, in their order.
std::vector<Declaration> declarations_of(const TemplateFile& file);

/// For each file which of its lines a kernel has: no declaration that nothing which is needed uses by its name, and no
/// member like that. A file of which it uses nothing has no line.
std::vector<std::vector<bool>> used_lines(std::span<const TemplateFile* const> files);

}  // namespace attune
