// What a condition on a variant's constants comes to.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/template_file.hpp"
#include "generator/tokens.hpp"
#include "generator/variant.hpp"

namespace attune {

/// Whether a kernel's score is one that blocks/tilted_softmax.cuh adds beside the softmax (`Expressions::tilts`).
bool tilts_scores(const Variant& variant);

/// Whether a kernel before this one tells which blocks its mask leaves (`Expressions::told`).
bool tells_blocks(const Variant& variant);

/// How many first keys, which its mask shows to every query, a kernel multiplies apart (`Expressions::first_keys`); 0
/// where it multiplies V by residuals of P, too.
int first_keys_apart(const Variant& variant);

/// What constants of a file are defined as, by their names: those for `constexpr bool` and `constexpr int` outside all
/// braces whose names the file declares nowhere else.
using Constants = std::map<std::string_view, std::span<const Token>>;

/// The constants of the file of these tokens.
Constants constants_of(const std::vector<Token>& tokens);

/// The value of an expression of variant::names, Expressions::tilts, told and first_keys, the file's constants,
/// numbers, true, false, words of a knob (`Dtype::bf16`), parentheses and the operators ! * / % + - < <= > >= == != &&
/// ||; nothing where it depends on anything else. `false && x` is false and `true || x` is true whatever x is. A word
/// that its knob doesn't have is a problem, with the nearest one.
Result<std::optional<long long>> value_of(std::span<const Token> expression, const TemplateFile& file,
                                          const Constants& constants, const Variant& variant);

}  // namespace attune
