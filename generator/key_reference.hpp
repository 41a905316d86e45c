// The keys of specs as a page for people, made from the field table and the family table.
#pragma once

#include <string>
#include <string_view>

#include "generator/diagnostic.hpp"

namespace attune {

/// Markdown: the templates, then a table of keys for each role, with values, defaults and the templates that have them.
std::string key_reference();

/// The page with what stands between its lines `<!-- keys -->` and `<!-- end of keys -->` replaced by the reference. A
/// page without these lines is a problem.
Result<std::string> with_key_reference(std::string_view page, const std::string& file);

}  // namespace attune
