#include "runtime/base/environment.hpp"

#include <cstdlib>

namespace attune {

std::string environment(const char* name) {
  const char* const value = ::secure_getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes it
  return value != nullptr ? value : "";
}

}  // namespace attune
