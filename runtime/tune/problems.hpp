// The problems that are tuned, of any operation that tables have rows for.
#pragma once

#include "runtime/choice/tuned.hpp"

namespace attune::tune {

using AnyProblem = TunedProblem;

/// What a launch does: floating point operations, halved under the causal mask, of prefill and of gradients; bytes of
/// keys and values of decode.
double work_of(const AnyProblem& problem);

/// "TFLOP/s" or "GB/s" of so much work, and the number.
struct Speed {
  double value = 0;
  const char* unit = "";
};
Speed speed_of(const AnyProblem& problem, double seconds);

/// What a launch takes at about half of what kernels reach on a GPU, for plans that are made before anything is
/// measured.
double estimated_seconds(const AnyProblem& problem, const Device& device);

/// Which of `shards` parts, from 0, a problem belongs to: by a hash of its text, so that other problems matter nothing.
int shard_of(const AnyProblem& problem, int shards);

}  // namespace attune::tune
