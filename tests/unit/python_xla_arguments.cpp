// What XLA hands to attention and its gradients, as the C ABI takes it.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/python/xla_arguments.hpp"
#include "tests/unit/closed_registry.hpp"

namespace {

namespace xla = attune::xla;
using attune::Error;
using attune::python::XlaExpressions;
using attune::testing::address;

/// A call of XLA; the n-th buffer lies at n * 0x1000.
class Frame {
 public:
  Frame() {
    for (const char* const name : {"causal", "sink"}) attribute(name, xla::type_pred, &no_);
    for (const char* const name : {"softcap", "softmax_scale"}) attribute(name, xla::type_f32, &half_);
    attribute("dropout_p", xla::type_f32, &zero_);
    for (const char* const name : {"window_left", "window_right"}) attribute(name, xla::type_s32, &three_);
    for (const char* const name : {"score", "mask", "params"}) set_text(name, "");
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  void set_text(const char* name, const char* text) {
    texts_.push_back({text, std::char_traits<char>::length(text)});
    set(name, xla::attribute_text, &texts_.back());
  }
  void set_dropout() { attribute("dropout_p", xla::type_f32, &half_); }
  void set_sink() { attribute("sink", xla::type_pred, &yes_); }

  void argument(xla::DataType dtype, std::vector<std::int64_t> dims) { add(arguments_, dtype, std::move(dims)); }
  void result(std::vector<std::int64_t> dims) { add(results_, xla::type_bf16, std::move(dims)); }

  [[nodiscard]] const xla::CallFrame& frame() {
    frame_.attributes.size = static_cast<std::int64_t>(names_.size());
    frame_.attributes.types = kinds_.data();
    frame_.attributes.names = names_.data();
    frame_.attributes.values = values_.data();
    point_to(frame_.arguments, arguments_);
    point_to(frame_.results, results_);
    return frame_;
  }

  [[nodiscard]] static void* at(std::size_t buffer) { return address(0x1000 * (buffer + 1)); }

 private:
  struct List {
    std::vector<int> types;
    std::vector<void*> values;
  };

  static void point_to(xla::Buffers& buffers, List& list) {
    buffers.size = static_cast<std::int64_t>(list.values.size());
    buffers.types = list.types.data();
    buffers.values = list.values.data();
  }

  void add(List& list, xla::DataType dtype, std::vector<std::int64_t> dims) {
    dims_.push_back(std::move(dims));
    buffers_.push_back({.struct_size = sizeof(xla::Buffer),
                        .extensions = nullptr,
                        .dtype = dtype,
                        .data = at(buffers_.size()),
                        .rank = static_cast<std::int64_t>(dims_.back().size()),
                        .dims = dims_.back().data()});
    list.types.push_back(xla::argument_buffer);
    list.values.push_back(&buffers_.back());
  }

  void attribute(const char* name, xla::DataType dtype, void* value) {
    scalars_.push_back({dtype, value});
    set(name, xla::attribute_scalar, &scalars_.back());
  }

  void set(const char* name, int kind, void* value) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (std::string(names_[i]->data, names_[i]->size) == name) {
        values_[i] = value;
        return;
      }
    }
    spans_.push_back({name, std::char_traits<char>::length(name)});
    names_.push_back(&spans_.back());
    kinds_.push_back(kind);
    values_.push_back(value);
  }

  bool no_ = false;
  bool yes_ = true;
  float zero_ = 0;
  float half_ = 0.5F;
  std::int32_t three_ = 3;
  std::deque<xla::ByteSpan> texts_;
  std::deque<xla::ByteSpan> spans_;
  std::deque<xla::Scalar> scalars_;
  std::deque<std::vector<std::int64_t>> dims_;
  std::deque<xla::Buffer> buffers_;
  std::vector<xla::ByteSpan*> names_;
  std::vector<int> kinds_;
  std::vector<void*> values_;
  List arguments_;
  List results_;
  xla::CallFrame frame_{};
};

void add_inputs(Frame& call) {
  call.argument(xla::type_bf16, {2, 20, 4, 64});
  call.argument(xla::type_bf16, {2, 30, 2, 64});
  call.argument(xla::type_bf16, {2, 30, 2, 32});
}

void add_params(Frame& call) {
  call.argument(xla::type_f32, {2, 4});
  call.argument(xla::type_s32, {2, 30});
  call.set_text("score", "s + slope[b, h]");
  call.set_text("mask", "doc[b, k] == 1");
  call.set_text("params", "slope doc");
}

}  // namespace

TEST_CASE(
    "of a call of XLA each buffer has its place, a sink after the tensors, and arrays of expressions at the end") {
  Frame call;
  add_inputs(call);
  call.argument(xla::type_f32, {4});
  call.set_sink();
  add_params(call);
  call.result({2, 20, 4, 32});
  const XlaExpressions expressions(call.frame());
  const attune_prefill_args args = prefill_arguments(call.frame(), expressions);
  CHECK(args.k.data == Frame::at(1));
  CHECK(args.o.data == Frame::at(6));
  CHECK(args.lse == nullptr);
  CHECK(args.heads_kv == 2);
  CHECK(args.head_dim_v == 32);
  CHECK(args.softmax_scale == 0.5F);
  CHECK(args.window_left == 3);
  CHECK(args.sink == Frame::at(3));
  CHECK(args.sink_like_q == 0);
  CHECK(args.score == std::string("s + slope[b, h]"));
  CHECK(args.mask == std::string("doc[b, k] == 1"));
  REQUIRE(args.param_count == 2);
  CHECK(args.params[0].name == std::string("slope"));
  CHECK(args.params[0].element == ATTUNE_FP32);
  CHECK(args.params[0].data == Frame::at(4));
  CHECK(args.params[1].name == std::string("doc"));
  CHECK(args.params[1].element == ATTUNE_INT32);
  CHECK(args.params[1].rank == 2);
  CHECK(args.params[1].extents[1] == 30);
}

TEST_CASE("a sink of a call of XLA is fp32 or has the dtype of q") {
  const auto read = [](xla::DataType dtype) {
    Frame call;
    add_inputs(call);
    call.argument(dtype, {4});
    call.set_sink();
    call.result({2, 20, 4, 32});
    return prefill_arguments(call.frame(), XlaExpressions(call.frame())).sink_like_q;
  };
  CHECK(read(xla::type_f32) == 0);
  CHECK(read(xla::type_bf16) == 1);
  CHECK_THROWS_AS(read(xla::type_f16), Error);
}

TEST_CASE("seed and offset of a call of XLA lie before the arrays of expressions, and without dropout there are none") {
  Frame call;
  add_inputs(call);
  call.argument(xla::type_f32, {4});
  call.set_sink();
  call.argument(xla::type_s32, {4});
  call.set_dropout();
  add_params(call);
  call.result({2, 20, 4, 32});
  const XlaExpressions expressions(call.frame());
  const attune_prefill_args args = prefill_arguments(call.frame(), expressions);
  CHECK(args.dropout.p == 0.5F);
  CHECK(args.dropout.state == Frame::at(4));
  CHECK(args.sink == Frame::at(3));
  CHECK(args.params[0].data == Frame::at(5));

  Frame gradients;
  add_inputs(gradients);
  gradients.argument(xla::type_bf16, {2, 20, 4, 32});
  gradients.argument(xla::type_f32, {2, 4, 20});
  gradients.argument(xla::type_bf16, {2, 20, 4, 32});
  gradients.argument(xla::type_s32, {4});
  gradients.set_dropout();
  for (const int heads : {4, 2, 2}) gradients.result({2, 20, heads, 64});
  const attune_backward_args of_them = backward_arguments(gradients.frame(), XlaExpressions(gradients.frame()));
  CHECK(of_them.dropout.p == 0.5F);
  CHECK(of_them.dropout.state == Frame::at(6));
  CHECK(of_them.dlse == nullptr);

  Frame packed;
  packed.argument(xla::type_bf16, {2, 20, 3, 4, 64});
  packed.argument(xla::type_s32, {4});
  packed.set_dropout();
  packed.result({2, 20, 4, 64});
  CHECK(prefill_arguments(packed.frame(), XlaExpressions(packed.frame())).dropout.state == Frame::at(1));
}

TEST_CASE("a call of XLA without expressions has none, and may have its tensors in one buffer") {
  Frame call;
  call.argument(xla::type_bf16, {2, 20, 3, 4, 64});
  call.result({2, 20, 4, 64});
  const XlaExpressions expressions(call.frame());
  const attune_prefill_args args = prefill_arguments(call.frame(), expressions);
  CHECK(args.score == nullptr);
  CHECK(args.mask == nullptr);
  CHECK(args.param_count == 0);
  CHECK(args.sink == nullptr);
  CHECK(args.dropout.p == 0);
  CHECK(args.dropout.state == nullptr);
  CHECK(args.v.stride_seq == 3 * 4 * 64);
}

TEST_CASE("gradients of a call of XLA take its results, their gradients and the arrays of its expressions") {
  for (const bool with_dlse : {false, true}) {
    Frame call;
    add_inputs(call);
    call.argument(xla::type_bf16, {2, 20, 4, 32});
    call.argument(xla::type_f32, {2, 4, 20});
    call.argument(xla::type_bf16, {2, 20, 4, 32});
    if (with_dlse) call.argument(xla::type_f32, {2, 4, 20});
    add_params(call);
    for (const int heads : {4, 2, 2}) call.result({2, 20, heads, 64});
    const XlaExpressions expressions(call.frame());
    const attune_backward_args args = backward_arguments(call.frame(), expressions);
    CHECK(args.o.data == Frame::at(3));
    CHECK(args.lse == Frame::at(4));
    CHECK(args.dout.data == Frame::at(5));
    CHECK(args.dlse == (with_dlse ? Frame::at(6) : nullptr));
    REQUIRE(args.param_count == 2);
    CHECK(args.params[1].data == Frame::at(with_dlse ? 8 : 7));
    CHECK(args.dv.data == Frame::at(with_dlse ? 11 : 10));
  }
}

TEST_CASE("buffers and attributes that attune did not register are refused") {
  const auto refused = [](auto&& change) {
    Frame call;
    add_inputs(call);
    call.result({2, 20, 4, 32});
    change(call);
    CHECK_THROWS_AS(prefill_arguments(call.frame(), XlaExpressions(call.frame())), Error);
  };
  refused([](Frame& call) { call.set_text("params", "slope doc doc doc"); });  // more than there are buffers
  refused([](Frame& call) { call.set_text("params", "slope"); });              // of another element type
  refused([](Frame& call) { call.set_sink(); });
  refused([](Frame& call) { call.argument(xla::type_f32, {4}); });  // a sink that is not announced
  refused([](Frame& call) { call.set_dropout(); });
  refused([](Frame& call) {
    call.argument(xla::type_f32, {4});  // no seed and offset
    call.set_dropout();
  });
}
