// The registries of this process, one for each device that kernels run on.
#pragma once

#include "attune/attune.h"

namespace attune::python {

/// The GPU's registry or the emulator's, made on first use with the compile policy that $ATTUNE_COMPILE names. It is
/// never destroyed: work that it launched may still run when the process ends. Throws Error.
attune_registry* registry_of(bool emulator);

/// Ends what is compiled in the background, before the process does. Throws Error.
void stop_background();

}  // namespace attune::python
