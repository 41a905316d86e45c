// The check of a cache's tables that callers of decode and store_kv may ask for: its kernel, its parameters, and what
// it found in words. The same for GPUs and for the emulator.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/store/problem.hpp"
#include "templates/check_params.h"

namespace attune {

/// One kernel checks every table.
struct CheckProblem {
  static constexpr Operation operation = Operation::check;
  static constexpr const char* word = "check_tables";  ///< as Problem has it

  static const ProblemFacts facts;

  auto operator<=>(const CheckProblem&) const = default;

  /// As Problem::ask().
  [[nodiscard]] static Ask ask() { return {.need = {.operation = operation}, .preference = {}}; }

  [[nodiscard]] static std::string text() { return word; }
};

/// It has no fields, and nothing can be wrong with it.
constexpr std::tuple<> problem_fields(const CheckProblem* /*type*/) { return {}; }
inline std::vector<std::string> problems_of(const CheckProblem& /*problem*/) { return {}; }

/// Whether a checked call asks for it.
bool checks_tables(const attune_decode_args& args);
bool checks_tables(const attune_store_kv_args& args);

/// The parameter block of a checked call, without a place for what is found. Throws Error{ATTUNE_INVALID_ARGUMENT}
/// where new keys have no room whatever the tables say.
AttuneCheckParams check_params(const attune_decode_args& args, const DecodeProblem& problem);
AttuneCheckParams check_params(const attune_store_kv_args& args, const StoreProblem& problem);

/// Checks the tables of a checked call, and waits for that. Throws Error{ATTUNE_INVALID_ARGUMENT} where it finds
/// something (the table, the batch, the position in its row and the value), and where the stream is being captured.
void run_table_check(const attune_decode_args& args, const DecodeProblem& problem, const Backend& backend);
void run_table_check(const attune_store_kv_args& args, const StoreProblem& problem, const Backend& backend);

}  // namespace attune
