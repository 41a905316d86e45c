// Local variables that nothing uses.
#pragma once

#include <string>

namespace attune {

/// The text of a template without the declarations of those local variables of its functions whose names stand nowhere
/// else in it, each with the comment right above it: what a choice (fold.hpp) has left over. A value that such a
/// variable gets is not computed either.
std::string without_unused_locals(std::string text);

}  // namespace attune
