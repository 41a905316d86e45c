// The files through which the build compiles kernels and links them, and texts, into libattune.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "generator/emit.hpp"

namespace attune {

/// -gencode options for a variant: machine code for 8.0 and 9.0 and PTX for newer GPUs when it is for any GPU,
/// else machine code for each GPU of its set, or for the one that its family runs on.
std::string gencode_options(const Variant& variant);

/// A ninja file that compiles NAME.cu to the compressed NAME.fatbin, for every source.
std::string kernels_ninja(std::span<const Source> sources, std::string_view nvcc);

/// C++ that defines attune::embedded_kernels() of runtime/embedded.hpp.
std::string kernel_table(std::span<const Source> sources);

/// Assembly that holds the NAME.fatbin files, found in the include path.
std::string kernel_blobs(std::span<const Source> sources);

/// C++ that defines a function returning these files: its qualified name ("attune::embedded_templates") and the header
/// that declares it.
std::string text_table(const TemplateFiles& files, std::string_view function, std::string_view header);

}  // namespace attune
