// What decides among the kernels that meet a problem's need.
#pragma once

#include <compare>

#include "generator/need.hpp"

namespace attune {

/// Where the parts of a sequence are to be merged by a cluster, without a second kernel.
enum class Clusters {
  no,
  anywhere,  ///< on GPUs that have clusters
  measured   ///< on those of compute capability 9.0 with 132 multiprocessors or more, as an H100 SXM and an H200 have
};

/// Of kernels that meet a need the one with the tile that fits best is taken. Equal for problems that every choice
/// treats alike.
struct Preference {
  int B_r = 0;           ///< best rows of a tile
  unsigned packing = 0;  ///< as Problem::packing() tells which packed tiles save rows; 0 where none can serve
  bool one_length = true;
  Clusters clusters = Clusters::no;

  auto operator<=>(const Preference&) const = default;
};

/// All that decides which kernel serves a problem on one GPU, whatever kernels there are.
struct Ask {
  Need need;
  Preference preference;

  auto operator<=>(const Ask&) const = default;
};

}  // namespace attune
