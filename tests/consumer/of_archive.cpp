// Links to a static library with kernels: they are part of this program, though nothing refers to them.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

const char* version_through_archive();
bool archive_has_kernels();

int main() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(self), {}};
  // A row of the bundle's manifest, put together here so that the program's own text is not found.
  const std::string row = std::string("{\"name\":\"combine_") + "bf16_d128_w8\"";
  const bool found = bytes.find(row) != std::string::npos;
  if (found != archive_has_kernels()) {
    std::cerr << "the kernels of the archive are " << (found ? "" : "not ") << "in this program\n";
    return 1;
  }
  std::cout << "attune " << version_through_archive() << ": kernels of a static library "
            << (found ? "are in the program\n" : "were not built: no nvcc\n");
  return 0;
}
