// The backward pass through the C ABI and the C++ API: what misuse gets, on any machine. No test here has a CUDA
// context.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/operations/backward/arguments.hpp"
#include "tests/unit/closed_registry.hpp"

namespace {

using attune::testing::address;
using attune::testing::RegistryHandle;

namespace at = attune::api;

const std::int32_t* ints(std::uintptr_t value) { return static_cast<const std::int32_t*>(address(value)); }
float* floats(std::uintptr_t value) { return static_cast<float*>(address(value)); }

/// A call with nothing wrong; the pointers are never followed.
at::Backward good_call() {
  const at::Tensor q = at::bshd(address(0x1000), 30, 8, 128);
  const at::Tensor k = at::bshd(address(0x2000), 40, 2, 128);
  const auto like = [](at::Tensor tensor, std::uintptr_t place) {
    tensor.data = address(place);
    return tensor;
  };
  return {.shape = {.batch = 2, .seqlen_q = 30, .seqlen_k = 40, .heads_q = 8, .heads_kv = 2, .head_dim = 128},
          .q = q,
          .k = k,
          .v = like(k, 0x3000),
          .o = like(q, 0x4000),
          .dout = like(q, 0x5000),
          .dq = like(q, 0x6000),
          .dk = like(k, 0x7000),
          .dv = like(k, 0x8000),
          .lse = floats(0x9000),
          .workspace = address(0xa000),
          .workspace_bytes = 1 << 20};
}

at::Backward ragged_call() {
  at::Backward call = good_call();
  call.ragged = at::Ragged{.cu_seqlens_q = ints(0xb000),
                           .cu_seqlens_k = ints(0xc000),
                           .seqused_k = ints(0xd000),
                           .total_q = 50,
                           .total_k = 60,
                           .seqused_q = ints(0xe000)};
  return call;
}

}  // namespace

TEST_CASE("every bad field of a backward call gets a status and a message that names it") {
  const RegistryHandle registry;
  using Spoil = std::function<void(attune_backward_args&)>;
  const std::vector<std::pair<Spoil, std::string>> bad{
      {[](auto& args) { args.struct_size = 8; }, "attune_backward_args.struct_size is 8"},
      {[](auto& args) { args.dtype = static_cast<attune_dtype>(7); }, "dtype is 7"},
      {[](auto& args) { args.batch = -1; }, "batch is -1"},
      {[](auto& args) { args.seqlen_q = -1; }, "seqlen_q is -1"},
      {[](auto& args) { args.seqlen_k = -1; }, "seqlen_k is -1"},
      {[](auto& args) { args.heads_q = 0; }, "heads_q is 0"},
      {[](auto& args) { args.heads_kv = 3; }, "heads_kv is 3"},
      {[](auto& args) { args.head_dim = 44; }, "head_dim is 44"},
      {[](auto& args) { args.head_dim_v = 264; }, "head_dim_v is 264"},
      {[](auto& args) { args.softmax_scale = -1; }, "softmax_scale is -1"},
      {[](auto& args) { args.causal = 2; }, "causal is 2; it must be 0 or 1"},
      {[](auto& args) { args.window = 3; }, "window is 3; it must be 0 or 1"},
      {[](auto& args) { args.any_order = -1; }, "any_order is -1; it must be 0 or 1"},
      {[](auto& args) { args.window_left = -2; }, "window_left is -2"},
      {[](auto& args) { args.softcap = -1; }, "softcap is -1"},
      {[](auto& args) { args.dropout.p = 1; }, "dropout_p is 1; it must be at least 0 and less than 1"},
      {[](auto& args) { args.dropout.p = -0.25F; }, "dropout_p is -0.25"},
      {[](auto& args) { args.dropout.p = std::nanf(""); }, "dropout_p is nan"},
      {[](auto& args) { args.dropout = {.p = 0.5F, .seed = 1, .offset = 1LL << 44, .state = nullptr}; },
       "dropout.offset is 17592186044416; it must be at least 0 and less than 2^44"},
      {[](auto& args) { args.dropout = {.p = 0.5F, .seed = 1, .offset = -1, .state = nullptr}; },
       "dropout.offset is -1"},
      {[](auto& args) { args.q.data = nullptr; }, "q.data is null"},
      {[](auto& args) { args.o.data = nullptr; }, "o.data is null"},
      {[](auto& args) { args.dout.data = address(0x5008); }, "dout.data is 0x5008"},
      {[](auto& args) { args.dq.stride_seq = 0; }, "dq.stride_seq is 0; rows that are written"},
      {[](auto& args) { args.k.stride_head = 4; }, "k.stride_head is 4"},
      {[](auto& args) { args.dv.data = args.v.data; }, "dv has the data of v; a gradient must be apart"},
      {[](auto& args) { args.dk.data = args.dq.data; }, "dk has the data of dq"},
      {[](auto& args) { args.lse = nullptr; }, "lse is null"},
      {[](auto& args) { args.dlse = floats(0x9002); }, "dlse is 0x9002"},
      {[](auto& args) { args.cu_seqlens_q = ints(0xb000); }, "cu_seqlens_k is null, and cu_seqlens_q is not"},
      {[](auto& args) { args.seqused_q = ints(0xb000); }, "seqused_q is given without cu_seqlens_q and cu_seqlens_k"},
      {[](auto& args) { args.seqused_k = ints(0xb000); }, "seqused_k is given without cu_seqlens_q and cu_seqlens_k"}};
  for (const auto& [spoil, message] : bad) {
    CAPTURE(message);
    attune_backward_args args = good_call().args();
    spoil(args);
    CHECK(attune_backward(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    const std::string said = attune_last_error();
    CHECK_MESSAGE(said.find(message) != std::string::npos, said);
    CHECK(attune_backward_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
  }
}

TEST_CASE("the workspace is that of strides as they are, where a tensor has some") {
  attune_backward_args args = good_call().args();
  CHECK(attune::check_shapes(args).mappable_strides);
  args.dout.stride_batch = 0;
  CHECK_FALSE(attune::check_shapes(args).mappable_strides);
  args.dout.stride_seq = args.dout.stride_head = 0;  // a row expanded over all
  CHECK_FALSE(attune::check_shapes(args).mappable_strides);
  args.dout.data = nullptr;  // not there yet
  CHECK(attune::check_shapes(args).mappable_strides);
}

TEST_CASE("what a backward call does not look at may be anything") {
  const RegistryHandle registry;
  attune_backward_args args = good_call().args();
  args.total_q = args.total_k = -1;                                            // of a batch that is not ragged
  CHECK(attune_backward(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);  // and nothing else is wrong
  args = ragged_call().args();
  args.q.stride_batch = args.dq.stride_batch = 3;
  CHECK(attune_backward(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);
  args = good_call().args();
  args.batch = 0;
  args.q = args.k = args.v = args.o = args.dout = args.dq = args.dk = args.dv = {};
  args.lse = nullptr;
  args.workspace = nullptr;
  CHECK(attune_backward(registry.get(), &args, nullptr) == ATTUNE_OK);
  std::size_t bytes = 1;
  CHECK(attune_backward_workspace(registry.get(), &args, &bytes) == ATTUNE_OK);
  CHECK(bytes == 0);
  CHECK(attune_backward(nullptr, &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_backward(registry.get(), nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_backward_workspace(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
}

TEST_CASE("the C++ API passes every field of a backward call on") {
  at::Backward call = ragged_call();
  call.shape.dtype = at::Dtype::fp16;
  call.shape.head_dim_v = 64;
  call.shape.causal = true;
  call.shape.window_left = 5;
  call.shape.window_right = 6;
  call.shape.softcap = 7;
  call.dlse = floats(0xf000);
  call.softmax_scale = 0.5F;
  call.any_order = true;
  const attune_backward_args args = call.args();
  CHECK(args.struct_size == sizeof(args));
  CHECK(args.dtype == ATTUNE_FP16);
  const std::vector<const void*> data{args.q.data,    args.k.data,  args.v.data,  args.o.data,
                                      args.dout.data, args.dq.data, args.dk.data, args.dv.data};
  for (std::size_t i = 0; i < data.size(); ++i) CHECK(data[i] == address(0x1000 * (i + 1)));
  CHECK(args.k.stride_seq == 2 * 128);
  CHECK(args.lse == floats(0x9000));
  CHECK(args.dlse == floats(0xf000));
  CHECK(args.workspace == address(0xa000));
  CHECK(args.workspace_bytes == 1 << 20);
  CHECK(args.batch == 2);
  CHECK(args.seqlen_q == 30);
  CHECK(args.seqlen_k == 40);
  CHECK(args.heads_q == 8);
  CHECK(args.heads_kv == 2);
  CHECK(args.head_dim == 128);
  CHECK(args.head_dim_v == 64);
  CHECK(args.softmax_scale == 0.5F);
  CHECK(args.causal == 1);
  CHECK(args.window == 1);
  CHECK(args.window_left == 5);
  CHECK(args.window_right == 6);
  CHECK(args.softcap == 7);
  CHECK(args.cu_seqlens_q == ints(0xb000));
  CHECK(args.cu_seqlens_k == ints(0xc000));
  CHECK(args.seqused_q == ints(0xe000));
  CHECK(args.seqused_k == ints(0xd000));
  CHECK(args.total_q == 50);
  CHECK(args.total_k == 60);
  CHECK(args.any_order == 1);
}
