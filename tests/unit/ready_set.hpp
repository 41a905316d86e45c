// Kernels that are ready, for tests of the registry over the fake driver, which takes any image.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "generator/check.hpp"
#include "tests/harness/needs.hpp"
#include "tests/unit/registry_bench.hpp"

namespace attune::registry_tests {

class ReadySet {
 public:
  explicit ReadySet(const std::vector<Variant>& variants) {
    for (const Variant& variant : variants) {
      names_.push_back(variant.name());
      kernels_.push_back({.variant = variant, .name = names_.back(), .fatbin = "an image that the fake takes"});
    }
  }
  ReadySet(const ReadySet&) = delete;
  ReadySet& operator=(const ReadySet&) = delete;

  [[nodiscard]] ReadyKernels kernels() const { return ReadyKernels(kernels_); }

 private:
  std::deque<std::string> names_;
  std::vector<ReadyKernel> kernels_;
};

inline Variant prefill_variant(int head_dim, bool causal = true, Dtype dtype = Dtype::bf16) {
  return default_variant(prefill_sm80, need_for(dtype, head_dim, causal), 227 * 1024);
}

/// Whether NVRTC is here; says so where it is not.
inline bool can_compile() {
  try {
    const Compiler compiler;
    return true;
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return false;
  }
}

/// Waits until nothing is compiled in the background any more; a minute at most.
inline attune_counters settled(const Registry& registry) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  attune_counters counters = registry.counters();
  while (counters.pending > 0 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    counters = registry.counters();
  }
  REQUIRE(counters.pending == 0);
  return counters;
}

/// What a registry logs.
class LogLines {
 public:
  [[nodiscard]] Log log() {
    return [this](attune_log_level level, const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(level, line);
    };
  }
  [[nodiscard]] std::vector<std::string> of(attune_log_level level) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> result;
    for (const auto& [its_level, line] : lines_) {
      if (its_level == level) result.push_back(line);
    }
    return result;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<attune_log_level, std::string>> lines_;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A small causal call whose pointers nobody follows.
inline attune_prefill_args prefill_args(int head_dim, int heads_q = 8, int heads_kv = 2) {
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = ATTUNE_BF16;
  const auto tensor = [&](std::uintptr_t at, int seqlen, int heads) {
    return attune_tensor{address(at), std::int64_t{seqlen} * heads * head_dim, std::int64_t{heads} * head_dim,
                         head_dim};
  };
  args.q = tensor(0x1000, 300, heads_q);
  args.k = tensor(0x2000, 500, heads_kv);
  args.v = tensor(0x3000, 500, heads_kv);
  args.o = tensor(0x4000, 300, heads_q);
  args.batch = 3;
  args.seqlen_q = 300;
  args.seqlen_k = 500;
  args.heads_q = heads_q;
  args.heads_kv = heads_kv;
  args.head_dim = head_dim;
  args.softmax_scale = 0.5F;
  args.causal = 1;
  return args;
}

}  // namespace attune::registry_tests
