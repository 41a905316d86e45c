// Tables of tuned problems: what `attune tune` measured on one GPU, kept in specs/tuned/<gpu>.yaml
// (generator/tuned_file.hpp has the form of the file).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "generator/tuned_file.hpp"
#include "runtime/call/device.hpp"
#include "runtime/operations/tuning.hpp"

namespace attune {

/// As the problem's own text(), which tells problems apart.
std::string text_of(const TunedProblem& problem);

/// The problem with all that does not matter at its usual value: caches as large as their sequences, a softcap of 1,
/// appended keys only where queries are rotated. Two problems that a table cannot tell apart become equal.
TunedProblem tuned_problem(const TunedProblem& problem);

template <class P>
requires std::is_constructible_v<TunedProblem, const P&> P tuned_problem(const P& problem) {
  return std::get<P>(tuned_problem(TunedProblem(problem)));
}

/// One row of a table. `problem` is as tuned_problem() returns it.
struct TunedRow {
  TunedProblem problem;
  TunedResult result;

  bool operator==(const TunedRow&) const = default;
};

/// With which variant the row answers for a problem: its own or, where that is made for others alone, the relaxed one.
Variant variant_for(const TunedRow& row, const Need& need);

template <class AnyProblem>
Variant variant_for(const TunedRow& row, const AnyProblem& problem) {
  return variant_for(row, problem.ask().need);
}

/// A table, in the order of the file: by operation, then by element type, head dimensions, mask, features and sizes.
/// Each problem occurs once.
struct TunedTable {
  TunedGpu gpu;
  std::vector<TunedRow> rows;

  bool operator==(const TunedTable&) const = default;

  /// Adds a row where its order puts it, or replaces that of the same problem; no other row changes.
  void put(TunedRow row);

  /// The row of exactly this problem; null where there is none.
  [[nodiscard]] const TunedRow* find(const TunedProblem& problem) const;
};

/// The GPU of a table measured on this device.
TunedGpu tuned_gpu(const Device& device);

/// That GPU as a device, as far as the table and its architecture tell; what refusals() asks about.
Device device_of(const TunedGpu& gpu);

/// "h200.yaml" for "NVIDIA H200", "rtx_6000_ada_generation.yaml": the name of a table's file in specs/tuned.
std::string tuned_file_name(const TunedGpu& gpu);

/// Reads a table. Every problem of the text is reported with its line, among them rows whose variant cannot serve their
/// problem; rows may come in any order. `file` is used in messages.
Result<TunedTable> parse_tuned(std::string_view text, const std::string& file);

/// The same from a file; a missing, unreadable or oversized one is a problem too.
Result<TunedTable> read_tuned(const std::filesystem::path& path);

/// The text of a table, which parse_tuned() reads back equal. A row's line depends on that row alone. Throws
/// Error{ATTUNE_INVALID_ARGUMENT} for a table that could not be read back, naming the first reason.
std::string tuned_text(const TunedTable& table);

}  // namespace attune
