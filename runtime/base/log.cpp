#include "runtime/base/log.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "runtime/base/environment.hpp"

namespace attune {

bool is_logged(attune_log_level level) {
  const std::string word = environment("ATTUNE_LOG");
  if (word == "off") return false;
  if (!word.empty() && word != "warning" && word != "info") {
    [[maybe_unused]] static const bool said = [&] {
      fmt::print(stderr, "attune: ATTUNE_LOG is '{}'; it must be off, warning or info, and counts as info\n", word);
      return true;
    }();
  }
  return level >= ATTUNE_LOG_WARNING || (!word.empty() && word != "warning");
}

void log_to_stderr(const std::string& line) { say_on_stderr(ATTUNE_LOG_WARNING, line); }

void say_on_stderr(attune_log_level level, const std::string& line) {
  if (is_logged(level)) fmt::print(stderr, "attune: {}\n", line);
}

}  // namespace attune
