// Eight threads with one registry of the C ABI that emulates: what ThreadSanitizer looks at.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/base/files.hpp"
#include "tests/unit/at_once.hpp"

namespace {

using namespace attune;
using testing::at_once;
using testing::thread_count;

/// Calls over host memory that the emulator serves, each with a result of its own.
struct EmulatedCalls {
  static constexpr int rows = 5;
  static constexpr int head_dim = 16;
  static constexpr std::size_t elements = std::size_t{rows} * head_dim;

  std::array<std::vector<std::uint16_t>, 3> in;  ///< Q, K and V, or two results
  std::vector<std::uint16_t> o = std::vector<std::uint16_t>(elements);
  std::vector<std::uint16_t> cache = std::vector<std::uint16_t>(2 * elements);
  std::vector<float> lse = std::vector<float>(rows);
  std::vector<std::int64_t> slots = {4, 1, 3, 0, 2};

  EmulatedCalls() {
    for (std::size_t i = 0; i < in.size(); ++i) {
      for (std::size_t at = 0; at < elements; ++at)
        in.at(i).push_back(static_cast<std::uint16_t>(0x3800 + (at * (i + 3)) % 512));
    }
  }

  api::Prefill prefill(bool causal) {
    return {.shape =
                {.dtype = api::Dtype::fp16, .seqlen_q = rows, .seqlen_k = rows, .head_dim = head_dim, .causal = causal},
            .q = api::bshd(in[0].data(), rows, 1, head_dim),
            .k = api::bshd(in[1].data(), rows, 1, head_dim),
            .v = api::bshd(in[2].data(), rows, 1, head_dim),
            .o = api::bshd(o.data(), rows, 1, head_dim)};
  }
  api::Decode decode() {
    return {.shape = {.dtype = api::Dtype::fp16, .head_dim = head_dim, .max_seqlen_k = rows, .page_size = rows},
            .q = api::bshd(in[0].data(), 1, 1, head_dim),
            .k = api::bshd(in[1].data(), rows, 1, head_dim),
            .v = api::bshd(in[2].data(), rows, 1, head_dim),
            .o = api::bshd(o.data(), 1, 1, head_dim)};
  }
  api::Store store() {
    return {.shape = {.dtype = api::Dtype::fp16, .tokens = rows, .head_dim = head_dim, .page_size = rows},
            .k_new = api::bshd(in[1].data(), rows, 1, head_dim),
            .v_new = api::bshd(in[2].data(), rows, 1, head_dim),
            .k = api::bshd(cache.data(), rows, 1, head_dim),
            .v = api::bshd(cache.data() + elements, rows, 1, head_dim),
            .slot_mapping = slots.data()};
  }
  api::Merge merge() {
    return {.shape = {.dtype = api::Dtype::fp16, .seqlen = rows, .head_dim = head_dim},
            .o1 = api::bshd(in[0].data(), rows, 1, head_dim),
            .o2 = api::bshd(in[1].data(), rows, 1, head_dim),
            .o = api::bshd(o.data(), rows, 1, head_dim),
            .lse1 = lse.data(),
            .lse2 = lse.data()};
  }
};

}  // namespace

TEST_CASE("eight threads call one emulating registry, some the same and some other kernels: each gets its own result") {
  const ScratchFolder folder;
  const api::Options options{.cache_dir = folder.path().string(), .device = api::Device::emulator};
  constexpr int operations = 4;
  std::array<std::vector<std::uint16_t>, thread_count> results;
  {
    const api::Attention attention(options);
    const std::vector<std::string> thrown = at_once([&](int thread) {
      EmulatedCalls calls;
      std::vector<std::uint16_t>& result = results.at(static_cast<std::size_t>(thread));
      result.resize(operations * EmulatedCalls::elements);
      for (int i = 0; i < operations; ++i) {
        const int operation = (thread + i) % operations;
        if (operation == 0) attention(calls.prefill(thread % 2 == 0));
        if (operation == 1) attention(calls.decode());
        if (operation == 2) attention(calls.store());
        if (operation == 3) attention(calls.merge());
        const std::vector<std::uint16_t>& output = operation == 2 ? calls.cache : calls.o;
        std::copy_n(output.begin(), EmulatedCalls::elements, result.begin() + operation * EmulatedCalls::elements);
        std::ranges::fill(calls.o, 0);
        (void)attention.counters();
        (void)attention.serving(calls.merge());
        if (i == thread % operations) attention.prepare_all({calls.store(), calls.merge()}, 2);
        if (thread == 0) attention.finish();
        if (i == 1) api::Attention(options).prepare(calls.merge());
      }
    });
    CHECK_MESSAGE(thrown.empty(), (thrown.empty() ? "" : thrown.front()));
    CHECK(attention.counters().failures == 0);
  }
  // Threads of one parity made the same calls.
  for (std::size_t i = 2; i < results.size(); ++i) CHECK(results.at(i) == results.at(i % 2));
}
