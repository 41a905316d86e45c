// Tables of tuned problems for tests; nobody measured them.
#pragma once

#include <filesystem>
#include <string>

#include "generator/check.hpp"
#include "runtime/base/files.hpp"
#include "runtime/choice/tuned.hpp"

namespace attune::tuned_tests {

inline const TunedGpu h200{.name = "NVIDIA H200", .capability = 90, .multiprocessors = 132};

inline TunedResult result_of(const Variant& variant) {
  return {.variant = variant,
          .microseconds = 412.25,
          .default_microseconds = 430.5,
          .confidence = 0.99,
          .date = "2026-11-22",
          .driver = "580.95",
          .compiler = "NVRTC 13.0"};
}

/// bf16, 32 query and 8 K/V heads of 128, causal.
inline Problem prefill(int batch, int seqlen) {
  return {.dtype = Dtype::bf16,
          .batch = batch,
          .heads_q = 32,
          .heads_kv = 8,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = 128,
          .causal = true};
}

inline DecodeProblem decode(int batch, int seqlen_k) {
  return tuned_problem(
      DecodeProblem{.batch = batch, .heads_q = 32, .heads_kv = 8, .head_dim = 128, .max_seqlen_k = seqlen_k});
}

/// The gradients of prefill(), with the same bits every time or not.
inline BackwardProblem backward(int batch, int seqlen, bool any_order = false) {
  return BackwardProblem::of(prefill(batch, seqlen), any_order);
}

/// The kernel for gradients of keys and values that the heuristic would not take for a head_dim of 128.
inline Variant backward_variant(bool any_order) {
  Variant variant = families()[backward_sm90].defaults;
  variant.causal = 1;
  variant.B_c = 64;
  variant.deterministic = any_order ? 0 : 1;
  return variant;
}

inline Variant sm90(int B_r, int B_c) {
  Variant variant = families()[prefill_sm90].defaults;
  variant.causal = 1;
  variant.B_r = B_r;
  variant.B_c = B_c;
  return variant;
}

inline Variant sm80(int B_r, int B_c) {
  Variant variant = families()[prefill_sm80].defaults;
  variant.causal = 1;
  variant.B_r = B_r;
  variant.B_c = B_c;
  return variant;
}

inline Variant decode_variant(int B_c) {
  Variant variant = families()[decode_sm80].defaults;
  variant.B_c = B_c;
  return variant;
}

/// Some rows of every kind.
inline TunedTable table_of(const TunedGpu& gpu = h200) {
  TunedTable table{.gpu = gpu, .rows = {}};
  table.put({prefill(4, 4096), result_of(sm80(128, 64))});
  table.put({prefill(1, 16384), result_of(sm80(128, 32))});
  Problem window = prefill(2, 2048);
  set_window(window, 255, 0);
  Variant windowed = sm80(64, 64);
  windowed.causal = 0;
  windowed.window = 1;
  table.put({tuned_problem(window), result_of(windowed)});
  table.put({decode(8, 32768), result_of(decode_variant(64))});
  if (gpu.capability == h200.capability) table.put({backward(2, 4096), result_of(backward_variant(false))});
  return table;
}

/// A file of this text in a folder.
inline std::filesystem::path written(const ScratchFolder& folder, const std::string& name, const std::string& text) {
  std::filesystem::path file = folder.path() / name;
  write_file(file, text);
  return file;
}

}  // namespace attune::tuned_tests
