// The check of a cache's tables that callers of decode and store_kv may ask for: its kernel, its parameters, and what
// it found in words. The same for GPUs and for the emulator.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/call/device.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/store/problem.hpp"
#include "templates/check_params.h"

namespace attune {

/// One kernel checks every table.
struct CheckProblem {
  static constexpr Operation operation = Operation::check;

  auto operator<=>(const CheckProblem&) const = default;

  /// As Problem::ask().
  [[nodiscard]] static Ask ask() { return {.need = {.operation = operation}, .preference = {}}; }

  [[nodiscard]] static std::string text() { return "check_tables"; }
};

/// Whether a checked call asks for it.
bool checks_tables(const attune_decode_args& args);
bool checks_tables(const attune_store_kv_args& args);

/// Adds a line where the caller's flag is neither 0 nor 1.
void check_flag(std::vector<std::string>& found, int check_tables);

/// The parameter block of a checked call, without a place for what is found. Throws Error{ATTUNE_INVALID_ARGUMENT}
/// where new keys have no room whatever the tables say.
AttuneCheckParams check_params(const attune_decode_args& args, const DecodeProblem& problem);
AttuneCheckParams check_params(const attune_store_kv_args& args, const StoreProblem& problem);

/// Copies bytes of a table to the host.
using ReadTable = std::function<void(void* to, const void* from, std::size_t bytes)>;

/// Throws Error{ATTUNE_INVALID_ARGUMENT} where the kernel found something: the table, the batch, the position in its
/// row and the value.
void throw_fault(const AttuneCheckParams& params, const AttuneTableFault& fault, const ReadTable& read);

}  // namespace attune
