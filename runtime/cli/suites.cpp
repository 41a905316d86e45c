#include "runtime/cli/suites.hpp"

#include <array>

namespace attune::cli {
namespace {

constexpr int tokens = 16384;  // in a batch
constexpr int hidden = 2048;   // heads x head_dim

/// One of FlashAttention's own shapes (arXiv 2307.08691): 16K tokens in a batch, a hidden size of 2048. Ragged: its
/// sequences are one after the other, though they are equally long.
Problem prefill_case(int head_dim, int seqlen, bool causal, bool ragged) {
  return {.dtype = Dtype::bf16,
          .batch = tokens / seqlen,
          .heads_q = hidden / head_dim,
          .heads_kv = hidden / head_dim,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .causal = causal,
          .ragged = ragged,
          .total_q = ragged ? tokens : 0,
          .total_k = ragged ? tokens : 0};
}

std::vector<tune::AnyProblem> prefill_cases(const std::vector<int>& head_dims, const std::vector<int>& seqlens,
                                            bool ragged) {
  std::vector<tune::AnyProblem> cases;
  for (const int head_dim : head_dims) {
    for (const int seqlen : seqlens) {
      for (const bool causal : {false, true}) {
        cases.emplace_back(tuned_problem(prefill_case(head_dim, seqlen, causal, ragged)));
      }
    }
  }
  return cases;
}

std::vector<tune::AnyProblem> gqa_cases() {
  constexpr std::array<std::array<int, 3>, 4> shapes{{{8, 32, 2048}, {2, 32, 8192}, {1, 32, 32768}, {1, 64, 16384}}};
  std::vector<tune::AnyProblem> cases;
  for (const auto& [batch, heads_q, seqlen] : shapes) {
    cases.emplace_back(tuned_problem(Problem{.dtype = Dtype::bf16,
                                             .batch = batch,
                                             .heads_q = heads_q,
                                             .heads_kv = 8,
                                             .seqlen_q = seqlen,
                                             .seqlen_k = seqlen,
                                             .head_dim = 128,
                                             .causal = true}));
  }
  return cases;
}

/// Of pages of page_size tokens; 0: the keys of a sequence are contiguous.
std::vector<tune::AnyProblem> decode_cases(int page_size) {
  constexpr std::array<std::array<int, 5>, 11> shapes{{{128, 1, 32, 8, 4096},
                                                       {128, 1, 32, 8, 32768},
                                                       {128, 1, 32, 8, 131072},
                                                       {128, 1, 32, 32, 32768},
                                                       {128, 8, 32, 8, 4096},
                                                       {128, 8, 32, 8, 32768},
                                                       {128, 64, 32, 8, 4096},
                                                       {128, 64, 64, 8, 8192},
                                                       {128, 128, 32, 8, 2048},
                                                       {128, 16, 16, 1, 16384},
                                                       {64, 16, 32, 8, 8192}}};
  std::vector<tune::AnyProblem> cases;
  for (const auto& [head_dim, batch, heads_q, heads_kv, seqlen_k] : shapes) {
    DecodeProblem problem{.dtype = Dtype::bf16,
                          .batch = batch,
                          .seqlen_q = 1,
                          .heads_q = heads_q,
                          .heads_kv = heads_kv,
                          .head_dim = head_dim,
                          .max_seqlen_k = seqlen_k,
                          .equal_lengths = true};
    if (page_size > 0) {
      problem.page_size = page_size;
      problem.table_width = seqlen_k / page_size;
    }
    cases.emplace_back(tuned_problem(problem));
  }
  return cases;
}

/// The cases of the Python benchmark's suite of that name, each with the same bits every time and in any order.
std::vector<tune::AnyProblem> backward_cases() {
  std::vector<Problem> shapes;
  for (const int head_dim : {64, 128}) {
    for (const int seqlen : {1024, 4096, 16384}) {
      for (const bool causal : {false, true}) shapes.push_back(prefill_case(head_dim, seqlen, causal, false));
    }
  }
  for (const bool causal : {false, true}) shapes.push_back(prefill_case(256, 4096, causal, false));
  Problem padded = prefill_case(96, 4096, true, false);
  padded.heads_q = padded.heads_kv = 16;
  shapes.push_back(padded);
  Problem grouped = prefill_case(128, 8192, true, false);
  grouped.heads_q = 32;
  grouped.heads_kv = 8;
  shapes.push_back(grouped);
  std::vector<tune::AnyProblem> cases;
  for (const Problem& shape : shapes) {
    for (const bool any_order : {false, true}) {
      cases.emplace_back(tuned_problem(BackwardProblem::of(shape, any_order)));
    }
  }
  return cases;
}

}  // namespace

std::vector<tune::AnyProblem> suite(const std::string& name) {
  if (name == "decode") return decode_cases(0);
  if (name == "paged") return decode_cases(64);
  if (name == "gqa") return gqa_cases();
  if (name == "backward") return backward_cases();
  if (name == "quick") return prefill_cases({64, 128}, {1024, 8192}, false);
  return prefill_cases({64, 128, 256}, {512, 1024, 2048, 4096, 8192, 16384}, name == "varlen");
}

std::vector<std::string> suite_names() { return {"quick", "prefill", "gqa", "varlen", "decode", "paged", "backward"}; }

std::string suite_help() {
  return "quick, prefill (36 shapes of 16K tokens), gqa (4), varlen (36), decode (11), paged (11) or backward (16 "
         "twice)";
}

}  // namespace attune::cli
