// The environment, which names files that are opened and programs that are run.
#pragma once

#include <string>

namespace attune {

/// The value of a variable; "" where it is not set, and in a program that has more rights than who started it (setuid,
/// file capabilities): what its caller names must not be loaded, run or written with them. Nothing else in the library
/// reads the environment.
std::string environment(const char* name);

}  // namespace attune
