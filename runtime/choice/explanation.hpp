// Which kernels a call of any operation is launched with, which were refused and why: for people, programs and tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/call/plan.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/served.hpp"

namespace attune {

/// A launch of a call before or after its main one.
struct OtherLaunch {
  std::string_view role;   ///< for programs: "combine"
  std::string_view place;  ///< for people, before the kernel's name: "merged by"
  Served serving{};
  Launch launch{};
  std::string remark{};  ///< for people, of what it does; may be empty
};

struct Explanation {
  std::string problem;  ///< its text
  Device device;
  std::vector<Considered> considered;  ///< every ready kernel that needs no tuned row, and a ready one that serves
  OwnChoice own;                       ///< what would be generated for these head dimensions
  Served serving;                      ///< the variant of the tuned row, else the best ready one, else `own`
  std::vector<std::string> refusals;   ///< why no kernel can serve; empty when one does
  std::string part = "served";         ///< what `serving` has of the call, for people: "dk and dv"
  std::optional<Launch> launch;        ///< of `serving`; nothing when it is refused
  std::vector<OtherLaunch> others;     ///< in their order
  std::size_t workspace_bytes = 0;     ///< for these launches, short sequences' apart
  std::vector<std::string> notes;      ///< on these launches, each a line for people
  std::vector<std::pair<std::string_view, long long>> counts;  ///< of this operation alone, for programs: "splits"
  std::vector<Explanation> short_sequences;  ///< none, or that of those which are not `serving`'s, given a workspace

  [[nodiscard]] bool served() const { return launch.has_value(); }

  /// Takes back its launches.
  void refuse(std::vector<std::string> reasons);

  /// For each launch the ready kernel that ATTUNE_COMPILE_FROZEN takes; nothing where none serves it, so that the call
  /// is refused unless the cache has the one named here. "variant" is the role of the main one.
  [[nodiscard]] std::vector<std::pair<std::string_view, std::optional<Variant>>> frozen() const;

  /// A few lines for a person. Kernels that are ready and were refused for several reasons are counted, and `rest` says
  /// where to see them ("--all shows them"); they are listed where it is empty.
  [[nodiscard]] std::string text(std::string_view rest) const;
};

}  // namespace attune
