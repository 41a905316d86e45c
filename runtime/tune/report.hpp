// What a journal measured, as a picture.
#pragma once

#include <string>

#include "runtime/tune/journal.hpp"

namespace attune::tune {

/// One self-contained SVG, readable on light and dark pages: for each problem, and for each number of stages, speed
/// over the sizes of a tile (B_r by B_c; of decoding, whose B_r the problem decides, warps by B_c), of the other knobs
/// the best. What was chosen has a solid frame, the heuristic's choice a dashed one. `only` leaves out problems whose
/// text does not contain it. Throws Error{ATTUNE_INVALID_ARGUMENT} when nothing is left.
std::string report_svg(const JournalContents& journal, const std::string& only);

}  // namespace attune::tune
