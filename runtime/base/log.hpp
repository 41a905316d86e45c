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

/// Writes the line to stderr after "attune: ".
void log_to_stderr(const std::string& line);

/// Warnings to stderr, after "attune: "; nothing else.
void warn_on_stderr(attune_log_level level, const std::string& line);

}  // namespace attune
