#include "tests/gpu/harness.hpp"

#include <doctest/doctest.h>

#include <utility>

namespace attune::gpu_tests {
namespace {

template <class T>
std::size_t bytes_of(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

}  // namespace

const cli::Gpu& gpu() {
  static const cli::Found<cli::Gpu> found = cli::find_gpu();
  REQUIRE_MESSAGE(found, found.problem);
  return *found.value;
}

TestRegistry::TestRegistry(attune_compile_policy policy, attune_device device) {
  attune_options options{};
  options.struct_size = sizeof(attune_options);
  options.compile_policy = policy;
  options.device = device;
  options.emulator_seed = 1;
  REQUIRE(attune_registry_create(&options, &registry_) == ATTUNE_OK);
}

TestRegistry::~TestRegistry() { attune_registry_destroy(registry_); }

TestCall::TestCall(CallImage image)
    : image_(std::move(image)),
      in_(gpu().driver, bytes_of(image_.in())),
      out_(gpu().driver, bytes_of(image_.poisoned_out())),
      lse_(gpu().driver, bytes_of(image_.poisoned_lse())),
      cu_seqlens_q_(gpu().driver, bytes_of(image_.sequences().cu_seqlens_q)),
      cu_seqlens_k_(gpu().driver, bytes_of(image_.sequences().cu_seqlens_k)),
      seqused_k_(gpu().driver, bytes_of(image_.sequences().seqused_k)),
      seqused_q_(gpu().driver, bytes_of(image_.sequences().seqused_q)),
      block_table_(gpu().driver, bytes_of(image_.sequences().block_table)) {
  in_.upload(image_.in());
  cu_seqlens_q_.upload(image_.sequences().cu_seqlens_q);
  cu_seqlens_k_.upload(image_.sequences().cu_seqlens_k);
  seqused_k_.upload(image_.sequences().seqused_k);
  seqused_q_.upload(image_.sequences().seqused_q);
  block_table_.upload(image_.sequences().block_table);
  poison();
  const auto array = [](const DeviceBuffer& buffer, const std::vector<std::int32_t>& values) {
    return values.empty() ? nullptr : static_cast<const std::int32_t*>(buffer.data());
  };
  args = image_.args(in_.data(), out_.data(), lse_.data(),
                     {.cu_seqlens_q = array(cu_seqlens_q_, image_.sequences().cu_seqlens_q),
                      .cu_seqlens_k = array(cu_seqlens_k_, image_.sequences().cu_seqlens_k),
                      .seqused_k = array(seqused_k_, image_.sequences().seqused_k),
                      .block_table = array(block_table_, image_.sequences().block_table),
                      .seqused_q = array(seqused_q_, image_.sequences().seqused_q)});
}

void TestCall::poison() const {
  out_.upload(image_.poisoned_out());
  lse_.upload(image_.poisoned_lse());
}

attune_status TestCall::run(const TestRegistry& registry, void* stream) const {
  const attune_status status = attune_prefill(registry.get(), &args, stream);
  gpu().driver.synchronize();
  return status;
}

TestCall::Output TestCall::fetch() const {
  std::vector<std::uint16_t> out = image_.poisoned_out();
  std::vector<float> lse = image_.poisoned_lse();
  std::vector<std::uint16_t> in = image_.in();
  out_.download(out);
  lse_.download(lse);
  in_.download(in);
  return image_.output(std::move(out), std::move(lse), in);
}

void check_call(const TestRegistry& registry, const TestCall& call) {
  CAPTURE(call.image().problem().text());
  const attune_status status = call.run(registry);
  CHECK_MESSAGE(status == ATTUNE_OK, attune_last_error());
  if (status == ATTUNE_OK) call.image().check(call.fetch(), call.args.softmax_scale);
}

void check_call(const TestRegistry& registry, const Problem& problem, Layout layout, std::uint64_t seed) {
  CAPTURE(name_of(layout));
  check_call(registry, TestCall(problem, layout, seed));
}

}  // namespace attune::gpu_tests
