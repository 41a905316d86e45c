// What the build put into the library: a bundle and templates.
#pragma once

#include <span>
#include <string_view>

#include "generator/bundle.hpp"
#include "generator/emit.hpp"
#include "runtime/bundle/ready_kernel.hpp"

namespace attune {

/// All of its kernels, in the order of preference of the shipped specs. Empty when built without a CUDA toolkit. In a
/// wheel they lie in one file, which the module, the library and the tool beside it read.
std::span<const ReadyKernel> embedded_kernels();

/// The templates the library carries for run-time generation.
const TemplateFiles& embedded_templates();

/// Changes whenever a file of the generator or of templates/ does: beside a variant's values all that its source
/// follows from.
std::string_view generation_digest();

/// The tables of tuned problems.
std::span<const BundledTable> embedded_tables();

}  // namespace attune
