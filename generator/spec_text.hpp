// The way back from variants to specs: the text of spec files that ask for exactly these.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// A spec that was not read but made.
struct SpecText {
  std::string name;  ///< of the file, without its extension
  int family = 0;
  ArchSet arch = 0;
  std::string text;  ///< YAML
  std::size_t variants = 0;
};

/// One spec for each template and set of GPUs, in that order; each variant stands in one of them. What all variants of
/// a spec have in common stands at the top, what differs in rows, and values that multiply out in lists. A template's
/// file has its name, with those of the GPUs where it has several. `comment` opens each file: lines without their #.
/// Whatever order the variants come in, the text is the same.
std::vector<SpecText> spec_texts(std::span<const Variant> variants, std::span<const std::string> comment);

}  // namespace attune
