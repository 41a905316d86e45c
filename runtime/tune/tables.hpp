// From outcomes to the rows of a table, and several tables and journals into one.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "runtime/tune/journal.hpp"

namespace attune::tune {

/// Puts the rows of the outcomes into a table; rows of other problems stay as they are.
void put_outcomes(TunedTable& table, std::span<const Outcome> outcomes);

/// The rows of all files, tables (.yaml) and journals, in one table. Of several rows for a problem the newest counts,
/// then the one with the higher confidence, then the faster one, so that neither the order of the files matters nor how
/// problems were divided among them. Throws Error{ATTUNE_INVALID_ARGUMENT} where a file is neither, or where they are
/// not of one GPU.
TunedTable merged(std::span<const std::filesystem::path> files);

}  // namespace attune::tune
