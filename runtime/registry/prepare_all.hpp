// Many calls prepared ahead, side by side.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <variant>

#include "attune/attune.h"
#include "runtime/registry/registry.hpp"

namespace attune {

/// One item that is done.
struct PrepareProgress {
  std::size_t done = 0;   ///< items, this one included
  std::size_t total = 0;  ///< items in all
  std::size_t item = 0;   ///< its index
  std::string name;       ///< its problem in words; empty where its arguments are no problem at all
  double seconds = 0;
  attune_status status = ATTUNE_OK;
  std::string message;  ///< why it failed
};

/// Called from any thread, but from one at a time; must not throw.
using OnProgress = std::function<void(const PrepareProgress&)>;

/// Prepares all items on up to `threads` threads (0: one for each core) in the caller's CUDA context. All are tried;
/// then throws the Error of the first, by index, that failed.
void prepare_all(Registry& registry, std::span<const AnyArgs> items, int threads, const OnProgress& on_progress);

}  // namespace attune
