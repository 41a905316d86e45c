#include "tests/gpu/harness.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "runtime/cli/problems.hpp"

namespace attune::gpu_tests {
namespace {

constexpr std::uint16_t poison_bits = 0x7fff;  // a NaN in fp16 and in bf16
constexpr std::size_t guard = 512;             // elements around each tensor

std::size_t rows_of(const Problem& problem) {
  return static_cast<std::size_t>(problem.batch) * problem.heads_q * problem.seqlen_q;
}

/// Places one tensor from `cursor` on, which moves past it and a guard.
Placement place(Layout layout, const Problem& problem, int seqlen, int heads, std::size_t& cursor) {
  const std::int64_t dim = problem.head_dim;
  Placement at{.first = cursor};
  switch (layout) {
    case Layout::bhsd:
      at.stride_seq = dim;
      at.stride_head = dim * seqlen;
      at.stride_batch = dim * seqlen * heads;
      break;
    case Layout::gaps:
      at.stride_head = dim + 8;
      at.stride_seq = at.stride_head * heads + 24;
      at.stride_batch = at.stride_seq * seqlen + 64;
      break;
    case Layout::bshd:
    case Layout::packed:
      at.stride_head = dim;
      at.stride_seq = dim * heads;
      at.stride_batch = dim * heads * seqlen;
      break;
  }
  cursor += static_cast<std::size_t>(at.stride_batch) * problem.batch + guard;
  return at;
}

template <class Function>
void for_each_element(const Problem& problem, const Placement& at, int seqlen, int heads, const Function& visit) {
  std::size_t index = 0;
  for (int b = 0; b < problem.batch; ++b) {
    for (int s = 0; s < seqlen; ++s) {
      for (int h = 0; h < heads; ++h) {
        const std::size_t row = at.first + b * at.stride_batch + s * at.stride_seq + h * at.stride_head;
        for (int d = 0; d < problem.head_dim; ++d) visit(row + d, index++);
      }
    }
  }
}

attune_tensor tensor(const cli::DeviceBuffer& buffer, const Placement& at) {
  return {static_cast<std::uint16_t*>(buffer.data()) + at.first, at.stride_batch, at.stride_seq, at.stride_head};
}

HostTensor host_tensor(const std::vector<std::uint16_t>& buffer, const Placement& at) {
  return {buffer.data() + at.first, at.stride_batch, at.stride_seq, at.stride_head};
}

}  // namespace

std::string name_of(Layout layout) {
  switch (layout) {
    case Layout::bshd:
      return "BSHD";
    case Layout::bhsd:
      return "BHSD";
    case Layout::packed:
      return "packed QKV";
    case Layout::gaps:
      return "BSHD with gaps";
  }
  return "?";
}

const cli::Gpu& gpu() {
  static const cli::Found<cli::Gpu> found = cli::find_gpu();
  REQUIRE_MESSAGE(found, found.problem);
  return *found.value;
}

TestRegistry::TestRegistry(attune_compile_policy policy) {
  const attune_options options{.struct_size = sizeof(attune_options), .compile_policy = policy, .cache_dir = nullptr};
  REQUIRE(attune_registry_create(&options, &registry_) == ATTUNE_OK);
}

TestRegistry::~TestRegistry() { attune_registry_destroy(registry_); }

TestCall::TestCall(const Problem& problem, Layout layout, std::uint64_t seed)
    : problem_(problem),
      host_in_([&] {
        std::size_t cursor = guard;
        if (layout == Layout::packed) {
          REQUIRE(problem.seqlen_q == problem.seqlen_k);
          q_ = place(layout, problem, problem.seqlen_q, problem.heads_q + 2 * problem.heads_kv, cursor);
          k_ = v_ = q_;
          k_.first += static_cast<std::size_t>(problem.heads_q) * problem.head_dim;
          v_.first = k_.first + static_cast<std::size_t>(problem.heads_kv) * problem.head_dim;
        } else {
          q_ = place(layout, problem, problem.seqlen_q, problem.heads_q, cursor);
          k_ = place(layout, problem, problem.seqlen_k, problem.heads_kv, cursor);
          v_ = place(layout, problem, problem.seqlen_k, problem.heads_kv, cursor);
        }
        std::vector<std::uint16_t> image(cursor, poison_bits);
        const cli::HostInputs inputs(problem, seed);
        const auto fill = [&](const Placement& at, int seqlen, int heads, const std::vector<std::uint16_t>& values) {
          for_each_element(problem, at, seqlen, heads, [&](std::size_t to, std::size_t i) { image[to] = values[i]; });
        };
        fill(q_, problem.seqlen_q, problem.heads_q, inputs.q);
        fill(k_, problem.seqlen_k, problem.heads_kv, inputs.k);
        fill(v_, problem.seqlen_k, problem.heads_kv, inputs.v);
        return image;
      }()),
      o_elements_([&] {
        std::size_t cursor = guard;
        o_ = place(layout, problem, problem.seqlen_q, problem.heads_q, cursor);
        return cursor;
      }()),
      in_(gpu().driver, host_in_.size() * sizeof(std::uint16_t)),
      out_(gpu().driver, o_elements_ * sizeof(std::uint16_t)),
      lse_(gpu().driver, (rows_of(problem) + 2 * guard) * sizeof(float)) {
  in_.upload(host_in_);
  poison();
  args.struct_size = sizeof(args);
  args.dtype = problem.dtype == Dtype::fp16 ? ATTUNE_FP16 : ATTUNE_BF16;
  args.q = tensor(in_, q_);
  args.k = tensor(in_, k_);
  args.v = tensor(in_, v_);
  args.o = tensor(out_, o_);
  args.lse = static_cast<float*>(lse_.data()) + guard;
  args.batch = problem.batch;
  args.seqlen_q = problem.seqlen_q;
  args.seqlen_k = problem.seqlen_k;
  args.heads_q = problem.heads_q;
  args.heads_kv = problem.heads_kv;
  args.head_dim = problem.head_dim;
  args.softmax_scale = static_cast<float>(cli::usual_scale(problem));
  args.causal = problem.causal ? 1 : 0;
}

void TestCall::poison() const {
  out_.upload(std::vector<std::uint16_t>(o_elements_, poison_bits));
  lse_.upload(std::vector<float>(rows_of(problem_) + 2 * guard, std::numeric_limits<float>::quiet_NaN()));
}

attune_status TestCall::run(const TestRegistry& registry, void* stream) const {
  const attune_status status = attune_prefill(registry.get(), &args, stream);
  gpu().driver.synchronize();
  return status;
}

TestCall::Output TestCall::fetch() const {
  std::vector<std::uint16_t> image(o_elements_);
  std::vector<float> lse_image(rows_of(problem_) + 2 * guard);
  std::vector<std::uint16_t> in_after(host_in_.size());
  out_.download(image);
  lse_.download(lse_image);
  in_.download(in_after);
  Output output;
  output.o.resize(rows_of(problem_) * problem_.head_dim);
  for_each_element(problem_, o_, problem_.seqlen_q, problem_.heads_q, [&](std::size_t from, std::size_t i) {
    output.o[i] = image[from];
    image[from] = poison_bits;
  });
  const auto begin = lse_image.begin() + guard;
  const auto end = begin + static_cast<std::ptrdiff_t>(rows_of(problem_));
  output.lse.assign(begin, end);
  std::fill(begin, end, std::numeric_limits<float>::quiet_NaN());
  for (const std::uint16_t bits : image) output.surroundings_intact = output.surroundings_intact && bits == poison_bits;
  for (const float value : lse_image) output.surroundings_intact = output.surroundings_intact && value != value;
  output.surroundings_intact = output.surroundings_intact && in_after == host_in_;
  return output;
}

bool TestCall::Output::operator==(const Output& other) const {
  return o == other.o && lse.size() == other.lse.size() &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

Comparison TestCall::compare_with_reference(const Output& output) const {
  const HostTensor q = host_tensor(host_in_, q_);
  const HostTensor k = host_tensor(host_in_, k_);
  const HostTensor v = host_tensor(host_in_, v_);
  const double scale = args.softmax_scale;
  return compare(problem_, output.o.data(), output.lse.data(), reference_attention(problem_, q, k, v, scale),
                 naive_attention(problem_, q, k, v, scale));
}

void check_call(const TestRegistry& registry, const Problem& problem, Layout layout, std::uint64_t seed) {
  CAPTURE(problem.text());
  CAPTURE(name_of(layout));
  const TestCall call(problem, layout, seed);
  const attune_status status = call.run(registry);
  CHECK_MESSAGE(status == ATTUNE_OK, attune_last_error());
  if (status != ATTUNE_OK) return;
  const TestCall::Output output = call.fetch();
  const Comparison comparison = call.compare_with_reference(output);
  CAPTURE(comparison.max_error);
  CAPTURE(comparison.tolerance);
  CAPTURE(comparison.lse_error);
  CAPTURE(comparison.unwritten);
  CHECK(comparison.agrees);
  CHECK(output.surroundings_intact);
}

}  // namespace attune::gpu_tests
