// Running decode kernels, and the kernels that merge their parts, on problems whose answers the reference knows.
#pragma once

#include <vector>

#include "runtime/cli/decode_trial.hpp"
#include "runtime/cli/verify.hpp"

namespace attune::cli {

/// The kernels that merge what the decode kernels among these sources leave, one for each dtype and head_dim.
std::vector<Source> merging_sources(const std::vector<Source>& sources, const Device& device);

/// The one among the built merging kernels that goes with a decode kernel; null where it did not compile.
const Built* merging_kernel(const std::vector<Built>& merging, const Variant& decode);

Verdict verify(const Gpu& gpu, const Built& decode, const Built& merge, const std::vector<DecodeTrial>& trials,
               std::uint64_t seed, const OnTried& on_tried = {});

/// The same in the emulator, for what the host's compiler built; the seed is that of the inputs too.
Verdict verify(const Built& decode, const Built& merge, const std::vector<DecodeTrial>& trials, const EmulatedRun& how,
               const OnTried& on_tried = {});

}  // namespace attune::cli
