// specs/tuned/<gpu>.yaml as text: which variant was found fastest for which problem on one GPU. What a problem is, only
// the runtime knows (runtime/choice/tuned.hpp); here it stays text.
//
//   gpu: {"name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132}
//   rows:
//   - {"problem": {"operation": "prefill", ...}, "variant": {"template": "prefill_sm90", "B_r": 192}, ...}
//
// It is YAML, each line a JSON mapping, so that libattune needs no YAML library to read it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"

namespace attune {

/// The GPU that a table was measured on.
struct TunedGpu {
  std::string name;         ///< as CUDA reports it
  int capability = 0;       ///< 10 * major + minor, of all_archs()
  int multiprocessors = 0;  ///< one that is partitioned has fewer under the same name

  bool operator==(const TunedGpu&) const = default;
};

/// What was measured of one problem.
struct TunedResult {
  Variant variant;                  ///< the fastest; for no set of GPUs
  double microseconds = 0;          ///< its median
  double default_microseconds = 0;  ///< that of what the heuristic chooses; above 0, as the other
  double confidence = 0;            ///< from 0 to 1, that the fastest of the others beats the heuristic's choice
  std::string date;                 ///< "2026-11-22"
  std::string driver;               ///< version, as the driver reports it
  std::string compiler;             ///< "NVRTC 13.0"

  bool operator==(const TunedResult&) const = default;
};

/// A row whose problem is JSON text, without spaces at its ends.
struct TunedLine {
  std::string problem;
  TunedResult result;
  Location where;
};

/// A whole file.
struct TunedFile {
  TunedGpu gpu;
  std::vector<TunedLine> rows;
};

/// Limits that keep a hostile file from costing more than a message.
inline constexpr std::size_t max_tuned_bytes = 4 << 20;
inline constexpr std::size_t max_tuned_rows = 4095;

/// Parses a file's text; `file` is used in messages. Reports every problem: a key that is unknown, missing or given
/// twice, an illegal value, a variant that check() refuses there.
Result<TunedFile> parse_tuned_file(std::string_view text, const std::string& file);

/// The text of a file; a missing or unreadable one is a problem. Of an oversized one it is as much as
/// parse_tuned_file() needs to say so.
Result<std::string> read_tuned_text(const std::filesystem::path& path);

/// The file's text: its rows in the order given, each on a line of its own. Parsed it is the same again, but for
/// `where`.
std::string tuned_file_text(const TunedFile& file);

/// The variants of a file's rows and the relaxed ones, which answer for problems that those cannot serve: each once,
/// for the GPU's architecture.
std::vector<Variant> tuned_variants(const TunedFile& file);

}  // namespace attune
