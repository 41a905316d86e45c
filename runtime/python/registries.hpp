// The registries of this process, one for each device that kernels run on.
#pragma once

#include "attune/attune.h"

namespace attune::python {

/// The GPU's registry or the emulator's, made on first use with the compile policy that $ATTUNE_COMPILE names. It is
/// never destroyed: work that it launched may still run when the process ends. Throws Error.
attune_registry* registry_of(bool emulator);

/// attune_registry_finish() of those that are open. Throws Error.
void finish();

}  // namespace attune::python
