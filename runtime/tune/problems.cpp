#include "runtime/tune/problems.hpp"

#include "generator/hash.hpp"

namespace attune::tune {
namespace {

Work work_in(const AnyProblem& problem) {
  return std::visit([](const auto& one) { return launch_work(one); }, problem);
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
