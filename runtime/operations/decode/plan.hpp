// Which kernels serve a decode problem, and the two launches that follow. The same for GPUs and for the emulator.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/call/device.hpp"
#include "runtime/call/fit.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune {

/// Everything the launches need besides pointers.
struct DecodePlan {
  Variant variant;
  Grid grid;  ///< tiles of all K/V heads x parts of a sequence, or a cluster of them, x batch; x parts of all x 1
  int threads = 0;
  int shared_bytes = 0;
  int splits = 0;            ///< parts of each sequence; 0: parts of the whole batch, whatever the lengths
  int parts = 0;             ///< of the keys, for each K/V head
  int slots = 0;             ///< places for the results of parts, for each K/V head
  bool evict_first = false;  ///< L2 had best give up keys and values before anything else
  int cuts = 0;              ///< where decode tells combine of sequences that parts of the batch share; 0: nowhere
  std::size_t workspace_bytes = 0;  ///< for them all
  Grid combine_grid;                ///< what a second kernel merges: sequences x K/V heads x rows; empty: no launch
  bool warp_rows = false;           ///< each of its warps has one of these rows; else a block has

  [[nodiscard]] bool combines() const { return combine_grid.blocks() > 0; }
};

/// Tiles of the same keys that run side by side, so that the second finds in L2 what the first reads; more read it
/// again.
inline constexpr int tiles_side_by_side = 2;

/// As prefill's: a cluster has no more parts than blocks.
std::vector<std::string> launch_refusals(const Variant& variant, const DecodeProblem& problem);

/// Thread blocks of a variant that a multiprocessor holds at a time, as far as shared memory, threads and an estimate
/// of registers decide.
int blocks_per_multiprocessor(const Variant& variant, const Device& device);

/// The bytes that the results of so many parts take, with the entries of `cuts` sequences.
std::size_t workspace_bytes(const DecodeProblem& problem, long long slots, long long cuts = 0);

/// The launch facts of one variant for one problem. Throws Error{ATTUNE_UNSUPPORTED} when no grid can hold it.
DecodePlan plan(const Variant& variant, const DecodeProblem& problem, const Device& device);

/// Whether a plan of whole sequences, or of parts that clusters merge, leaves so many multiprocessors without a block
/// that keys are read at less than the GPU's speed, for longer than merging more parts would take.
bool leaves_idle(const DecodePlan& plan, const DecodeProblem& problem, const Device& device);

/// The grid of that kernel.
Grid combine_grid(const DecodePlan& plan, const Variant& combine);

/// A plan that has the launch's tiles, with so many parts of the whole batch, as plan() gives it for GPUs that hold so
/// many.
DecodePlan with_parts(DecodePlan plan, const DecodeProblem& problem, const Device& device, long long parts);

}  // namespace attune
