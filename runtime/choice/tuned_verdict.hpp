// What a table of tuned problems says about one problem, for people: the row that decides, or why none does.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/tuned.hpp"

namespace attune {

struct TunedVerdict {
  std::optional<TunedRow> row;  ///< the one that applies, else the nearest; nothing where none is of the problem's kind
  double distance = 0;
  bool applies = false;  ///< nothing stands against the row
  std::string reason;    ///< why its variant does not serve; empty where it does
  std::string gpu;       ///< that the table was measured on

  /// A line of explanation for a person; empty where nobody asked.
  [[nodiscard]] std::string text() const;
};

/// Where a kernel comes from: embedded or of a bundle, or compiled at first use.
enum class Origin { ready, nvrtc, host_compiler };

/// "ready", "nvrtc" or "host compiler"
std::string_view origin_text(Origin origin);

/// What a registry with the default compile policy would have serve a problem.
struct Served {
  Variant variant;
  Origin origin = Origin::ready;
  TunedVerdict tuned;
  std::optional<Variant> frozen;  ///< the ready kernel that ATTUNE_COMPILE_FROZEN has in its place, if there is one

  /// What that policy does where this one compiles, as a line for a person; else empty.
  [[nodiscard]] std::string frozen_text() const;
};

Served serve(const ReadyKernels& ready, std::span<const TunedTable> tables, const ProblemView& problem,
             const Device& device);

}  // namespace attune
