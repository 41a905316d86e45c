// Into how many parts the keys of a decode problem fall, where the caller leaves that to the library.
#pragma once

#include "runtime/call/device.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune {

/// Blocks of a cluster, on every GPU that has clusters (CUDA programming guide 13, "Compute Capabilities").
inline constexpr int most_in_cluster = 8;

/// Whether kernels can count the blocks of all keys of the batch one after the other, which they do in 32 bits.
bool is_countable(const Variant& variant, const DecodeProblem& problem);

/// As many parts of the whole batch as keep the GPU full. Where there are more parts than sequences each sequence has
/// as many, so that those of one length end where parts do.
long long parts_of_batch(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles);

/// For sequences of one length; 0: parts of the whole batch.
int equal_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles);

/// As many parts as make a cluster, a power of two. A cluster lives within a group of multiprocessors (GPC), of which
/// those of four and eight blocks fill ten elevenths on an H200 (cudaOccupancyMaxActiveClusters).
int cluster_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles);

/// Whether sequences whose lengths the device alone knows are too short to be parted: so that each is a block's, which
/// spares the search for where parts begin, and a second kernel. On an H200, of up to four steps of keys 5 to 40%
/// faster whatever the lengths; of up to eight as well, but for one such sequence among few short ones.
bool stays_whole(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles);

/// Whether so many blocks of whole sequences, or of parts that clusters merge, leave so many multiprocessors without
/// one that keys are read at less than the GPU's speed, for longer than merging more parts, of so many keys, would
/// take.
bool leaves_idle(const Variant& variant, const DecodeProblem& problem, const Device& device, long long blocks,
                 long long keys);

}  // namespace attune
