#include "runtime/tune/problems.hpp"

#include "generator/hash.hpp"

namespace attune::tune {
namespace {

double work(const Problem& problem) {
  const double full = 2.0 * problem.batch * problem.heads_q * problem.seqlen_q * problem.seqlen_k *
                      (problem.head_dim + problem.head_dim_of_v());
  return problem.causal ? full / 2 : full;
}

double work(const DecodeProblem& problem) {
  const double bytes_per_column = 2.0 * bytes_of(problem.dtype);  // of K and of V
  return bytes_per_column * problem.batch * problem.heads_kv * problem.max_seqlen_k * problem.head_dim;
}

bool is_prefill(const AnyProblem& problem) { return std::holds_alternative<Problem>(problem); }

}  // namespace

std::string text_of(const AnyProblem& problem) {
  return std::visit([](const auto& one) { return one.text(); }, problem);
}

double work_of(const AnyProblem& problem) {
  return std::visit([](const auto& one) { return work(one); }, problem);
}

Speed speed_of(const AnyProblem& problem, double seconds) {
  const double rate = seconds > 0 ? work_of(problem) / seconds : 0;
  return is_prefill(problem) ? Speed{rate / 1e12, "TFLOP/s"} : Speed{rate / 1e9, "GB/s"};
}

double estimated_seconds(const AnyProblem& problem, const Device& device) {
  constexpr double least = 10e-6;  // of a launch
  constexpr double of_products = 0.35;
  constexpr double of_memory = 0.5;
  const KnownGpu& gpu = most_like(device);
  const double rate =
      is_prefill(problem) ? of_products * 1e12 * gpu.teraflops : of_memory * 1e9 * gpu.gigabytes_per_second;
  return least + work_of(problem) / rate;
}

int shard_of(const AnyProblem& problem, int shards) {
  constexpr std::size_t digits = 8;
  const std::string hash = xxh3_hex(text_of(problem)).substr(0, digits);
  return static_cast<int>(std::stoul(hash, nullptr, 16) % static_cast<unsigned long>(shards));
}

}  // namespace attune::tune
