// What the build put into the library: a bundle and templates.
#pragma once

#include <span>
#include <string_view>

#include "generator/bundle.hpp"
#include "generator/emit.hpp"

namespace attune {

/// A kernel that was compiled when the library was built.
struct EmbeddedKernel {
  Variant variant;
  std::string_view name;    ///< the extern "C" name
  std::string_view fatbin;  ///< compressed: machine code for its GPUs, and PTX where the family has it
};

/// All of them, in the order of preference of the shipped specs. Empty when built without a CUDA toolkit.
std::span<const EmbeddedKernel> embedded_kernels();

/// The templates the library carries for run-time generation.
const TemplateFiles& embedded_templates();

/// The tables of tuned problems.
std::span<const BundledTable> embedded_tables();

}  // namespace attune
