// What explain says about tables of tuned problems, for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/choice/tuned_verdict.hpp"

namespace attune::cli {

/// Whether a row decides, which, how far it is and what was measured; else the reason.
nlohmann::ordered_json tuned_json(const TunedVerdict& tuned);

}  // namespace attune::cli
