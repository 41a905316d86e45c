// The problems that a tuning run is asked for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "generator/diagnostic.hpp"
#include "runtime/tune/problems.hpp"

namespace attune::cli {

/// A YAML list of problems, each a mapping as `{head_dim: 128, batch: 4, heads_q: 16, seqlen_q: 4096, causal: true}` or
/// `{operation: decode, head_dim: 128, heads_q: 32, heads_kv: 8, seqlen_k: 4096}`; keys have the names that the command
/// line has, and its defaults; `ragged: true` makes a ragged batch of total_q and total_k rows, by default as many as
/// sequences that are all as long as the longest have. Or the problems of a table (runtime/choice/tuned.hpp), another
/// GPU's, say. Or what a program recorded (runtime/record/record.hpp), of which prefill and decode are tuned; the other
/// operations leave nothing to choose. Every problem of the file is reported with its place.
Result<std::vector<tune::AnyProblem>> read_problems(const std::filesystem::path& path);

/// read_problems() of text.
Result<std::vector<tune::AnyProblem>> parse_problems(std::string_view text, const std::string& file);

}  // namespace attune::cli
