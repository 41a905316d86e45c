// What Attune serves and where: each feature as a problem that the chooser of kernels is asked about.
#pragma once

#include <string>
#include <vector>

namespace attune::cli {

/// A feature, and the template whose kernels serve it; empty where none does.
struct FeatureRow {
  std::string feature;
  std::string on_sm80;      ///< on GPUs of compute capability 8.0 and newer
  std::string on_sm90;      ///< on GPUs of compute capability 9.0
  std::string in_emulator;  ///< on the CPU
  std::string limits;       ///< found by asking about neighbours of the problem, or a row's own words
};

/// Features that are served, then those that are not, on this build of the library.
std::vector<FeatureRow> feature_rows();

/// The rows as a Markdown table, for README.md.
std::string feature_markdown(const std::vector<FeatureRow>& rows);

}  // namespace attune::cli
