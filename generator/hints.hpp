// What somebody may have meant by a word that a spec or a command line cannot take.
#pragma once

#include <string>
#include <string_view>

#include "generator/variant.hpp"

namespace attune {

/// The architecture that "90", "9.0" or "sm90" means; "" for none.
std::string meant_arch(std::string_view word);

/// The value of a family's field that is nearest: of numbers the next larger one with which the family's default can be
/// built, as a kernel serves what is smaller than its own; else the largest, but of a head_dim, which no kernel then
/// serves. Of words one that is a typo away, or another name of it. "" for none.
std::string meant_value(const Family& family, const Field& field, std::string_view word);

}  // namespace attune
