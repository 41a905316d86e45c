#include "runtime/log.hpp"

#include "runtime/cache.hpp"

namespace attune {

void warn_on_stderr(attune_log_level level, const std::string& line) {
  if (level >= ATTUNE_LOG_WARNING) log_to_stderr(line);
}

}  // namespace attune
