// The files through which the build links texts into libattune.
#pragma once

#include <string>
#include <string_view>

#include "generator/emit.hpp"

namespace attune {

/// C++ that defines a function returning these files: its qualified name ("attune::embedded_templates") and the header
/// that declares it.
std::string text_table(const TemplateFiles& files, std::string_view function, std::string_view header);

}  // namespace attune
