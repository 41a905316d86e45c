#include "runtime/cli/benchmark.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace attune::cli {
namespace {

constexpr int tokens = 16384;  // in a batch
constexpr int hidden = 2048;   // heads x head_dim
constexpr int warm_up_launches = 3;
constexpr std::size_t most_copies = 64;

double floating_point_operations(const Problem& problem) {
  const double full = 2.0 * problem.batch * problem.heads_q * problem.seqlen_q * problem.seqlen_k *
                      (problem.head_dim + problem.head_dim_of_v());
  return problem.causal ? full / 2 : full;
}

/// One of FlashAttention's own shapes (arXiv 2307.08691): 16K tokens in a batch, a hidden size of 2048.
Problem prefill_case(int head_dim, int seqlen, bool causal) {
  return {.dtype = Dtype::bf16,
          .batch = tokens / seqlen,
          .heads_q = hidden / head_dim,
          .heads_kv = hidden / head_dim,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .causal = causal};
}

/// The kernels that serve the problem and pad head_dim and V's least.
std::vector<const LoadedKernel*> serving(const Gpu& gpu, std::span<const LoadedKernel> kernels,
                                         const Problem& problem) {
  std::vector<const LoadedKernel*> chosen;
  int least = std::numeric_limits<int>::max();
  for (const LoadedKernel& kernel : kernels) {
    const Variant& variant = kernel.variant();
    if (variant.columns() > least || !refusals(variant, problem, gpu.device).empty()) continue;
    if (variant.columns() < least) chosen.clear();
    least = variant.columns();
    chosen.push_back(&kernel);
  }
  return chosen;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<Problem> named_cases(const std::string& name) {
  std::vector<Problem> cases;
  if (name == "gqa") {
    for (const auto& [batch, heads_q, seqlen] :
         std::array<std::array<int, 3>, 4>{{{8, 32, 2048}, {2, 32, 8192}, {1, 32, 32768}, {1, 64, 16384}}}) {
      cases.push_back({.dtype = Dtype::bf16,
                       .batch = batch,
                       .heads_q = heads_q,
                       .heads_kv = 8,
                       .seqlen_q = seqlen,
                       .seqlen_k = seqlen,
                       .head_dim = 128,
                       .causal = true});
    }
    return cases;
  }
  const bool quick = name == "quick";
  const std::vector<int> head_dims = quick ? std::vector{64, 128} : std::vector{64, 128, 256};
  const std::vector<int> seqlens = quick ? std::vector{1024, 8192} : std::vector{512, 1024, 2048, 4096, 8192, 16384};
  for (const int head_dim : head_dims) {
    for (const int seqlen : seqlens) {
      for (const bool causal : {false, true}) cases.push_back(prefill_case(head_dim, seqlen, causal));
    }
  }
  return cases;
}

std::vector<Timing> measure(const Gpu& gpu, std::span<const LoadedKernel> kernels, const Problem& problem, int launches,
                            std::uint64_t seed) {
  const std::vector<const LoadedKernel*> chosen = serving(gpu, kernels, problem);
  if (chosen.empty()) return {};

  const HostInputs inputs(problem, seed);
  const std::size_t beyond_l2 = 2 * static_cast<std::size_t>(gpu.device.l2_bytes);
  const std::size_t copies =
      std::clamp<std::size_t>(beyond_l2 / std::max<std::size_t>(1, DeviceProblem::bytes(problem)) + 1, 2, most_copies);
  std::vector<DeviceProblem> on_device;
  for (std::size_t i = 0; i < copies; ++i) on_device.emplace_back(gpu, problem, inputs);

  // Everything is queued before anything is waited for: an idle card would time the launch instead of the kernel.
  std::size_t turn = 0;
  const auto launch = [&](const LoadedKernel& kernel) { on_device[turn++ % copies].launch(kernel); };
  for (int i = 0; i < warm_up_launches; ++i) {
    for (const LoadedKernel* kernel : chosen) launch(*kernel);
  }
  std::vector<DeviceEvent> events;
  const std::size_t measured = static_cast<std::size_t>(launches) * chosen.size();
  for (std::size_t i = 0; i < 2 * measured; ++i) events.emplace_back(gpu.driver);
  for (std::size_t i = 0; i < measured; ++i) {
    events[2 * i].record();
    launch(*chosen[i % chosen.size()]);
    events[2 * i + 1].record();
  }
  gpu.driver.synchronize();

  std::vector<Timing> timings;
  for (std::size_t which = 0; which < chosen.size(); ++which) {
    std::vector<double> seconds;
    for (std::size_t i = which; i < measured; i += chosen.size()) {
      seconds.push_back(events[2 * i + 1].seconds_since(events[2 * i]));
    }
    const double typical = median(seconds);
    timings.push_back({.variant = chosen[which]->variant().name(),
                       .seconds = typical,
                       .fastest = *std::ranges::min_element(seconds),
                       .tflops = floating_point_operations(problem) / typical / 1e12});
  }
  return timings;
}

}  // namespace attune::cli
