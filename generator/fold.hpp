// The choices between lines that a template leaves to the generator.
#pragma once

#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/template_file.hpp"
#include "generator/variant.hpp"

namespace attune {

/// Which lines of a file the source of this variant has. Of
///
///     #if variant::ping_pong      or  #if !variant::ping_pong,
///                                     #if variant::stages == 2, #if variant::stages == variant::Q_stages (or !=)
///     #else
///     #endif
///
/// those of the branch that holds, without the directives. The same goes for `#ifdef __cplusplus`; what else the
/// preprocessor decides stays. A name that is no constant of the variant counts as false: naming it is an error of
/// its own, in whichever branch it stands.
Result<std::vector<bool>> fold(const TemplateFile& file, const Variant& variant);

}  // namespace attune
