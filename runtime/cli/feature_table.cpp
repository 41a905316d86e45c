#include "runtime/cli/feature_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <utility>

#include "runtime/call/expressions.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/operations.hpp"

namespace attune::cli {
namespace {

/// The name of the template that serves a problem there; empty where none does.
template <class OneProblem>
std::string server_of(const OneProblem& problem, const Device& device) {
  if (!problems_of(problem).empty()) return "";
  const OwnChoice own = choose_own(problem, device);
  return own.refusals.empty() ? std::string(family_of(own.variant).name) : "";
}

Device gpu_of(std::string_view arch) { return device_of(*find_arch(arch)); }

template <class OneProblem>
FeatureRow row_of(const std::string& feature, const OneProblem& problem, const std::string& limits) {
  return {.feature = feature,
          .on_sm80 = server_of(problem, gpu_of("sm_80")),
          .on_sm90 = server_of(problem, gpu_of("sm_90")),
          .in_emulator = server_of(problem, emulator::device()),
          .limits = limits};
}

/// "8 to 256 by 8": the values up to `most` that a field of a problem may have in the emulator, which runs the kernels
/// of all GPUs. "1 or more" where `most` is one of them.
template <class OneProblem, class Change>
std::string range_of(const OneProblem& problem, int most, const Change& change) {
  std::vector<int> served;
  for (int value = 1; value <= most; ++value) {
    OneProblem changed = problem;
    change(changed, value);
    if (!server_of(changed, emulator::device()).empty()) served.push_back(value);
  }
  if (served.empty()) return "none";
  if (served.back() == most) return fmt::format("{} or more", served.front());
  const int step = served.size() > 1 ? served[1] - served[0] : 1;
  return fmt::format("{} to {}{}", served.front(), served.back(), step == 1 ? "" : fmt::format(" by {}", step));
}

/// ALiBi, for one of all the expressions that there are.
CallExpressions slopes() { return read_expressions({.score = "s + slope[h] * (k - p) where slope: fp32[head]"}); }

/// The same beside sinks.
CallExpressions slopes_and_sinks() {
  CallExpressions result = slopes();
  result.sink = 1;
  return result;
}

Problem usual_prefill() {
  return {.batch = 2, .heads_q = 8, .heads_kv = 2, .seqlen_q = 1024, .seqlen_k = 1024, .head_dim = 128};
}

void add_prefill(std::vector<FeatureRow>& rows) {
  const auto add = [&](const char* feature, auto change, const std::string& limits) {
    Problem problem = usual_prefill();
    change(problem);
    rows.push_back(row_of(feature, problem, limits));
  };
  const auto unchanged = [](Problem& /*problem*/) {};
  const std::string head_dims =
      range_of(usual_prefill(), 512, [](Problem& problem, int value) { problem.head_dim = value; });
  add("prefill, full attention", unchanged,
      fmt::format("{}; head_dim {}", fmt::join(accepted_words(*find_field("dtype")), ", "), head_dims));
  add(
      "prefill, causal mask", [](Problem& problem) { problem.causal = true; }, "aligned to the bottom right");
  const auto windowed = [](Problem& problem) {
    problem.window_left = 100;
    problem.softcap = 30;
  };
  add("prefill, window, soft cap on scores", windowed, "left and right bound");
  const auto expressed = [](Problem& problem) { problem.expressions = slopes_and_sinks(); };
  add("prefill, any score or mask as an expression; ALiBi; sinks", expressed, "");
  add(
      "prefill, grouped or multi-query heads", [](Problem& problem) { problem.heads_kv = 1; },
      "heads_kv divides heads_q");
  add(
      "prefill, dropout of weights", [](Problem& problem) { problem.dropout = true; },
      "the same mask in every kernel: Philox, by place");
  const auto other_value_dim = [](Problem& problem) {
    problem.head_dim = 192;
    problem.head_dim_v = 128;
  };
  add("prefill, V with a head_dim of its own", other_value_dim, "e.g. 192 and 128");
  const auto ragged = [](Problem& problem) {
    problem.ragged = true;
    problem.total_q = problem.total_k = 1500;
  };
  add("prefill, ragged batch (cu_seqlens)", ragged, "");
  const auto paged = [](Problem& problem) {
    problem.page_size = 16;
    problem.paged = true;
    problem.table_width = 64;
    problem.pages = 128;
  };
  Problem in_pages = usual_prefill();
  paged(in_pages);
  add("prefill, keys in pages", paged,
      fmt::format("page_size {}", range_of(in_pages, 300, [](Problem& problem, int value) {
                    problem.page_size = value;
                    problem.table_width = problem.seqlen_k;
                  })));
}

DecodeProblem usual_decode() {
  DecodeProblem problem{.batch = 2, .heads_q = 8, .heads_kv = 2, .head_dim = 128, .max_seqlen_k = 1000};
  problem.page_size = problem.max_seqlen_k;
  problem.pages = problem.batch;
  return problem;
}

void add_decode(std::vector<FeatureRow>& rows) {
  const auto add = [&](const char* feature, auto change, const std::string& limits) {
    DecodeProblem problem = usual_decode();
    change(problem);
    rows.push_back(row_of(feature, problem, limits));
  };
  const std::string queries =
      range_of(usual_decode(), 64, [](DecodeProblem& problem, int value) { problem.seqlen_q = value; });
  const std::string ratios = range_of(usual_decode(), 1024, [](DecodeProblem& problem, int value) {
    problem.heads_q = value;
    problem.heads_kv = 1;
  });
  add(
      "decode, contiguous cache", [](DecodeProblem& /*problem*/) {},
      fmt::format("{} queries a sequence; heads_q / heads_kv {}", queries, ratios));
  const auto paged = [](DecodeProblem& problem, int page_size) {
    problem.page_size = page_size;
    problem.table_width = problem.max_seqlen_k;
    problem.pages = problem.batch * problem.table_width;
  };
  add(
      "decode, cache in pages", [&](DecodeProblem& problem) { paged(problem, 16); },
      fmt::format("page_size {}", range_of(usual_decode(), 300, paged)));
  const auto windowed = [](DecodeProblem& problem) {
    problem.window_left = 100;
    problem.softcap = 30;
  };
  add("decode, window, soft cap on scores", windowed, "left and right bound");
  const auto expressed = [](DecodeProblem& problem) { problem.expressions = slopes_and_sinks(); };
  add("decode, any score or mask as an expression; ALiBi; sinks", expressed, "");
  const auto ragged = [](DecodeProblem& problem) {
    problem.seqlen_q = 4;
    problem.ragged = true;
    problem.total_q = 5;
  };
  add("decode, sequences with different numbers of queries", ragged, "appends no keys");
  const auto appending = [](DecodeProblem& problem) {
    problem.seqlen_new = 1;
    problem.rotary = Rotary::halves;
    problem.rotary_dim = 64;
    problem.rotations = 1000;
  };
  add("decode, new keys appended and rotated by the call", appending, "interleaved pairs, or halves");
}

void add_backward(std::vector<FeatureRow>& rows) {
  const auto add = [&](const char* feature, auto change, const std::string& limits) {
    BackwardProblem problem{.batch = 2, .heads_q = 8, .heads_kv = 2, .seqlen_q = 1024, .seqlen_k = 1024};
    change(problem);
    rows.push_back(row_of(feature, problem, limits));
  };
  const auto masked = [](BackwardProblem& problem) {
    problem.causal = true;
    problem.expressions = slopes();
  };
  add("gradients, with any of prefill's masks; scores that only add to s, ALiBi; sinks", masked,
      "the same bits each time, or faster; no pages");
  add(
      "gradients, dropout of weights", [](BackwardProblem& problem) { problem.dropout = true; }, "prefill's mask");
  const auto ragged = [](BackwardProblem& problem) {
    problem.ragged = true;
    problem.total_q = problem.total_k = 1500;
  };
  add("gradients, ragged batch (cu_seqlens)", ragged, "");
}

/// What no template computes. tests/python/test_functions.py and tests/cli/spec_from_models.cpp hold the callers that
/// ask for it to a refusal by name.
constexpr std::array not_served{
    std::pair{"fp8, fp32", ""},
};

}  // namespace

std::vector<FeatureRow> feature_rows() {
  std::vector<FeatureRow> rows;
  add_prefill(rows);
  add_backward(rows);
  add_decode(rows);
  const StoreProblem store{.tokens = 4, .heads_kv = 2, .page_size = 16, .pages = 4, .table_width = 2};
  rows.push_back(row_of("write keys and values into a cache", store, "by slots, or after those there"));
  rows.push_back(row_of("merge two results over different keys", MergeProblem{}, ""));
  rows.push_back(row_of("rotate queries and keys in place", RotaryProblem{}, "interleaved pairs, or halves"));
  for (const auto& [feature, limits] : not_served) rows.push_back({feature, "", "", "", limits});
  return rows;
}

std::string feature_markdown(const std::vector<FeatureRow>& rows) {
  std::string text = "| | 8.0 and newer | 9.0 | emulator | limits |\n|---|---|---|---|---|\n";
  for (const FeatureRow& row : rows) {
    text += fmt::format("| {} ", row.feature);
    for (const std::string& server : {row.on_sm80, row.on_sm90, row.in_emulator})
      text += fmt::format("| {} ", server.empty() ? "–" : server);
    text += row.limits.empty() ? "| |\n" : fmt::format("| {} |\n", row.limits);
  }
  return text;
}

}  // namespace attune::cli
