// The C ABI from a caller's side: what misuse gets, on any machine. No test here has a CUDA context.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "attune/attune.h"
#include "attune/attune.hpp"
#include "generator/variant.hpp"
#include "tests/unit/closed_registry.hpp"

namespace {

using attune::testing::address;
using attune::testing::RegistryHandle;

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
  args.q = attune::api::bshd(address(0x1000), 100, 8, 128);
  args.k = attune::api::bshd(address(0x2000), 200, 2, 128);
  args.v = attune::api::bhsd(address(0x3000), 200, 2, 128);
  args.o = attune::api::bshd(address(0x4000), 100, 8, 128);
  args.lse = static_cast<float*>(address(0x5000));
  return args;
}

bool last_error_has(const std::string& text) {
  return std::string(attune_last_error()).find(text) != std::string::npos;
}

struct Misuse {
  const char* says;
  std::function<void(attune_prefill_args&)> apply;
};

}  // namespace

TEST_CASE("every bad field gets a status and a message that names it") {
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 8 * 8;
  const std::vector<Misuse> misuses = {
      {"struct_size is 0", [](auto& a) { a.struct_size = 0; }},
      {"struct_size is 8", [](auto& a) { a.struct_size = 8; }},
      {"dtype is 7", [](auto& a) { std::memset(&a.dtype, 0, sizeof(a.dtype)), std::memset(&a.dtype, 7, 1); }},
      {"batch is -1", [](auto& a) { a.batch = -1; }},
      {"seqlen_q is -1", [](auto& a) { a.seqlen_q = -1; }},
      {"seqlen_k is -5", [](auto& a) { a.seqlen_k = -5; }},
      {"heads_q is 0", [](auto& a) { a.heads_q = 0; }},
      {"heads_kv is 0", [](auto& a) { a.heads_kv = 0; }},
      {"heads_kv is 3; it must divide heads_q, which is 8", [](auto& a) { a.heads_kv = 3; }},
      {"heads_kv is 16", [](auto& a) { a.heads_kv = 16; }},
      {"head_dim is 257; it must be from 1 to 256", [](auto& a) { a.head_dim = 257; }},
      {"k.stride_head is 59; it must be a multiple of 8 elements, 0 or more",
       [](auto& a) { a.head_dim = 59, a.k = attune::api::bshd(a.k.data, 200, 2, 59); }},
      {"head_dim is 264", [](auto& a) { a.head_dim = 264; }},
      {"head_dim is 0", [](auto& a) { a.head_dim = 0; }},
      {"head_dim_v is 257; it must be from 1 to 256, or 0 where it is head_dim", [](auto& a) { a.head_dim_v = 257; }},
      {"head_dim_v is -8", [](auto& a) { a.head_dim_v = -8; }},
      {"head_dim_v is 264", [](auto& a) { a.head_dim_v = 264; }},
      {"softmax_scale is -1", [](auto& a) { a.softmax_scale = -1; }},
      {"softmax_scale is nan", [](auto& a) { a.softmax_scale = std::nanf(""); }},
      {"softmax_scale is inf", [](auto& a) { a.softmax_scale = HUGE_VALF; }},
      {"causal is 2; it must be 0 or 1", [](auto& a) { a.causal = 2; }},
      {"q.data is null", [](auto& a) { a.q.data = nullptr; }},
      {"k.data is null", [](auto& a) { a.k.data = nullptr; }},
      {"v.data is null", [](auto& a) { a.v.data = nullptr; }},
      {"o.data is null", [](auto& a) { a.o.data = nullptr; }},
      {"q.data is 0x1002; it must be a multiple of 16 bytes", [](auto& a) { a.q.data = address(0x1002); }},
      {"o.data is 0x4008", [](auto& a) { a.o.data = address(0x4008); }},
      {"lse is 0x5002; it must be a multiple of 4 bytes",
       [](auto& a) { a.lse = static_cast<float*>(address(0x5002)); }},
      {"q.stride_batch is 12; it must be a multiple of 8", [](auto& a) { a.q.stride_batch = 12; }},
      {"k.stride_seq is 129", [](auto& a) { a.k.stride_seq = 129; }},
      {"v.stride_head is -128", [](auto& a) { a.v.stride_head = -128; }},
      {"o.stride_seq is 0; rows that are written must not share memory", [](auto& a) { a.o.stride_seq = 0; }},
      {"o.stride_batch is 4", [](auto& a) { a.o.stride_batch = 4; }},
      {"k: strides", [](auto& a) { a.k.stride_batch = far; }},
      {"reach beyond 2^63 bytes", [](auto& a) { a.q.stride_seq = far; }},
      {"reach beyond 2^63 bytes", [](auto& a) { a.q.stride_seq = far / 99 / 8 * 8; }},
  };
  const RegistryHandle registry;
  for (const Misuse& misuse : misuses) {
    CAPTURE(misuse.says);
    attune_prefill_args args = good_args();
    misuse.apply(args);
    CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
    CHECK(attune_prefill_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
  }
}

TEST_CASE("all mistakes of one call are named at once") {
  const RegistryHandle registry;
  attune_prefill_args args = good_args();
  args.q.data = nullptr;
  args.o.stride_head = 3;
  args.causal = -1;
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  for (const char* field : {"q.data", "o.stride_head", "causal"}) CHECK_MESSAGE(last_error_has(field), field);
}

TEST_CASE("null handles are refused, destroying one is allowed") {
  const attune_prefill_args args = good_args();
  const RegistryHandle registry;
  CHECK(attune_prefill(nullptr, &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("registry is null"));
  CHECK(attune_prefill_prepare(nullptr, &args) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("registry is null"));
  CHECK(attune_prefill(registry.get(), nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("args is null"));
  CHECK(attune_prefill_prepare(registry.get(), nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_registry_create(nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("registry is null"));
  attune_registry_destroy(nullptr);
}

TEST_CASE("options are checked, and the handle is null when they are bad") {
  attune_registry* registry = reinterpret_cast<attune_registry*>(address(0x10));
  attune_options options{};
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("attune_options.struct_size is 0"));
  CHECK(registry == nullptr);
  options.struct_size = sizeof(options);
  std::memset(&options.compile_policy, 0, sizeof(options.compile_policy));
  std::memset(&options.compile_policy, 9, 1);
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("attune_options.compile_policy is 9"));
  options.compile_policy = ATTUNE_COMPILE_MISSING;
  std::memset(&options.device, 0, sizeof(options.device));
  std::memset(&options.device, 2, 1);
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("attune_options.device is 2"));
  options.device = ATTUNE_DEVICE_CUDA;
  options.compile_policy = ATTUNE_COMPILE_EXACT;
  options.cache_dir = "/nowhere/at/all";
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_OK);
  attune_registry_destroy(registry);
  CHECK(attune_registry_create(nullptr, &registry) == ATTUNE_OK);
  attune_registry_destroy(registry);
}

TEST_CASE("a question for what serves a call names what is wrong with it") {
  const RegistryHandle registry;
  const attune_prefill_args args = good_args();
  attune_serving serving{};
  CHECK(attune_registry_serving(registry.get(), ATTUNE_PREFILL, &args, &serving) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("attune_serving.struct_size is 0"));
  serving.struct_size = sizeof(serving);
  CHECK(attune_registry_serving(nullptr, ATTUNE_PREFILL, &args, &serving) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_registry_serving(registry.get(), ATTUNE_PREFILL, nullptr, &serving) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("args is null"));
  CHECK(attune_registry_serving(registry.get(), ATTUNE_PREFILL, &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  attune_prefill_args bad = args;
  bad.head_dim = 300;
  CHECK(attune_registry_serving(registry.get(), ATTUNE_PREFILL, &bad, &serving) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("head_dim is 300"));
}

TEST_CASE("no variant's name is longer than attune_serving has room for") {
  for (const attune::Family& family : attune::families()) {
    attune::Variant variant = family.defaults;
    for (const std::string_view key : family.keys) {
      const attune::Field& field = *attune::find_field(key);
      if (field.kind == attune::FieldKind::expression) {
        const char* const text = field.key == "mask" ? "names_of_16_char[k] < 1 where names_of_16_char: int32[9]"
                                                     : "names_of_16_char[k] where names_of_16_char: int32[9]";
        variant.*field.member = attune::parse_value(field, text).value();
        continue;
      }
      variant.*field.member = field.kind == attune::FieldKind::integer   ? field.maximum
                              : field.kind == attune::FieldKind::boolean ? 1
                                                                         : static_cast<int>(field.choices.size()) - 1;
    }
    CHECK(variant.name().size() < sizeof(attune_serving::now));
  }
}

TEST_CASE("counters fill what the caller has room for, and no more") {
  const RegistryHandle registry;
  struct Larger {
    attune_counters counters;
    char future[16];
  } larger{};
  std::memset(&larger, 0x55, sizeof(larger));
  larger.counters.struct_size = sizeof(larger);
  CHECK(attune_registry_counters(registry.get(), &larger.counters) == ATTUNE_OK);
  CHECK(larger.counters.struct_size == sizeof(larger));
  CHECK(larger.counters.hits == 0);
  CHECK(larger.counters.pending == 0);
  CHECK(larger.future[0] == 0x55);
  larger.counters.struct_size = sizeof(attune_counters) - 1;
  CHECK(attune_registry_counters(registry.get(), &larger.counters) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("attune_counters.struct_size is 95; it must be sizeof(attune_counters), at least 96"));
  CHECK(attune_registry_counters(nullptr, &larger.counters) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_registry_counters(registry.get(), nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("counters is null"));
  CHECK(attune_registry_finish(registry.get()) == ATTUNE_OK);
  CHECK(attune_registry_finish(nullptr) == ATTUNE_INVALID_ARGUMENT);
}

TEST_CASE("items to prepare are checked before any is tried") {
  const RegistryHandle registry;
  const attune_prefill_args args = good_args();
  attune_prepare_item items[] = {{ATTUNE_PREFILL, &args}, {ATTUNE_PREFILL, nullptr}};
  int reports = 0;
  const attune_prepare_callback count = [](void* user, const attune_prepare_progress*) { ++*static_cast<int*>(user); };
  CHECK(attune_prepare_all(registry.get(), items, 2, 0, count, &reports) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("items[1].args is null"));
  items[1].args = &args;
  std::memset(&items[1].operation, 0, sizeof(items[1].operation));
  std::memset(&items[1].operation, 7, 1);
  CHECK(attune_prepare_all(registry.get(), items, 2, 0, count, &reports) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("items[1].operation is 7"));
  CHECK(attune_prepare_all(registry.get(), items, 1, -1, count, &reports) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("threads is -1"));
  CHECK(attune_prepare_all(registry.get(), nullptr, 1, 0, count, &reports) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("items is null"));
  CHECK(attune_prepare_all(registry.get(), nullptr, 0, 0, count, &reports) == ATTUNE_OK);
  CHECK(reports == 0);
}

TEST_CASE("options of a caller older than the emulator are served, with a GPU in mind") {
  struct Older {
    size_t struct_size;
    attune_compile_policy compile_policy;
    const char* cache_dir;
  };
  attune_options options{};
  std::memset(&options, 0xff, sizeof(options));  // what lies behind an older caller's struct
  options.struct_size = sizeof(Older);
  options.compile_policy = ATTUNE_COMPILE_FROZEN;
  options.cache_dir = nullptr;
  attune_registry* registry = nullptr;
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_OK);
  const attune_prefill_args args = good_args();
  CHECK(attune_prefill_prepare(registry, &args) == ATTUNE_NO_DEVICE);
  attune_registry_destroy(registry);
  options.struct_size = sizeof(Older) - 1;
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("at least 24"));
}

TEST_CASE("arguments of a caller older than head_dim_v are served, with V as wide as K") {
  constexpr size_t older = offsetof(attune_prefill_args, causal) + sizeof(int32_t);
  const RegistryHandle registry;
  attune_prefill_args args = good_args();
  args.head_dim_v = -1;  // what lies behind an older caller's struct
  args.struct_size = older;
  args.batch = 0;
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK);
  args.struct_size = offsetof(attune_prefill_args, head_dim_v) + sizeof(int32_t);
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("head_dim_v is -1"));
  args.struct_size = older - 1;
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("attune_prefill_args.struct_size is 183; it must be sizeof(attune_prefill_args), at least 184"));
}

TEST_CASE("a newer caller's larger struct is served") {
  struct Larger {
    attune_prefill_args args;
    char future[64];
  } larger{};
  larger.args = good_args();
  larger.args.struct_size = sizeof(larger);
  larger.args.batch = 0;
  const RegistryHandle registry;
  CHECK(attune_prefill(registry.get(), &larger.args, nullptr) == ATTUNE_OK);
}

TEST_CASE("nothing to compute needs neither pointers nor a GPU") {
  const RegistryHandle registry;
  attune_prefill_args args = good_args();
  args.batch = 0;
  args.q.data = args.k.data = args.v.data = args.o.data = nullptr;
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK);
  args = good_args();
  args.seqlen_q = 0;
  args.q.data = args.k.data = args.v.data = args.o.data = nullptr;
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK);
}

TEST_CASE("good arguments without a GPU or context get ATTUNE_NO_DEVICE and advice") {
  const RegistryHandle registry;
  std::vector<attune_prefill_args> calls(4, good_args());
  calls[1].seqlen_k = 0;
  calls[1].k.data = calls[1].v.data = nullptr;
  calls[2].batch = 1;  // a dimension of one element may have any stride
  calls[2].q.stride_batch = calls[2].o.stride_batch = 1;
  calls[3].k.stride_batch = 0;  // one K for every batch element
  calls[3].lse = nullptr;
  for (const attune_prefill_args& args : calls) {
    CHECK(attune_prefill_prepare(registry.get(), &args) == ATTUNE_NO_DEVICE);
    CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);
    const bool advised = last_error_has("install the driver") || last_error_has("cuInit failed") ||
                         last_error_has("no CUDA context is current");
    CHECK_MESSAGE(advised, attune_last_error());
  }
}

TEST_CASE("the last error belongs to its thread") {
  const RegistryHandle registry;
  attune_prefill_args args = good_args();
  args.causal = 5;
  CHECK(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  std::string seen = "unset";
  std::thread([&] { seen = attune_last_error(); }).join();
  CHECK(seen.empty());
  CHECK(last_error_has("causal is 5"));
}

TEST_CASE("the version is three numbers") {
  const std::string version = attune_version();
  CHECK(std::count(version.begin(), version.end(), '.') == 2);
  CHECK(version.find_first_not_of("0123456789.") == std::string::npos);
}

TEST_CASE("the C++ layouts have the strides they say") {
  namespace at = attune::api;
  void* data = address(0x1000);
  const at::Tensor bshd = at::bshd(data, 5, 3, 64);
  CHECK(bshd.stride_batch == 5 * 3 * 64);
  CHECK(bshd.stride_seq == 3 * 64);
  CHECK(bshd.stride_head == 64);
  const at::Tensor bhsd = at::bhsd(data, 5, 3, 64);
  CHECK(bhsd.stride_batch == 5 * 3 * 64);
  CHECK(bhsd.stride_seq == 64);
  CHECK(bhsd.stride_head == 5 * 64);
  const at::Tensor keys = at::packed(data, 5, 8, 64, 4);
  CHECK(keys.data == address(0x1000 + 4 * 64 * 2));
  CHECK(keys.stride_batch == 5 * 8 * 64);
  CHECK(keys.stride_seq == 8 * 64);
  CHECK(keys.stride_head == 64);
  CHECK(at::packed(nullptr, 5, 8, 64, 4).data == nullptr);
}

TEST_CASE("the C++ API passes everything on and throws what it gets back") {
  namespace at = attune::api;
  const at::Attention attention({.compile = at::Compile::frozen, .cache_dir = "/nowhere/at/all"});
  at::Prefill call{.shape = {.dtype = at::Dtype::fp16,
                             .batch = 2,
                             .seqlen_q = 3,
                             .seqlen_k = 4,
                             .heads_q = 6,
                             .heads_kv = 2,
                             .head_dim = 64,
                             .causal = true}};
  const attune_prefill_args args = call.args();
  CHECK(args.struct_size == sizeof(args));
  CHECK(args.dtype == ATTUNE_FP16);
  CHECK(args.batch == 2);
  CHECK(args.seqlen_q == 3);
  CHECK(args.seqlen_k == 4);
  CHECK(args.heads_q == 6);
  CHECK(args.heads_kv == 2);
  CHECK(args.head_dim == 64);
  CHECK(args.causal == 1);
  CHECK(args.head_dim_v == 0);
  CHECK(args.softmax_scale == 0.125F);
  call.shape.head_dim_v = 32;
  CHECK(call.args().head_dim_v == 32);
  CHECK(call.args().softmax_scale == 0.125F);
  call.shape.head_dim_v = 0;
  call.softmax_scale = 2.0F;
  CHECK(call.args().softmax_scale == 2.0F);

  try {
    attention.prepare(call);
    FAIL("null pointers were accepted");
  } catch (const at::Error& error) {
    CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
    CHECK(std::string(error.what()).find("q.data is null") != std::string::npos);
  }
  call.shape.head_dim = 0;
  CHECK_THROWS_AS(attention(call), at::Error);
  call.shape.head_dim = 64;
  call.shape.batch = 0;
  CHECK_NOTHROW(attention(call));
}
