// Calls through the C ABI that the emulator serves, on any machine that has a C++ compiler.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/execute/emulator_executor.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/lab/reference.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/registry/emulated_kernels.hpp"

using namespace attune;
namespace fs = std::filesystem;

namespace {

class CacheFolder {
 public:
  [[nodiscard]] api::Options options(api::Compile compile = api::Compile::missing) const {
    return {.compile = compile, .cache_dir = folder_.path().string(), .device = api::Device::emulator};
  }
  [[nodiscard]] Cache open() const { return Cache(folder_.path()); }
  [[nodiscard]] std::vector<CacheEntry> entries() const { return open().list(); }

 private:
  ScratchFolder folder_;
};

const Problem small{.dtype = Dtype::fp16,
                    .batch = 2,
                    .heads_q = 2,
                    .heads_kv = 1,
                    .seqlen_q = 5,
                    .seqlen_k = 9,
                    .head_dim = 16,
                    .causal = true};

/// A call over host memory of its own.
struct HostCall {
  std::vector<std::uint16_t> q, k, v, o;
  std::vector<float> lse;
  api::Prefill call;

  explicit HostCall(const Problem& problem) {
    const auto values = [&](int seqlen, int heads) {
      std::vector<std::uint16_t> result(static_cast<std::size_t>(problem.batch) * seqlen * heads * problem.head_dim);
      for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = to_storage(problem.dtype, static_cast<float>(i * 37 % 101) / 50 - 1);
      }
      return result;
    };
    q = values(problem.seqlen_q, problem.heads_q);
    k = values(problem.seqlen_k, problem.heads_kv);
    v = values(problem.seqlen_k, problem.heads_kv);
    o.resize(q.size(), 0x7fff);
    lse.resize(q.size() / problem.head_dim);
    call = {.shape = {.dtype = static_cast<api::Dtype>(problem.dtype),
                      .batch = problem.batch,
                      .seqlen_q = problem.seqlen_q,
                      .seqlen_k = problem.seqlen_k,
                      .heads_q = problem.heads_q,
                      .heads_kv = problem.heads_kv,
                      .head_dim = problem.head_dim,
                      .causal = problem.causal},
            .q = api::bshd(q.data(), problem.seqlen_q, problem.heads_q, problem.head_dim),
            .k = api::bshd(k.data(), problem.seqlen_k, problem.heads_kv, problem.head_dim),
            .v = api::bshd(v.data(), problem.seqlen_k, problem.heads_kv, problem.head_dim),
            .o = api::bshd(o.data(), problem.seqlen_q, problem.heads_q, problem.head_dim),
            .lse = lse.data()};
  }

  // A copy would point to the original's memory.
  HostCall(HostCall&&) = default;
  HostCall& operator=(HostCall&&) = delete;

  [[nodiscard]] bool agrees(const Problem& problem) const {
    const auto host = [](const std::vector<std::uint16_t>& values, const api::Tensor& tensor) {
      return HostTensor{values.data(), tensor.stride_batch, tensor.stride_seq, tensor.stride_head};
    };
    const HostTensor tensors[] = {host(q, call.q), host(k, call.k), host(v, call.v)};
    const double scale = call.args().softmax_scale;
    return compare(problem, o.data(), lse.data(),
                   reference_attention(problem, tensors[0], tensors[1], tensors[2], scale),
                   naive_attention(problem, tensors[0], tensors[1], tensors[2], scale))
        .agrees;
  }
};

/// What the kernel of a checked call may touch.
std::vector<emulator::Buffer> buffers_of(const attune_prefill_args& args, const Problem& problem) {
  return attune::buffers_of([&](VisitOperand visit) { visit_operands(args, problem, visit); });
}

}  // namespace

TEST_CASE("a call is done, and right, when it returns; the kernel is kept on disk") {
  const CacheFolder folder;
  HostCall host(small);
  const api::Attention attention(folder.options());
  CHECK(attention.serving(host.call).now.empty());
  attention(host.call);
  CHECK(host.agrees(small));
  const std::vector<CacheEntry> entries = folder.entries();
  REQUIRE(entries.size() == 1);
  CHECK(attention.serving(host.call).now == entries[0].name);
  CHECK(attention.serving(host.call).coming.empty());
  CHECK(entries[0].valid);
  CHECK(entries[0].arch == "emulator");
  CHECK(fs::exists(entries[0].folder / "kernel.so"));
}

TEST_CASE("a frozen registry emulates what is on the disk, and says what is not") {
  const CacheFolder folder;
  HostCall host(small);
  const api::Attention frozen(folder.options(api::Compile::frozen));
  try {
    frozen(host.call);
    FAIL("a kernel came from nowhere");
  } catch (const api::Error& error) {
    CHECK(error.status() == ATTUNE_NOT_COMPILED);
    CHECK(std::string(error.what()).find("ATTUNE_COMPILE_FROZEN") != std::string::npos);
    CHECK(std::string(error.what()).find("prefill_sm90_fp16_d") != std::string::npos);
  }
  CHECK(folder.entries().empty());
  CHECK(frozen.counters().failures == 1);

  const api::Attention compiling(folder.options());
  compiling.prepare(host.call);
  CHECK(compiling.counters().compiles == 1);
  frozen(host.call);
  CHECK(host.agrees(small));
  CHECK(frozen.counters().compiles == 0);
  CHECK(frozen.counters().disk_loads == 1);
  frozen.prepare(host.call);
  CHECK(frozen.counters().hits == 1);
}

TEST_CASE("one registry runs several kernels, each its own") {
  const CacheFolder folder;
  const api::Attention attention(folder.options());
  Problem full = small;
  full.causal = false;
  HostCall with_mask(small);
  HostCall without(full);
  attention.prepare(with_mask.call);
  attention.prepare(without.call);
  attention(with_mask.call);
  attention(without.call);
  CHECK(with_mask.agrees(small));
  CHECK(without.agrees(full));
  CHECK(folder.entries().size() == 2);
}

TEST_CASE("a fault in a kernel is a status, and words that say where") {
  const CacheFolder folder;
  HostCall host(small);
  api::Attention(folder.options()).prepare(host.call);
  const std::vector<CacheEntry> entries = folder.entries();
  REQUIRE(entries.size() == 1);
  const Source source{Variant{}, entries[0].name, read_file(entries[0].folder / "kernel.cu", 1 << 20).value_or("")};

  // In its place one whose warps do not wait for one another.
  Source broken = source;
  const std::string barrier = " block_barrier();";
  for (std::size_t at = 0; (at = broken.text.find(barrier, at)) != std::string::npos;) {
    broken.text.erase(at, barrier.size());
  }
  REQUIRE(broken.text != source.text);
  const emulator::HostCompiler compiler;
  const Cache cache = folder.open();
  CHECK(emulator_key(compiler, source).hash == entries[0].hash);
  CHECK(cache.clear() == 1);
  cache.find_or_build(emulator_key(compiler, source), source, [&] { return compiler.compile(broken); });
  try {
    api::Attention(folder.options())(host.call);
    FAIL("the fault was not found");
  } catch (const api::Error& error) {
    CHECK(error.status() == ATTUNE_KERNEL_FAULT);
    CHECK(std::string(error.what()).find(source.name) != std::string::npos);
  }
}

TEST_CASE("threads that want the same kernel at once get it compiled once") {
  const CacheFolder folder;
  const api::Attention attention(folder.options());
  std::vector<HostCall> calls;
  calls.reserve(4);
  for (int i = 0; i < 4; ++i) calls.emplace_back(small);
  {
    std::vector<std::jthread> threads;
    for (HostCall& host : calls) threads.emplace_back([&] { attention(host.call); });
  }
  for (const HostCall& host : calls) CHECK(host.o == calls.front().o);
  CHECK(calls.front().agrees(small));
  CHECK(folder.entries().size() == 1);
}

TEST_CASE("what a kernel may touch are the caller's tensors, as they lie") {
  HostCall host(small);
  attune_prefill_args args = host.call.args();
  args.k.stride_batch = 0;  // one K for every batch element
  const auto buffers = buffers_of(args, small);
  REQUIRE(buffers.size() == 5);
  const auto named = [&](const char* name) {
    const auto found = std::ranges::find(buffers, name, &emulator::Buffer::name);
    REQUIRE(found != buffers.end());
    return *found;
  };
  const emulator::Buffer q = named("q");
  CHECK(q.data == host.q.data());
  CHECK(q.extents == std::array<long long, 4>{2, 5, 2, 16});
  CHECK(q.strides == std::array<long long, 3>{5 * 2 * 16, 2 * 16, 16});
  CHECK(q.element_bytes == 2);
  CHECK_FALSE(q.writable);
  CHECK(named("k").strides[0] == 0);
  CHECK_FALSE(named("k").writable);
  CHECK_FALSE(named("v").writable);
  CHECK(named("o").writable);
  const emulator::Buffer lse = named("lse");
  CHECK(lse.extents == std::array<long long, 4>{1, 2, 2, 5});
  CHECK(lse.strides == std::array<long long, 3>{20, 10, 5});
  CHECK(lse.element_bytes == 4);
  CHECK(lse.writable);
  args.lse = nullptr;
  CHECK(buffers_of(args, small).size() == 4);
}
