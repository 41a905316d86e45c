// The tests that need a GPU. Without one they say so and are skipped (exit code 77), never passed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "runtime/cli/machine.hpp"

int main(int argc, char** argv) {
  if (const auto found = attune::cli::find_gpu(); !found) {
    std::printf("skipped: no GPU (%s)\n", found.problem.c_str());
    return 77;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
