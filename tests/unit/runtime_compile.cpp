#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/base/error.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/compiler/compile.hpp"
#include "tests/harness/needs.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;

namespace {

/// NVRTC, or nothing (said once) on a machine without it.
const Compiler* compiler() {
  static const std::unique_ptr<Compiler> opened = []() -> std::unique_ptr<Compiler> {
    try {
      return std::make_unique<Compiler>();
    } catch (const Error& error) {
      MESSAGE("skipped: " << error.what());
      return nullptr;
    }
  }();
  return opened.get();
}

Source hand_made(const std::string& body) {
  return {Variant{}, "hand_made", "extern \"C\" __global__ void hand_made(float* out) { " + body + " }\n"};
}

constexpr const char* canned_log =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'prefill' for 'sm_80'\n"
    "ptxas info    : Function properties for prefill\n"
    "    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 600 bytes "
    "cmem[0]\n";

}  // namespace

TEST_CASE("usage comes from ptxas's report") {
  const ResourceUsage usage = parse_usage(canned_log, "");
  CHECK(usage.registers == 168);
  CHECK(usage.static_shared_bytes == 1024);
  CHECK(usage.stack_bytes == 16);
  CHECK(usage.spill_stores == 24);
  CHECK(usage.spill_loads == 32);
  CHECK(usage.code_bytes == 0);
  CHECK_FALSE(usage.serialized);
  const std::string lost =
      "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to insufficient register resources for the wgmma pipeline\n";
  CHECK(parse_usage(lost + canned_log, "").serialized);
}

TEST_CASE("usage of a report that is none is zero") {
  for (const char* log : {"", " registers", "Used registers", "Used 99999999999999999999 registers", "bytes smem"}) {
    CAPTURE(log);
    const ResourceUsage usage = parse_usage(log, "");
    CHECK(usage.registers == 0);
    CHECK(usage.static_shared_bytes == 0);
    CHECK(usage.spill_loads == 0);
  }
}

TEST_CASE("usage of several functions is that of the largest") {
  const ResourceUsage usage = parse_usage(std::string("Used 40 registers\n") + canned_log + "Used 7 registers\n", "");
  CHECK(usage.registers == 168);
}

TEST_CASE("options name the architecture and ask for the report") {
  const auto options = compile_options(families()[prefill_sm80], 90);
  CHECK(std::count(options.begin(), options.end(), "--gpu-architecture=sm_90") == 1);
  CHECK(std::count(options.begin(), options.end(), "--ptxas-options=-v") == 1);
  for (const std::string& flag : compile_flags()) CHECK(std::count(options.begin(), options.end(), flag) == 1);
  const auto specific = compile_options(families()[prefill_sm90], 90);
  CHECK(std::count(specific.begin(), specific.end(), "--gpu-architecture=sm_90a") == 1);
}

TEST_CASE("ATTUNE_LINE_INFO asks for the source's lines, under a key of their own in the cache") {
  const testing::EnvironmentVariable without("ATTUNE_LINE_INFO", std::nullopt);
  const CacheKey plain = cache_key(Variant{}, 90, "13.0");
  const testing::EnvironmentVariable with("ATTUNE_LINE_INFO", "1");
  const auto options = compile_options(families()[prefill_sm80], 90);
  CHECK(std::count(options.begin(), options.end(), "--generate-line-info") == 1);
  CHECK(cache_key(Variant{}, 90, "13.0").hash != plain.hash);
}

TEST_CASE("a kernel's PTX can be read") {
  if (compiler() == nullptr) return;
  const std::string ptx = compiler()->ptx(hand_made("out[threadIdx.x] = 2.0f;"), 80);
  CHECK(ptx.find(".visible .entry hand_made(") != std::string::npos);
  CHECK(ptx.find(".target sm_80") != std::string::npos);
}

TEST_CASE("a hand-made kernel compiles to a cubin") {
  if (compiler() == nullptr) return;
  CHECK(compiler()->version().find('.') != std::string::npos);
  CHECK(compiler()->identity().starts_with(compiler()->version()));
  CHECK(compiler()->path().find("nvrtc") != std::string::npos);
  const Compiled compiled = compiler()->compile(hand_made("out[threadIdx.x] = 2.0f;"), 80);
  CHECK(
      compiled.image.starts_with("\x7f"
                                 "ELF"));
  CHECK(compiled.usage.registers > 0);
  CHECK(compiled.usage.code_bytes > 0);
  CHECK(compiled.usage.code_bytes < static_cast<long long>(compiled.image.size()));
  CHECK(compiled.usage.spill_stores == 0);
  CHECK(compiled.seconds > 0);
}

TEST_CASE("static shared memory and spills are reported") {
  if (compiler() == nullptr) return;
  const Compiled compiled = compiler()->compile(
      hand_made("__shared__ float tile[256]; tile[threadIdx.x] = out[threadIdx.x]; __syncthreads(); "
                "out[threadIdx.x] = tile[255 - threadIdx.x];"),
      80);
  CHECK(compiled.usage.static_shared_bytes == 1024);
}

TEST_CASE("a source that does not compile fails with NVRTC's words") {
  if (compiler() == nullptr) return;
  try {
    static_cast<void>(compiler()->compile(hand_made("out[0] = no_such_name;"), 80));
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_COMPILE_ERROR);
    const std::string what = error.what();
    CHECK(what.find("no_such_name") != std::string::npos);
    CHECK(what.find("hand_made") != std::string::npos);
    CHECK(what.find("sm_80") != std::string::npos);
  }
}

TEST_CASE("an architecture that NVRTC does not know fails in words") {
  if (compiler() == nullptr) return;
  try {
    static_cast<void>(compiler()->compile(hand_made(""), 12));
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_COMPILE_ERROR);
    CHECK(std::string(error.what()).find("sm_12") != std::string::npos);
  }
}

TEST_CASE("the code size of a cut or altered cubin never reads beyond it") {
  if (compiler() == nullptr) return;
  const std::string cubin = compiler()->compile(hand_made("out[0] = 1.0f;"), 80).image;
  const long long whole = parse_usage("", cubin).code_bytes;
  REQUIRE(whole > 0);
  for (std::size_t size = 0; size < cubin.size(); ++size) {
    const std::string cut(cubin.data(), size);  // exactly sized, so that a sanitizer sees any overrun
    const long long bytes = parse_usage("", cut).code_bytes;
    CHECK_FALSE((bytes < 0 || bytes > whole));
  }
  for (std::size_t at = 0; at < cubin.size(); ++at) {
    std::string altered = cubin;
    altered[at] = static_cast<char>(0xff);
    CHECK_FALSE(parse_usage("", altered).code_bytes < 0);
  }
}

TEST_CASE("default variants compile for 8.0 and 9.0 without a spill") {
  if (compiler() == nullptr) return;
  for (const int head_dim : {64, 128, 256}) {
    for (const auto& [family, capability] : {std::pair{prefill_sm80, 80}, {prefill_sm80, 90}, {prefill_sm90, 90}}) {
      const Variant variant = default_variant(family, need_for(Dtype::bf16, head_dim, head_dim == 128), 99 * 1024);
      const Result<Source> source = emit(variant, embedded_templates(), "made at run time");
      for (const Diagnostic& problem : source.problems) MESSAGE(problem.text());
      REQUIRE(source.ok());
      CAPTURE(source.value.name);
      CAPTURE(capability);
      const Compiled compiled = compiler()->compile(source.value, capability);
      CHECK(compiled.usage.registers > 32);
      CHECK(compiled.usage.spill_stores == 0);
      CHECK(compiled.usage.spill_loads == 0);
      CHECK(compiled.usage.stack_bytes == 0);
      CHECK(compiled.usage.code_bytes > 1000);
    }
  }
}

TEST_CASE("kernels of scores that tilt, and of masks, leave ptxas the registers of products under way") {
  if (compiler() == nullptr) return;
  const int slope =
      *expression::number_of_text("s + slope[h] * (k - p) where slope: fp32[head]", expression::Use::score);
  const int documents = *expression::number_of_text(
      "document[b, p] == document[b, k] where document: int32[batch, position]", expression::Use::mask);
  std::vector<Variant> variants;
  for (const int head_dim : {64, 128, 256}) {
    Variant variant = default_variant(prefill_sm90, need_for(Dtype::bf16, head_dim, true), 227 * 1024);
    variant.score = slope;
    variants.push_back(variant);
    variant.dropout = 1;
    variants.push_back(variant);
    variant.dropout = 0;
    variant.score = 0;
    variant.mask = documents;
    variants.push_back(variant);
  }
  Variant wide = default_variant(prefill_sm90, need_for(Dtype::bf16, 128, true), 227 * 1024);
  wide.B_c = 160;  // as tables of the H200 have it
  wide.Q_columns_in_registers = 48;
  wide.P_residual_keys = 16;
  wide.score = slope;
  variants.push_back(wide);
  for (const Variant& variant : variants) {
    const Result<Source> source = emit(variant, embedded_templates(), "made at run time");
    REQUIRE(source.ok());
    CAPTURE(source.value.name);
    const ResourceUsage usage = compiler()->compile(source.value, 90).usage;
    CHECK(usage.spill_stores == 0);
    CHECK_FALSE(usage.serialized);
  }
}
