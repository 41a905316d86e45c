// The choices that a template leaves to the generator.
#pragma once

#include <string>

#include "generator/diagnostic.hpp"
#include "generator/template_file.hpp"
#include "generator/variant.hpp"

namespace attune {

/// The file's text as this variant needs it. Where the variant's constants decide, of
///
///     if constexpr (variant::causal) {
///     } else if constexpr (variant::stages == 2 && !variant::ragged) {
///     } else {
///     }
///
/// the branch that is taken is left, without its braces, and of `Select<variant::causal, A, B>` the type. A constant of
/// the file's own (`constexpr bool shares_keys = variant::B_c == rows;`) is as good as what it says. What else depends
/// on (a template's own parameter) stays as it stands. With a branch that goes without another in its place,
/// the comment right above it goes, too. Problems: an `if constexpr` to be decided that does not begin its line, and
/// those of conditions (condition.hpp).
Result<std::string> fold(const TemplateFile& file, const Variant& variant);

}  // namespace attune
