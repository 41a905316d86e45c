// nvcc: from emitted sources to compressed fatbins, those alone that are not there yet.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "generator/emit.hpp"

namespace attune {

/// -gencode options for a variant: machine code for 8.0 and 9.0 and PTX for newer GPUs when it is for any GPU,
/// else machine code for each GPU of its set, or for the one that its family runs on.
std::string gencode_options(const Variant& variant);

/// How to run nvcc.
struct FatbinBuild {
  std::filesystem::path nvcc;
  std::filesystem::path folder;                 ///< keeps sources and fatbins from one build to the next
  int jobs = 0;                                 ///< compilations at a time; 0: one for each core
  std::function<void(const std::string&)> say;  ///< takes a line for every compilation, one at a time
};

struct Fatbins {
  std::vector<std::string> images;  ///< in the order of the sources
  int compiled = 0;                 ///< how many of them the folder did not have
};

/// The fatbin of every source. The folder comes to hold them as NAME.<hash>.fatbin, the hash being over source, options
/// and compiler, and the sources as NAME.cu; those of kernels that are not asked for go. What nvcc says of a source is
/// a problem. Throws std::runtime_error where the folder cannot be written or nvcc not run.
Result<Fatbins> build_fatbins(std::span<const Source> sources, const FatbinBuild& how);

}  // namespace attune
