// The template engine: banner, constants, the blocks a kernel uses, the kernel.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"

namespace attune {

/// The files of templates/, by path relative to it ("blocks/softmax.cuh").
using TemplateFiles = std::map<std::string, std::string, std::less<>>;

/// Reads every .cu, .cuh, .h and .hpp below a templates folder.
Result<TemplateFiles> read_templates(const std::filesystem::path& folder);

/// One self-contained CUDA source.
struct Source {
  Variant variant;
  std::string name;  ///< of the variant, the file's stem and the kernel's extern "C" name
  std::string text;
};

/// Emits the source of one variant: same bytes on every machine. `spec` names where the variant came
/// from, for the banner. Of what a template chooses by #if only the branch that holds is emitted (fold.hpp), and
/// wgmma's operand lists are written for the variant (wgmma.hpp). Problems (an unknown include or constant, a knob the
/// template never uses) carry the template's file and line.
Result<Source> emit(const Variant& variant, const TemplateFiles& templates, std::string_view spec);

/// The flags both compilers get, architecture apart: "-std=c++20" ...
std::vector<std::string> compile_flags();

}  // namespace attune
