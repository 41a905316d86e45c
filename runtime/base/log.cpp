#include "runtime/base/log.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace attune {

void log_to_stderr(const std::string& line) { fmt::print(stderr, "attune: {}\n", line); }

void warn_on_stderr(attune_log_level level, const std::string& line) {
  if (level >= ATTUNE_LOG_WARNING) log_to_stderr(line);
}

}  // namespace attune
