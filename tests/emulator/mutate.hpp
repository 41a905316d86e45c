// Bugs put into an emitted source: one compilation holds them all, and a number chosen at run time says which one is
// there. Found by reading the text, which clang-format has given one shape.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace attune::mutation_tests {

/// A place of the source that can be made wrong, in as many ways as it has mutations.
struct Site {
  std::string section;                 ///< "blocks/mask.cuh"
  std::string text;                    ///< its line, trimmed; " @2" follows for the section's second such line
  int line = 0;                        ///< of the emitted source
  int first = 0;                       ///< the number of its first mutant; the others follow
  std::vector<std::string> mutations;  ///< "deleted", "'<' always true", "'+' #2 left operand only"

  auto operator<=>(const Site&) const = default;
};

struct Instrumented {
  std::string text;         ///< lines keep their numbers
  std::vector<Site> sites;  ///< ascending by `first`
  int mutants = 0;          ///< numbered from 1
};

/// Names of what the instrumented source exports: an int, 0 or the mutant to be; a byte for each mutant number, not 0
/// once the site that begins with it was evaluated; and how many sites were evaluated, a long long that stops the
/// kernel when it has grown too large, as a bug may make a loop endless. None is atomic.
constexpr const char* mutant_symbol = "attune_mutant";
constexpr const char* reached_symbol = "attune_reached";
constexpr const char* steps_symbol = "attune_steps";

/// Everything outside the instructions' section, the products and constant expressions:
///   every call statement whose name speaks of a barrier, wait, fence, commit, group, ring, turn or mask, of loading,
///     settling or registers: deleted; waits also let one more group be pending; barriers also lose thread 0 or lane 0,
///     and a block's become a warp's; early returns deleted;
///   arguments of instructions: those of wrong_arguments.hpp;
///   comparisons: off by one, unless equals have one result (a minimum), always true, always false; && and ||: either
///   operand only; flags: true, false; a vote about a row: the first row's; copies of tiles that reach beyond the
///   matrix: no row is missing; the swizzle's ^: +, left operand only; its / and %, and the arithmetic of masks and
///   bounds: left operand only.
Instrumented instrument(std::string_view text);

}  // namespace attune::mutation_tests
