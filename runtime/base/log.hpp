// Where the library says what no call returns.
#pragma once

#include <functional>
#include <string>

#include "attune/attune.h"

namespace attune {

/// Gets one line at a time, from any thread and from several at once; must not throw.
using Log = std::function<void(attune_log_level level, const std::string& line)>;

/// What a part of the library has to say that only ever warns; called as Log is.
using LineLog = std::function<void(const std::string& line)>;

/// Whether $ATTUNE_LOG lets a line of this level through: `off` none, `warning`, and where it is not set, warnings,
/// `info` all. Any other word counts as `info`, as who sets it wants to see something, and that is said once.
bool is_logged(attune_log_level level);

/// Writes a warning to stderr after "attune: ", where is_logged().
void log_to_stderr(const std::string& line);

/// Writes a line of any level likewise.
void say_on_stderr(attune_log_level level, const std::string& line);

}  // namespace attune
