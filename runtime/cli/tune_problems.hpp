// The problems that a tuning run is asked for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "generator/diagnostic.hpp"
#include "runtime/tune/problems.hpp"

namespace attune::cli {

/// A YAML list of problems, each a mapping as `{head_dim: 128, batch: 4, heads_q: 16, seqlen_q: 4096, causal: true}` or
/// `{operation: decode, head_dim: 128, heads_q: 32, heads_kv: 8, seqlen_k: 4096}`; keys are those of a row of a table
/// and any may be left out: sizes have the defaults of the command line, a ragged batch has as many rows as sequences
/// that are all as long as the longest. Or the problems of a table (runtime/choice/tuned.hpp), another
/// GPU's, say. Or what a program recorded (runtime/record/record.hpp), of which prefill, decode and backward are tuned;
/// the other operations leave nothing to choose. Every problem of the file is reported with its place.
Result<std::vector<tune::AnyProblem>> read_problems(const std::filesystem::path& path);

/// read_problems() of text.
Result<std::vector<tune::AnyProblem>> parse_problems(std::string_view text, const std::string& file);

}  // namespace attune::cli
