// One attention call on the GPU through the C ABI, in any layout, surrounded by poison, and its comparison with the
// float64 reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/cli/gpu.hpp"
#include "runtime/problem.hpp"
#include "runtime/reference.hpp"

namespace attune::gpu_tests {

/// How a tensor batch x seqlen x heads x head_dim lies in memory.
enum class Layout {
  bshd,    ///< batch, seqlen, heads, head_dim
  bhsd,    ///< batch, heads, seqlen, head_dim
  packed,  ///< Q, K and V side by side in one buffer of batch x seqlen x (heads_q + 2 heads_kv) x head_dim
  gaps,    ///< BSHD with unused memory after every row, every position and every sequence
};

std::string name_of(Layout layout);

/// Strides in elements and the place of the first one in its buffer.
struct Placement {
  std::size_t first = 0;
  std::int64_t stride_batch = 0;
  std::int64_t stride_seq = 0;
  std::int64_t stride_head = 0;
};

/// The GPU under test; main() has made sure that there is one.
const cli::Gpu& gpu();

/// A registry of the C ABI that goes when this goes.
class TestRegistry {
 public:
  explicit TestRegistry(attune_compile_policy policy = ATTUNE_COMPILE_MISSING);
  ~TestRegistry();
  TestRegistry(const TestRegistry&) = delete;
  TestRegistry& operator=(const TestRegistry&) = delete;

  [[nodiscard]] attune_registry* get() const { return registry_; }

 private:
  attune_registry* registry_ = nullptr;
};

/// A problem in device memory. Every element that is not Q, K or V is NaN, O and LSE included.
class TestCall {
 public:
  TestCall(const Problem& problem, Layout layout, std::uint64_t seed);

  /// The arguments of the call; a test may change scalars before run().
  attune_prefill_args args{};

  /// Launches and waits; the status of the launch.
  attune_status run(const TestRegistry& registry, void* stream = nullptr) const;

  struct Output {
    std::vector<std::uint16_t> o;  ///< contiguous, batch x seqlen_q x heads_q x head_dim
    std::vector<float> lse;
    bool surroundings_intact = true;  ///< nothing but O and LSE was written
    bool operator==(const Output&) const;
  };
  [[nodiscard]] Output fetch() const;

  /// Puts the poison back.
  void poison() const;

  /// Against the float64 reference, with the tolerance that the naive formula sets.
  [[nodiscard]] Comparison compare_with_reference(const Output& output) const;

 private:
  Problem problem_;
  Placement q_;
  Placement k_;
  Placement v_;
  Placement o_;
  std::vector<std::uint16_t> host_in_;  // the buffer that holds Q, K and V; placing them fills q_, k_ and v_
  std::size_t o_elements_;              // of O's buffer; fills o_
  cli::DeviceBuffer in_;
  cli::DeviceBuffer out_;
  cli::DeviceBuffer lse_;
};

/// Runs one call and checks everything a correct one fulfils.
void check_call(const TestRegistry& registry, const Problem& problem, Layout layout, std::uint64_t seed);

}  // namespace attune::gpu_tests
