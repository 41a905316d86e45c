// The files of kernel/, which the library carries: they are compiled around an emitted source.
#pragma once

#include "generator/emit.hpp"

namespace attune::emulator {

/// Their texts, by name ("bodies.hpp").
const TemplateFiles& embedded_seam();

}  // namespace attune::emulator
