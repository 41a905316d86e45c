// A kernel whose machine code is there.
#pragma once

#include <string_view>

#include "generator/variant.hpp"

namespace attune {

/// A kernel that needs no compiler any more: embedded in the library, or of a bundle. Its texts belong to either.
struct ReadyKernel {
  Variant variant;
  std::string_view name;     ///< the extern "C" name
  std::string_view fatbin;   ///< compressed: machine code for its GPUs, and PTX where the family has it
  bool tables_only = false;  ///< tables of tuned problems alone asked for it
};

}  // namespace attune
