// The expressions of a call: what its texts and arrays have to be.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/tuned.hpp"
#include "runtime/choice/tuned_distance.hpp"
#include "runtime/lab/arguments.hpp"
#include "runtime/operations/prefill/arguments.hpp"

namespace attune {
namespace {

constexpr const char* alibi = "s + slope[h] * (k - p) where slope: fp32[head]";
constexpr const char* documents = "document[b, p] == document[b, k] where document: int32[batch, position]";

/// A call of 2 sequences, 4 heads and 8 keys with both arrays.
struct Call {
  alignas(16) std::array<std::uint16_t, 2 * 8 * 4 * 64> tensor{};
  alignas(16) std::array<float, 16> array{};
  std::array<attune_named_array, 2> params{
      {{.name = "slope", .data = array.data(), .element = ATTUNE_FP32, .rank = 1, .extents = {4}},
       {.name = "document", .data = array.data(), .element = ATTUNE_INT32, .rank = 2, .extents = {2, 8}}}};
  attune_prefill_args args =
      arguments_of(Problem{.batch = 2, .heads_q = 4, .heads_kv = 4, .seqlen_q = 3, .seqlen_k = 8, .head_dim = 64});

  Call() {
    args.q = args.k = args.v = args.o = {tensor.data(), 8 * 4 * 64, 4 * 64, 64};
    args.score = alibi;
    args.mask = documents;
    args.params = params.data();
    args.param_count = 2;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] std::string error() const {
    try {
      check_arguments(args);
    } catch (const Error& error) {
      CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("a call's expressions are part of its problem and of what it asks of a kernel") {
  Call call;
  const Problem problem = check_arguments(call.args);
  CHECK(problem.expressions.any());
  CHECK(problem.text() ==
        "bf16 d64 b2 hq4 hk4 lq3 lk8 score (s + slope[h] * real(k - p) where slope: fp32[head]) mask (" +
            std::string(documents) + ")");
  CHECK(problem.ask().need.score == problem.expressions.score);
  call.args.score = "s+slope[h]*(k-p)where slope:fp32[head]";  // the same
  CHECK(check_arguments(call.args) == problem);
  call.args.mask = nullptr;
  CHECK(check_arguments(call.args).expressions.mask == 0);
  call.args.struct_size = offsetof(attune_prefill_args, score);  // a caller who knows of none
  CHECK(!check_arguments(call.args).expressions.any());
}

TEST_CASE("a sink is part of a call's problem and of what it asks of a kernel, where the caller knows of it") {
  Call call;
  call.args.score = call.args.mask = nullptr;
  CHECK(!check_arguments(call.args).expressions.any());
  call.args.sink = call.array.data();
  const Problem problem = check_arguments(call.args);
  CHECK(problem.text() == "bf16 d64 b2 hq4 hk4 lq3 lk8 sink");
  CHECK(problem.ask().need.sink == 1);
  for (const char* arch : {"sm_80", "sm_90"}) {
    const OwnChoice own = choose_own(problem, device_of(*find_arch(arch)));
    CHECK(own.refusals.empty());
    CHECK(own.variant.sink == 1);
    CHECK(own.variant.name().find("_sink") != std::string::npos);
  }
  call.args.sink = reinterpret_cast<const char*>(call.array.data()) + 2;
  CHECK(call.error().starts_with("sink is "));
  call.args.sink_like_q = 1;
  CHECK(call.error().empty());
  call.args.sink_like_q = 2;
  CHECK(call.error() == "sink_like_q is 2; it must be 0 or 1");
  call.args.sink_like_q = 1;
  call.args.sink = reinterpret_cast<const char*>(call.array.data()) + 1;
  CHECK(call.error().starts_with("sink is "));
  call.args.struct_size = offsetof(attune_prefill_args, sink_like_q);  // a caller who knows of fp32 alone
  call.args.sink = reinterpret_cast<const char*>(call.array.data()) + 2;
  CHECK(call.error().starts_with("sink is "));
  call.args.struct_size = offsetof(attune_prefill_args, sink);
  CHECK(!check_arguments(call.args).expressions.any());
}

TEST_CASE("what is wrong with a call's expressions and arrays is named") {
  Call call;
  CHECK(call.error().empty());
  call.args.score = "s + slop";
  CHECK(call.error().starts_with("score:1:5: there is no name slop"));
  call.args.score = alibi;
  call.args.param_count = 1;
  CHECK(call.error() == "params: document is missing; document: int32[batch, position]");
  call.args.param_count = 2;
  call.args.params = nullptr;
  CHECK(call.error() == "param_count is 2, and params is null");
  call.args.params = call.params.data();
  call.params[0].extents[0] = 5;
  CHECK(call.error() == "params: extent 0 of slope is 5; it must be 4, its head");
  call.params[0].extents[0] = 4;
  call.params[0].element = ATTUNE_INT32;
  CHECK(call.error() == "params: slope has elements of another type; slope: fp32[head]");
  call.params[0].element = ATTUNE_FP32;
  call.params[0].data = nullptr;
  CHECK(call.error() == "params: slope is null");
  call.params[0].data = reinterpret_cast<const char*>(call.array.data()) + 2;
  CHECK(call.error().starts_with("slope is "));
  call.params[0].data = call.array.data();
  call.params[1].extents[1] = 7;
  CHECK(call.error() == "params: extent 1 of document is 7; it must be at least 8, its position");
  call.params[1].extents[1] = 9;  // more positions than there are keys
  CHECK(call.error().empty());
  call.params[1].rank = 1;
  CHECK(call.error() == "params: document has rank 1; document: int32[batch, position]");
  call.params[1].rank = 2;
  call.args.mask = "slope[h] == 1 where slope: int32[head]";
  CHECK(call.error().starts_with("params: the score has slope: fp32[head], the mask slope: int32[head]"));
}

TEST_CASE("a kernel that a table of tuned problems names serves with a problem's expressions, not without") {
  Need need{.head_dim = 64, .causal = 1};
  TunedRow row;
  row.result.variant = families()[prefill_sm90].defaults;
  row.result.variant.causal = row.result.variant.tile_list = 1;
  row.result.variant.head_dim = 64;
  CHECK(variant_for(row, need) == row.result.variant);
  const Call call;
  const CallExpressions expressions = check_arguments(call.args).expressions;
  need.score = expressions.score;
  const Variant served = variant_for(row, need);
  CHECK(served.score == need.score);
  CHECK(served.tile_list == 1);
  CHECK(meets(served, need));
  need.mask = expressions.mask;
  const Variant masked = variant_for(row, need);
  CHECK(masked.mask == need.mask);
  CHECK(masked.tile_list == 0);
  CHECK(meets(masked, need));
}

TEST_CASE("a row of longer blocks than usual does not answer for windows with first tokens, for other masks it does") {
  const Device device = device_of(*find_arch("sm_90"));
  TunedTable table{.gpu = tuned_gpu(device), .rows = {}};
  TunedRow row;
  Problem problem{.heads_q = 16, .heads_kv = 16, .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = 128, .causal = true};
  row.problem = problem;
  row.result.variant = families()[prefill_sm90].defaults;
  row.result.variant.causal = 1;
  row.result.variant.B_c = 160;
  row.result.variant.Q_columns_in_registers = 48;
  table.rows.push_back(row);
  const TunedRows rows(table, device);
  CHECK(rows.match(problem).applies);
  const auto with_mask = [&](const char* text) {
    Call call;
    call.args.score = nullptr;
    call.args.mask = text;
    call.args.param_count = 0;
    Problem masked = problem;
    masked.expressions = check_arguments(call.args).expressions;
    return masked;
  };
  CHECK(rows.match(with_mask("k % 3 != 1")).applies);
  CHECK(rows.match(with_mask("p - k < 1024 or k < 4")).reason.find("refused: B_c: a query sees few keys") !=
        std::string::npos);
}

}  // namespace attune
