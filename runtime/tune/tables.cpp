#include "runtime/tune/tables.hpp"

#include <fmt/format.h>

#include <tuple>

#include "runtime/base/error.hpp"

namespace attune::tune {
namespace {

TunedTable table_of(const std::filesystem::path& file) {
  if (file.extension() == ".yaml") {
    Result<TunedTable> table = read_tuned(file);
    if (!table.ok()) throw Error(ATTUNE_INVALID_ARGUMENT, table.problems.front().text());
    return std::move(table.value);
  }
  const JournalContents journal = read_journal(file);
  TunedTable table{.gpu = journal.identity.gpu, .rows = {}};
  for (const auto& [id, outcome] : journal.outcomes) table.put(outcome.row);
  return table;
}

/// Whether a row counts before another for the same problem.
bool counts_before(const TunedRow& a, const TunedRow& b) {
  const auto rank = [](const TunedRow& row) {
    const TunedResult& result = row.result;
    return std::tuple(result.date, result.confidence, -result.microseconds, -result.default_microseconds,
                      result.variant.name(), result.driver, result.compiler);
  };
  return rank(a) > rank(b);
}

}  // namespace

void put_outcomes(TunedTable& table, std::span<const Outcome> outcomes) {
  for (const Outcome& outcome : outcomes) table.put(outcome.row);
}

TunedTable merged(std::span<const std::filesystem::path> files) {
  TunedTable result;
  for (const std::filesystem::path& file : files) {
    const TunedTable table = table_of(file);
    if (&file == &files.front()) result.gpu = table.gpu;
    if (table.gpu != result.gpu) {
      throw Error(ATTUNE_INVALID_ARGUMENT,
                  fmt::format("{} is for {} with {} multiprocessors, {} for {} with {}; a table is for one kind of GPU",
                              files.front().string(), result.gpu.name, result.gpu.multiprocessors, file.string(),
                              table.gpu.name, table.gpu.multiprocessors));
    }
    for (const TunedRow& row : table.rows) {
      const TunedRow* known = result.find(row.problem);
      if (known == nullptr || counts_before(row, *known)) result.put(row);
    }
  }
  return result;
}

}  // namespace attune::tune
