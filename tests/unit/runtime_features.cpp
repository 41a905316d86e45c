// Windows, soft caps and ragged batches from a call's arguments to the variant that serves it and its parameter block.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "attune/attune.hpp"
#include "generator/check.hpp"
#include "runtime/base/division.hpp"
#include "runtime/base/error.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/explain.hpp"
#include "runtime/execute/emulator_executor.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "tests/harness/needs.hpp"

using namespace attune;

namespace {

const Device h200 = device_of(*find_arch("sm_90"));

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }
const std::int32_t* array(std::uintptr_t value) { return static_cast<const std::int32_t*>(address(value)); }

/// Arguments with nothing wrong; the pointers are never followed.
attune_prefill_args good_args() {
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = ATTUNE_BF16;
  args.batch = 2;
  args.seqlen_q = 100;
  args.seqlen_k = 200;
  args.heads_q = 8;
  args.heads_kv = 2;
  args.head_dim = 128;
  args.softmax_scale = 0.125F;
  args.q = api::bshd(address(0x1000), 100, 8, 128);
  args.k = api::bshd(address(0x2000), 200, 2, 128);
  args.v = api::bshd(address(0x3000), 200, 2, 128);
  args.o = api::bshd(address(0x4000), 100, 8, 128);
  return args;
}

attune_prefill_args ragged_args() {
  attune_prefill_args args = good_args();
  args.cu_seqlens_q = array(0x5000);
  args.cu_seqlens_k = array(0x6000);
  args.seqused_k = array(0x7000);
  args.seqused_q = array(0x9000);
  args.total_q = 150;
  args.total_k = 333;
  return args;
}

attune_prefill_args paged_args() {
  attune_prefill_args args = good_args();
  args.seqused_k = array(0x7000);
  args.block_table = array(0x8000);
  args.table_width = 13;
  args.pages = 30;
  args.page_size = 16;
  args.k = api::bhsd(address(0x2000), 16, 2, 128);
  args.v = api::bhsd(address(0x3000), 16, 2, 128);
  return args;
}

attune_prefill_args with_window(int left, int right) {
  attune_prefill_args args = good_args();
  args.window = 1;
  args.window_left = left;
  args.window_right = right;
  return args;
}

Problem windowed(int left, int right, bool causal = false) {
  Problem problem{.heads_q = 8, .heads_kv = 2, .seqlen_q = 1000, .seqlen_k = 2000, .causal = causal};
  set_window(problem, left, right);
  return problem;
}

Problem capped() {
  Problem problem = windowed(-1, -1);
  problem.softcap = 30;
  return problem;
}

Problem ragged() {
  Problem problem = windowed(-1, -1);
  problem.ragged = true;
  problem.total_q = problem.total_k = 5000;
  return problem;
}

Problem paged(bool ragged_too = false) {
  Problem problem = ragged_too ? ragged() : windowed(-1, -1);
  problem.total_k = 0;
  problem.paged = true;
  problem.page_size = 16;
  problem.pages = 200;
  problem.table_width = 125;
  return problem;
}

Variant variant_of(int family, bool causal, std::initializer_list<int Need::*> features) {
  return default_variant(family, asking(need_for(Dtype::bf16, 128, causal), features), h200.shared_per_block);
}

bool mentions(const std::vector<std::string>& messages, const std::string& word) {
  return std::ranges::any_of(messages, [&](const std::string& m) { return m.find(word) != std::string::npos; });
}

std::string error_of(const attune_prefill_args& args) {
  try {
    check_arguments(args);
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

/// What the kernel of a checked call may touch.
std::vector<emulator::Buffer> buffers_of(const attune_prefill_args& args, const Problem& problem) {
  return attune::buffers_of([&](VisitOperand visit) { visit_operands(args, problem, visit); });
}

}  // namespace

TEST_CASE("a window's bounds that hide no key are dropped, and a right one of 0 is the causal mask") {
  CHECK(!has_window(windowed(-1, -1)));
  CHECK(!has_window(windowed(1999, 999)));
  CHECK(windowed(1998, 999).window_left == 1998);
  CHECK(windowed(-1, 998).window_right == 998);
  CHECK(has_window(windowed(-1, 998)));
  CHECK(!windowed(-1, 998).causal);

  CHECK(windowed(-1, 0).causal);
  CHECK(!has_window(windowed(-1, 0)));
  CHECK(windowed(-1, 0) == windowed(-1, -1, true));
  CHECK(windowed(-1, 5, true) == windowed(-1, -1, true));  // causal leaves none behind a query
  CHECK(windowed(7, 0) == windowed(7, 3, true));
  CHECK(has_window(windowed(7, 0)));
}

TEST_CASE("a row sees the keys around its own position, aligned bottom right") {
  Problem problem{.seqlen_q = 4, .seqlen_k = 10};
  const auto keys = [&](int row) {
    const Problem::Keys seen = problem.visible_keys(row);
    return std::pair(seen.first, seen.end);
  };
  CHECK(keys(0) == std::pair(0, 10));
  set_window(problem, 3, 1);
  CHECK(keys(0) == std::pair(3, 8));
  CHECK(keys(3) == std::pair(6, 10));
  set_window(problem, -1, 0);
  CHECK(keys(1) == std::pair(0, 8));
  problem = {.seqlen_q = 10, .seqlen_k = 4};
  set_window(problem, 1, 2);
  CHECK(keys(0).first >= keys(0).second);
  CHECK(keys(4) == std::pair(0, 1));
  CHECK(keys(9) == std::pair(2, 4));
}

TEST_CASE("arguments become a problem and the parameter block of a window") {
  const attune_prefill_args args = with_window(20, 3);
  const Problem problem = check_arguments(args);
  CHECK(problem.window_left == 20);
  CHECK(problem.window_right == 3);
  AttunePrefillParams params = make_params(args, problem);
  CHECK(params.window_left == 20);
  CHECK(params.window_right == 3);
  CHECK(params.scale_log2 == 0.125F * std::numbers::log2e_v<float>);

  const attune_prefill_args one_side = with_window(-1, 3);
  params = make_params(one_side, check_arguments(one_side));
  CHECK(params.window_left == 200);  // which hides nothing
  CHECK(params.window_right == 3);
  attune_prefill_args causal = with_window(20, -1);
  causal.causal = 1;
  params = make_params(causal, check_arguments(causal));
  CHECK(params.window_left == 20);
  CHECK(params.window_right == 0);

  attune_prefill_args unused = with_window(0, 0);
  unused.window = 0;
  CHECK(!has_window(check_arguments(unused)));
  CHECK(!check_arguments(unused).causal);
}

TEST_CASE("with a soft cap softmax runs on tanh, whose factor is the cap") {
  attune_prefill_args args = good_args();
  args.softcap = 30;
  const Problem problem = check_arguments(args);
  CHECK(problem.softcap == 30);
  const AttunePrefillParams params = make_params(args, problem);
  CHECK(params.scale_log2 == doctest::Approx(30 * std::numbers::log2e));
  CHECK(params.cap_scale == doctest::Approx(2 * std::numbers::log2e * 0.125 / 30));
  args.softcap = 1e-38F;
  CHECK(std::isfinite(make_params(args, check_arguments(args)).cap_scale));
}

TEST_CASE(
    "the largest scale and the largest cap leave every factor of a kernel a number, and larger ones are refused") {
  attune_prefill_args args = good_args();
  args.softcap = args.softmax_scale = 0x1p64F;
  const AttunePrefillParams params = make_params(args, check_arguments(args));
  CHECK(std::isfinite(params.scale_log2));
  CHECK(std::isfinite(params.cap_scale));
  CHECK(params.cap_scale > 0);
  for (float attune_prefill_args::*field : {&attune_prefill_args::softcap, &attune_prefill_args::softmax_scale}) {
    args = good_args();
    args.*field = 3e38F;
    CHECK_THROWS_WITH(check_arguments(args), doctest::Contains("is 3e+38; it must be from 0"));
  }
}

TEST_CASE("a ragged batch is one sequence in memory, and its arrays are passed on") {
  attune_prefill_args args = ragged_args();
  args.q.stride_batch = 7;  // never used
  const Problem problem = check_arguments(args);
  CHECK(problem.ragged);
  CHECK(problem.batch == 2);
  CHECK(problem.total_q == 150);
  CHECK(problem.total_k == 333);
  const AttunePrefillParams params = make_params(args, problem);
  CHECK(params.cu_seqlens_q == args.cu_seqlens_q);
  CHECK(params.cu_seqlens_k == args.cu_seqlens_k);
  CHECK(params.seqused_k == args.seqused_k);
  CHECK(params.seqused_q == args.seqused_q);
  CHECK(params.total_q == 150);
  CHECK(params.total_k == 333);
  CHECK(params.q.stride_batch == 0);
  CHECK(params.q.stride_seq == args.q.stride_seq);

  const std::vector<emulator::Buffer> buffers = buffers_of(args, problem);
  REQUIRE(buffers.size() == 8);
  CHECK(buffers[0].extents == std::array<long long, 4>{1, 150, 8, 128});
  CHECK(buffers[1].extents == std::array<long long, 4>{1, 333, 2, 128});
  CHECK(buffers[4].extents[3] == 3);
  CHECK(buffers[6].extents[3] == 2);
  CHECK(buffers[7].extents[3] == 2);
  for (std::size_t i = 4; i < 8; ++i) CHECK(!buffers[i].writable);

  CHECK(!is_empty(problem));
  args.total_q = 0;
  args.q.data = args.o.data = args.k.data = args.v.data = nullptr;
  CHECK(is_empty(check_arguments(args)));
}

TEST_CASE("keys in pages are as many sequences in memory, with ragged queries or not") {
  attune_prefill_args args = paged_args();
  Problem problem = check_arguments(args);
  CHECK(problem.paged);
  CHECK(!problem.ragged);
  CHECK(problem.page_size == 16);
  CHECK(problem.pages == 30);
  CHECK(problem.table_width == 13);
  AttunePrefillParams params = make_params(args, problem);
  CHECK(params.block_table == args.block_table);
  CHECK(params.seqused_k == args.seqused_k);
  CHECK(params.table_width == 13);
  CHECK(params.pages == 30);
  CHECK(params.page_size == 16);
  CHECK(params.k.stride_batch == 16 * 2 * 128);
  CHECK(params.q.stride_batch == 100 * 8 * 128);
  std::vector<emulator::Buffer> buffers = buffers_of(args, problem);
  REQUIRE(buffers.size() == 6);
  CHECK(buffers[0].extents == std::array<long long, 4>{2, 100, 8, 128});
  CHECK(buffers[1].extents == std::array<long long, 4>{30, 16, 2, 128});
  CHECK(buffers[2].extents == buffers[1].extents);
  CHECK(buffers[4].extents[3] == 2);
  CHECK(buffers[5].extents[2] == 2);
  CHECK(buffers[5].extents[3] == 13);
  CHECK(!buffers[5].writable);

  args.cu_seqlens_q = array(0x5000);
  args.cu_seqlens_k = array(0x6001);  // neither used nor looked at
  args.total_q = 150;
  args.total_k = 99;
  problem = check_arguments(args);
  CHECK(problem.ragged);
  CHECK(problem.paged);
  CHECK(problem.total_q == 150);
  CHECK(problem.total_k == 0);
  params = make_params(args, problem);
  CHECK(params.cu_seqlens_q == args.cu_seqlens_q);
  CHECK(params.cu_seqlens_k == nullptr);
  CHECK(params.q.stride_batch == 0);
  CHECK(params.k.stride_batch == 16 * 2 * 128);
  buffers = buffers_of(args, problem);
  CHECK(buffers[0].extents == std::array<long long, 4>{1, 150, 8, 128});
  CHECK(buffers[1].extents == std::array<long long, 4>{30, 16, 2, 128});
}

TEST_CASE("where no sequence may have a key, a paged cache needs no table and no memory") {
  attune_prefill_args args = paged_args();
  args.seqlen_k = 0;
  args.block_table = nullptr;
  args.k.data = args.v.data = nullptr;
  CHECK(check_arguments(args).paged);
  args = paged_args();
  args.pages = 0;
  args.k.data = args.v.data = nullptr;
  CHECK(check_arguments(args).pages == 0);
  args = paged_args();
  args.batch = 0;
  args.block_table = args.seqused_k = nullptr;
  args.k.data = args.v.data = args.q.data = args.o.data = nullptr;
  CHECK(is_empty(check_arguments(args)));
}

TEST_CASE("kernels divide by the size of a page exactly") {
  for (const int page_size : {1, 2, 3, 5, 7, 16, 24, 100, 255, 256, 641, 4096, 65537, (1 << 30) - 1, 1 << 30}) {
    const Reciprocal reciprocal = reciprocal_of(page_size);
    const auto page_of = [&](std::int64_t key) {
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(key) * reciprocal.multiplier >> reciprocal.shift);
    };
    for (std::int64_t page = 0; page <= most_rows / page_size; page += 1 + page / 7) {
      const std::int64_t first = page * page_size;
      CHECK(page_of(first) == page);
      CHECK(page_of(first + page_size - 1) == page);
    }
    CHECK(page_of(most_rows) == most_rows / page_size);

    attune_prefill_args args = paged_args();
    args.page_size = page_size;
    args.table_width = args.seqlen_k;
    const AttunePrefillParams params = make_params(args, check_arguments(args));
    CHECK(params.page_multiplier == reciprocal.multiplier);
    CHECK(params.page_shift == reciprocal.shift);
  }
}

TEST_CASE("every mistake about a paged cache is named") {
  using Change = std::function<void(attune_prefill_args&)>;
  for (const auto& [says, change] : std::vector<std::pair<const char*, Change>>{
           {"block_table is null; it must name the pages where page_size is 16",
            [](auto& a) { a.block_table = nullptr; }},
           {"block_table is 0x8002; it must be a multiple of 4", [](auto& a) { a.block_table = array(0x8002); }},
           {"seqused_k is null; it must say how many keys", [](auto& a) { a.seqused_k = nullptr; }},
           {"seqused_k is null; it must say how many keys", [](auto& a) { a.seqused_k = nullptr, a.seqlen_k = 0; }},
           {"seqused_k is 0x7001", [](auto& a) { a.seqused_k = array(0x7001); }},
           {"page_size is 0; it must be from 1 to", [](auto& a) { a.page_size = 0; }},
           {"page_size is -16", [](auto& a) { a.page_size = -16, a.block_table = nullptr; }},
           {"pages is -1; it must be from 0 to", [](auto& a) { a.pages = -1; }},
           {"table_width is 0; it must be from 1 to", [](auto& a) { a.table_width = 0; }},
           {"seqlen_k is 209; it must be at most table_width 13 x page_size 16", [](auto& a) { a.seqlen_k = 209; }},
           {"cu_seqlens_k is given without cu_seqlens_q", [](auto& a) { a.cu_seqlens_k = array(0x6000); }},
           {"k.stride_batch is 12", [](auto& a) { a.k.stride_batch = 12; }},
           {"v.data is null", [](auto& a) { a.v.data = nullptr; }}}) {
    attune_prefill_args args = paged_args();
    CHECK(error_of(args).empty());
    change(args);
    CHECK_MESSAGE(error_of(args).find(says) != std::string::npos, says);
  }
}

TEST_CASE("every mistake about windows, soft caps and ragged batches is named") {
  using Change = std::function<void(attune_prefill_args&)>;
  for (const auto& [says, change] : std::vector<std::pair<const char*, Change>>{
           {"window is 2; it must be 0 or 1", [](auto& a) { a.window = 2; }},
           {"window_left is -2; it must be from -1 to", [](auto& a) { a.window = 1, a.window_left = -2; }},
           {"window_right is -9", [](auto& a) { a.window = 1, a.window_right = -9; }},
           {"softcap is -1; it must be from 0, for none, to 1.8446744e+19", [](auto& a) { a.softcap = -1; }},
           {"dropout_p is 1; it must be at least 0 and less than 1", [](auto& a) { a.dropout.p = 1; }},
           {"dropout_p is -0.5; it must be at least 0 and less than 1", [](auto& a) { a.dropout.p = -0.5F; }},
           {"softcap is nan", [](auto& a) { a.softcap = std::nanf(""); }},
           {"softcap is inf", [](auto& a) { a.softcap = HUGE_VALF; }},
           {"total_q is -1; it must be from 0 to", [](auto& a) { a.total_q = -1; }},
           {"total_k is -5", [](auto& a) { a.total_k = -5; }},
           {"cu_seqlens_q is null, and cu_seqlens_k is not", [](auto& a) { a.cu_seqlens_q = nullptr; }},
           {"cu_seqlens_k is null, and cu_seqlens_q is not", [](auto& a) { a.cu_seqlens_k = nullptr; }},
           {"seqused_k is given without cu_seqlens_q", [](auto& a) { a.cu_seqlens_q = a.cu_seqlens_k = nullptr; }},
           {"cu_seqlens_q is 0x5001; it must be a multiple of 4", [](auto& a) { a.cu_seqlens_q = array(0x5001); }},
           {"cu_seqlens_k is 0x6002", [](auto& a) { a.cu_seqlens_k = array(0x6002); }},
           {"seqused_k is 0x7003", [](auto& a) { a.seqused_k = array(0x7003); }},
           {"seqused_q is 0x9003", [](auto& a) { a.seqused_q = array(0x9003); }},
           {"seqused_q is given without cu_seqlens_q", [](auto& a) { a.cu_seqlens_q = a.cu_seqlens_k = nullptr; }},
           {"o.stride_seq is 0", [](auto& a) { a.o.stride_seq = 0, a.seqlen_q = 1; }}}) {
    attune_prefill_args args = ragged_args();
    CHECK(error_of(args).empty());
    change(args);
    CHECK_MESSAGE(error_of(args).find(says) != std::string::npos, says);
  }
}

TEST_CASE("a caller that is older than windows has none, whatever lies behind its struct") {
  attune_prefill_args args = good_args();
  std::memset(reinterpret_cast<char*>(&args) + offsetof(attune_prefill_args, cu_seqlens_q), 0x7f,
              sizeof(args) - offsetof(attune_prefill_args, cu_seqlens_q));
  args.struct_size = offsetof(attune_prefill_args, cu_seqlens_q);
  const Problem problem = check_arguments(args);
  CHECK(!has_window(problem));
  CHECK(!problem.ragged);
  CHECK(problem.softcap == 0);
  CHECK(make_params(args, problem).cu_seqlens_q == nullptr);
}

TEST_CASE("a caller that is older than pages has none, whatever lies behind its struct") {
  attune_prefill_args args = ragged_args();
  std::memset(reinterpret_cast<char*>(&args) + offsetof(attune_prefill_args, block_table), 0x7f,
              sizeof(args) - offsetof(attune_prefill_args, block_table));
  args.struct_size = offsetof(attune_prefill_args, block_table);
  const Problem problem = check_arguments(args);
  CHECK(problem.ragged);
  CHECK(!problem.paged);
  CHECK(make_params(args, problem).block_table == nullptr);
}

TEST_CASE("a caller that is older than seqused_q has none, whatever lies behind its struct") {
  attune_prefill_args args = ragged_args();
  args.struct_size = offsetof(attune_prefill_args, seqused_q);
  CHECK(make_params(args, check_arguments(args)).seqused_q == nullptr);
}

TEST_CASE("the C++ API passes pages on") {
  api::Prefill call{.shape = {.seqlen_k = 15}};
  call.pages = {.block_table = array(0x10), .seqused_k = array(0x20), .table_width = 3, .pages = 4, .page_size = 5};
  const attune_prefill_args args = call.args();
  CHECK(args.block_table == array(0x10));
  CHECK(args.seqused_k == array(0x20));
  CHECK(args.table_width == 3);
  CHECK(args.pages == 4);
  CHECK(args.page_size == 5);
  CHECK(api::Prefill{}.args().page_size == 0);
}

TEST_CASE("the C++ API passes windows, soft caps and ragged batches on") {
  api::Prefill call{.shape = {.window_left = 4, .window_right = 5, .softcap = 6}};
  attune_prefill_args args = call.args();
  CHECK(args.window == 1);
  CHECK(args.window_left == 4);
  CHECK(args.window_right == 5);
  CHECK(args.softcap == 6);
  CHECK(args.cu_seqlens_q == nullptr);
  call.ragged = {.cu_seqlens_q = array(0x10),
                 .cu_seqlens_k = array(0x20),
                 .seqused_k = array(0x30),
                 .total_q = 7,
                 .total_k = 8,
                 .seqused_q = array(0x40)};
  args = call.args();
  CHECK(args.cu_seqlens_q == array(0x10));
  CHECK(args.cu_seqlens_k == array(0x20));
  CHECK(args.seqused_k == array(0x30));
  CHECK(args.seqused_q == array(0x40));
  CHECK(args.total_q == 7);
  CHECK(args.total_k == 8);
  const attune_prefill_args plain = api::Prefill{}.args();
  CHECK(plain.window_left == -1);
  CHECK(plain.window_right == -1);
}

TEST_CASE("a kernel serves what it has, and one with a window also the causal mask and none") {
  const Variant plain = variant_of(prefill_sm80, false, {});
  const Variant window = variant_of(prefill_sm80, false, {&Need::window});
  const Variant softcap = variant_of(prefill_sm80, false, {&Need::softcap});
  const Variant batches = variant_of(prefill_sm80, false, {&Need::ragged});
  CHECK(refusals(window, windowed(5, 5), h200).empty());
  CHECK(refusals(window, windowed(5, 0), h200).empty());
  CHECK(refusals(window, windowed(-1, 0), h200).empty());
  CHECK(refusals(window, windowed(-1, -1), h200).empty());
  CHECK(mentions(refusals(plain, windowed(5, 5), h200), "window: the kernel has false, the problem true"));
  CHECK(refusals(plain, windowed(5, 5), h200).size() == 1);
  CHECK(refusals(softcap, capped(), h200).empty());
  CHECK(mentions(refusals(softcap, windowed(-1, -1), h200), "softcap: the kernel has true, the problem false"));
  CHECK(mentions(refusals(plain, capped(), h200), "softcap: the kernel has false, the problem true"));
  CHECK(refusals(batches, ragged(), h200).empty());
  CHECK(mentions(refusals(batches, windowed(-1, -1), h200), "ragged: the kernel has true, the problem false"));
  CHECK(mentions(refusals(window, ragged(), h200), "ragged: the kernel has false, the problem true"));
  const Variant pages = variant_of(prefill_sm80, false, {&Need::paged});
  CHECK(refusals(pages, paged(), h200).empty());
  CHECK(mentions(refusals(pages, windowed(-1, -1), h200), "paged: the kernel has true, the problem false"));
  CHECK(mentions(refusals(plain, paged(), h200), "paged: the kernel has false, the problem true"));
  CHECK(mentions(refusals(batches, paged(true), h200), "paged: the kernel has false, the problem true"));
  CHECK(mentions(refusals(pages, paged(true), h200), "ragged: the kernel has false, the problem true"));

  const Variant causal = variant_of(prefill_sm80, true, {});
  for (const std::vector<Variant>& candidates : {std::vector{window, causal, plain}, {plain, causal, window}}) {
    CHECK(choose(candidates, windowed(-1, 0), h200) == causal);
    CHECK(choose(candidates, windowed(-1, -1), h200) == plain);
    CHECK(choose(candidates, windowed(3, 0), h200) == window);
  }
  CHECK(choose(std::vector{window}, windowed(-1, 0), h200) == window);
}

TEST_CASE("on 9.0 prefill_sm90 serves each feature, elsewhere and where no tensor map serves prefill_sm80 does") {
  for (const auto& [key, problem] :
       {std::pair{"window", windowed(100, 0)}, {"softcap", capped()}, {"ragged", ragged()}}) {
    CAPTURE(key);
    const auto family_on = [&](const Problem& one, const Device& device) {
      const OwnChoice own = choose_own(one, device);
      CHECK(own.refusals.empty());
      CHECK(own.variant.*find_field(key)->member == 1);
      CHECK(own.variant.causal == 0);
      const Explanation explained = explain(one, device);
      CHECK(explained.own.variant == own.variant);
      CHECK(explained.serving.variant.family ==
            own.variant.family);  // its variant may be one that an embedded table asked for
      CHECK(explained.serving.variant.*find_field(key)->member == 1);
      return own.variant.family;
    };
    CHECK(family_on(problem, h200) == prefill_sm90);
    CHECK(family_on(problem, device_of(*find_arch("sm_80"))) == prefill_sm80);
    Problem strided = problem;
    strided.mappable_strides = false;
    CHECK(family_on(strided, h200) == prefill_sm80);
    CHECK(strided.ask() != problem.ask());
    CHECK(explain(strided, h200).text("").find("  not by prefill_sm90: strides: ") != std::string::npos);
  }
  Problem keyless = ragged();
  keyless.total_k = 0;
  CHECK(choose_own(keyless, h200).variant.family == prefill_sm80);
  CHECK(keyless.ask() != ragged().ask());
  CHECK(mentions(refusals(variant_of(prefill_sm90, false, {&Need::ragged}), keyless, h200), "total_k: it is 0"));
}

TEST_CASE("keys in pages come by the copy engine where boxes hold rows of them, else one by one, and in prefill_sm80") {
  const auto own_of = [](const Problem& problem) {
    const OwnChoice own = choose_own(problem, h200);
    CHECK(own.refusals.empty());
    CHECK(own.variant.paged == 1);
    CHECK(check(own.variant).empty());
    return own.variant;
  };
  Problem problem = paged();
  CHECK(own_of(problem).family == prefill_sm90);
  CHECK(own_of(problem).page_multiple == 16);
  problem.mappable_pages = false;
  CHECK(own_of(problem).family == prefill_sm90);
  CHECK(own_of(problem).page_multiple == 1);
  CHECK(problem.ask() != paged().ask());
  problem = paged();
  problem.page_size = 24;
  CHECK(own_of(problem).page_multiple == 1);
  // A row that ends inside 16 bytes is not gathered, and no map holds no page.
  problem.head_dim = 60;
  CHECK(own_of(problem).family == prefill_sm80);
  CHECK(explain(problem, h200).text("").find("  not by prefill_sm90: head_dim: 60 is no multiple of 8") !=
        std::string::npos);
  problem.page_size = 16;
  CHECK(own_of(problem).family == prefill_sm90);
  problem.pages = 0;
  CHECK(own_of(problem).family == prefill_sm80);
  CHECK(own_of(paged(true)).ragged == 1);
  CHECK(choose_own(paged(), device_of(*find_arch("sm_80"))).variant.family == prefill_sm80);
}

TEST_CASE("which strides of a cache its kernels can follow is found out by each call") {
  attune_prefill_args args = paged_args();
  CHECK(check_arguments(args).mappable_pages);
  CHECK(check_arguments(args).page_multiple() == 16);
  args.k.stride_batch += 8;  // pages that begin between rows
  CHECK_FALSE(check_arguments(args).mappable_pages);
  CHECK(check_arguments(args).mappable_strides);
  CHECK(check_arguments(args).page_multiple() == 1);
  args.k.stride_batch = std::int64_t{1} << 36;  // further apart than 32 bits of 16 bytes
  CHECK(check_arguments(args).page_multiple() == 1);
  CHECK_FALSE(check_arguments(args).mappable_strides);
}

TEST_CASE("every head_dim has a default with every feature on every GPU, and a name of its own") {
  for (const Arch& arch : all_archs()) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      const Variant variant = default_variant(
          prefill_sm80,
          asking(need_for(Dtype::fp16, head_dim, true), {&Need::window, &Need::softcap, &Need::ragged, &Need::paged}),
          arch.shared_per_block);
      CHECK(check(variant).empty());
      CHECK(check_arch(variant, arch).empty());
      CHECK(variant.name().find("_paged") != std::string::npos);
      CHECK(variant.name().find("_window_softcap_ragged") != std::string::npos);
    }
  }
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    const Variant variant = default_variant(
        prefill_sm90, asking(need_for(Dtype::fp16, head_dim, true), {&Need::window, &Need::softcap, &Need::ragged}),
        h200.shared_per_block);
    CHECK(check(variant).empty());
    CHECK(variant.name().find("_window_softcap_ragged") != std::string::npos);
  }
}

TEST_CASE("a window has the causal mask among its bounds, so no spec may ask for both") {
  for (const int family : {prefill_sm80, prefill_sm90}) {
    Variant variant = variant_of(family, false, {&Need::window});
    CHECK(check(variant).empty());
    variant.causal = 1;
    const std::vector<Refusal> found = check(variant);
    REQUIRE(found.size() == 1);
    CHECK(found[0].field == "causal");
    CHECK(found[0].message.find("causal: false") != std::string::npos);
  }
}

TEST_CASE("a source has the code of the features that its variant has, and no other") {
  using Parts = std::vector<std::pair<int Need::*, const char*>>;
  const Parts sm80{{&Need::window, "struct Window {"},
                   {&Need::softcap, "cap_scores"},
                   {&Need::ragged, "struct RaggedSequence"},
                   {&Need::paged, "struct PageSource"}};
  const Parts sm90{
      {&Need::window, "struct Window {"}, {&Need::softcap, "cap_scores"}, {&Need::ragged, "load_global_int"}};
  for (const auto& [family, parts] : {std::pair{prefill_sm80, sm80}, {prefill_sm90, sm90}}) {
    for (const auto& [feature, own] : parts) {
      const std::string text = generate(variant_of(family, false, {feature})).text;
      for (const auto& part : parts) CHECK((text.find(part.second) != std::string::npos) == (part.second == own));
    }
    const std::string plain = generate(variant_of(family, true, {})).text;
    for (const auto& part : parts) CHECK(plain.find(part.second) == std::string::npos);
  }
}

TEST_CASE("a problem's text and what it asks tell features apart") {
  Problem problem = windowed(100, 30);
  problem.softcap = 2.5F;
  problem.ragged = true;
  problem.total_q = 70;
  problem.total_k = 80;
  CHECK(problem.text() == "bf16 d128 b1 hq8 hk2 lq1000 lk2000 left100 right30 softcap2.5 ragged tq70 tk80");
  const Problem plain = windowed(-1, -1);
  problem = paged(true);
  CHECK(problem.text() == "bf16 d128 b1 hq8 hk2 lq1000 lk2000 ragged tq5000 page16");
  for (const Problem& other : {windowed(5, -1), windowed(-1, 5), capped(), ragged(), paged()}) {
    CHECK(other.ask() != plain.ask());
  }
  CHECK(paged(true).ask() != ragged().ask());
  CHECK(paged(true).ask() != paged().ask());
  CHECK(windowed(5, -1).ask() == windowed(9, 3).ask());
  CHECK(windowed(5, 0).ask() != windowed(-1, 0).ask());
}
