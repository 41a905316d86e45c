// Says how many kernels and tables this program has come with, where its kernels lie in a file beside it.
#include <fmt/format.h>

#include "runtime/bundle/embedded.hpp"

int main() {
  fmt::print("{} kernels, {} tables\n", attune::embedded_kernels().size(), attune::embedded_tables().size());
}
