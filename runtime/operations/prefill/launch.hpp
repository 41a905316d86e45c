// A planned call on the GPU: the parameter block that its kernel reads, and the launch.
#pragma once

#include "runtime/gpu/driver.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"
#include "templates/params.h"

namespace attune {

/// Launches the kernel of the plan's variant on the stream. Tensor maps are encoded here; this thread's last ones are
/// kept, as calls on the same tensors repeat. The workspace is free again behind the launch. Throws Error.
void launch(const Driver& driver, KernelHandle kernel, const Plan& plan, const AttunePrefillParams& params,
            const Workspace& workspace, void* stream);

}  // namespace attune
