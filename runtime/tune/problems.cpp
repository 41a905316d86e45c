#include "runtime/tune/problems.hpp"

#include "generator/hash.hpp"

namespace attune::tune {
namespace {

/// Floating point operations, or bytes, and about half of what kernels reach of a GPU's peak.
struct Work {
  double amount;
  bool is_bytes;
  double part_of_peak;
};

/// Of so many products of a query and a key, with so many columns in all.
double operations_of(const Problem& problem, int columns) {
  const double full = 2.0 * problem.batch * problem.heads_q * problem.seqlen_q * problem.seqlen_k * columns;
  return problem.causal ? full / 2 : full;
}

Work work(const Problem& problem) {
  const double amount = operations_of(problem, problem.head_dim + problem.head_dim_of_v());
  return {.amount = amount, .is_bytes = false, .part_of_peak = 0.35};
}

Work work(const BackwardProblem& problem) {
  // S, dK and dQ; dP and dV.
  const double amount = operations_of(problem.attention(), 3 * problem.head_dim + 2 * problem.head_dim_of_v());
  return {.amount = amount, .is_bytes = false, .part_of_peak = 0.28};
}

Work work(const DecodeProblem& problem) {
  const double bytes_per_column = 2.0 * bytes_of(problem.dtype);  // of K and of V
  const double amount = bytes_per_column * problem.batch * problem.heads_kv * problem.max_seqlen_k * problem.head_dim;
  return {.amount = amount, .is_bytes = true, .part_of_peak = 0.5};
}

Work work_in(const AnyProblem& problem) {
  return std::visit([](const auto& one) { return work(one); }, problem);
}

}  // namespace

double work_of(const AnyProblem& problem) { return work_in(problem).amount; }

Speed speed_of(const AnyProblem& problem, double seconds) {
  const Work work = work_in(problem);
  const double rate = seconds > 0 ? work.amount / seconds : 0;
  return work.is_bytes ? Speed{rate / 1e9, "GB/s"} : Speed{rate / 1e12, "TFLOP/s"};
}

double estimated_seconds(const AnyProblem& problem, const Device& device) {
  constexpr double least = 10e-6;  // of a launch
  const Work work = work_in(problem);
  const KnownGpu& gpu = most_like(device);
  const double peak = work.is_bytes ? 1e9 * gpu.gigabytes_per_second : 1e12 * gpu.teraflops;
  return least + work.amount / (work.part_of_peak * peak);
}

int shard_of(const AnyProblem& problem, int shards) {
  constexpr std::size_t digits = 8;
  const std::string hash = xxh3_hex(text_of(problem)).substr(0, digits);
  return static_cast<int>(std::stoul(hash, nullptr, 16) % static_cast<unsigned long>(shards));
}

}  // namespace attune::tune
