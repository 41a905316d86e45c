// What attune explain says of a mask's blocks.
#include <doctest/doctest.h>

#include "generator/expression/pool.hpp"
#include "runtime/cli/mask_blocks.hpp"

namespace attune::cli {

TEST_CASE("blocks are dead, full or partial as a mask and its expression say, and drawn so") {
  Problem problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 256, .seqlen_k = 256, .causal = true};
  CHECK(mask_blocks(problem, 64, 64).text() ==
        "  of 4 x 4 blocks 37.5% dead, 37.5% full, 25.0% partial\n"
        "  +...\n"
        "  #+..\n"
        "  ##+.\n"
        "  ###+\n");
  problem.expressions.mask = expression::number_of_text("p - k < 64 or k < 4", expression::Use::mask).value();
  CHECK(mask_blocks(problem, 64, 64).text() ==
        "  of 4 x 4 blocks 43.8% dead, 0.0% full, 56.2% partial\n"
        "  +...\n"
        "  ++..\n"
        "  +++.\n"
        "  +.++\n");
  problem.seqlen_k = 300;  // positions begin at 44
  problem.causal = false;
  problem.expressions.mask = expression::number_of_text("p >= 172", expression::Use::mask).value();
  CHECK(mask_blocks(problem, 128, 300).text() ==
        "  of 2 x 1 blocks 50.0% dead, 50.0% full, 0.0% partial\n"
        "  .\n"
        "  #\n");
}

TEST_CASE("of a mask that looks things up it is said that a call's arrays decide about more blocks") {
  Problem problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 128, .seqlen_k = 128};
  const char* const documents = "document[b, p] == document[b, k] where document: int32[batch, position]";
  problem.expressions.mask = expression::number_of_text(documents, expression::Use::mask).value();
  CHECK(mask_blocks(problem, 128, 128).text() ==
        "  of 1 x 1 blocks 0.0% dead, 0.0% full, 100.0% partial\n"
        "  before any array is looked at; in each call a launch tells of more that they are dead or full\n"
        "  +\n");
}

}  // namespace attune::cli
