// What checks say of a fault, kept out of the way of calls that have none.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace attune {

/// Adds a line to those found. A function of its own, which takes copies: the check that calls it, a few comparisons on
/// the way of every call, would otherwise set up the stack frame and the stack protector of the text.
template <class... Values>
[[gnu::cold, gnu::noinline]] void add_line(std::vector<std::string>& found, fmt::format_string<Values&...> text,
                                           Values... values) {
  found.push_back(fmt::format(text, values...));
}

}  // namespace attune
