// What kernels with dropout are told beside their parameters; part of the same ATTUNE_PARAMS_ABI.
#pragma once

// Which weights are kept follows from the seed, the offset and where a weight is (blocks/weight_dropout.cuh).
struct AttuneDropout {
  const long long* state;  // seed and offset in device memory; null: those below
  long long seed;
  long long offset;
  unsigned kept;  // of 256 bytes of random bits those below it keep a weight: 1 to 256
  float scale;    // of what is kept: 256 / kept
};

// A kernel's parameters with it.
template <class Params>
struct WithDropout : Params {
  AttuneDropout dropout;
};
