// How far decode is from what its launches, its reads and its merge take: its kernel beside itself without products.
//
// attune_decode_probe [BATCH HEADS_Q HEADS_KV HEAD_DIM SEQLEN_K]
//
// The probe is the source of the kernel that serves the problem with one function emptied, the product of two
// fragments: the same grid, the same bytes and lengths, the same steps and the same merge. Both take turns, each launch
// behind an L2 that was overwritten. Prints medians and their quotient.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/served.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/contest.hpp"
#include "runtime/cli/machine.hpp"

namespace {

using namespace attune;

Source without_products(Source source) {
  constexpr std::string_view product = "void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {";
  const std::size_t place = source.text.find(product);
  if (place == std::string::npos) throw Error(ATTUNE_INTERNAL_ERROR, "the kernel's source has no product to leave out");
  source.text.insert(place + product.size(), " return;");
  return source;
}

DecodeProblem problem_of(const std::vector<std::string>& sizes) {
  constexpr std::array<int, 5> usual{1, 32, 4, 128, 1024};
  std::array<int, 5> given = usual;
  for (std::size_t i = 0; i < std::min(sizes.size(), given.size()); ++i) given.at(i) = std::stoi(sizes[i]);
  DecodeProblem problem = DecodeProblem::usual();
  problem.batch = given[0];
  problem.heads_q = given[1];
  problem.heads_kv = given[2];
  problem.head_dim = given[3];
  problem.max_seqlen_k = given[4];
  problem.equal_lengths = true;
  problem.complete();
  for (const std::string& reason : problems_of(problem)) throw Error(ATTUNE_INVALID_ARGUMENT, reason);
  return problem;
}

double median_us(std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle * 1e6;
}

int compare(const DecodeProblem& problem) {
  const cli::Found<cli::Gpu> gpu = cli::find_gpu();
  if (!gpu) throw Error(ATTUNE_UNSUPPORTED, "a GPU is needed: " + gpu.problem);
  const ReadyKernels ready;
  const Variant served = serve(ready, default_tuned_tables(ready), problem, gpu->device).variant;
  const Source whole = generate(served);
  const std::vector<Source> sources{whole, without_products(whole),
                                    generate(serve(ready, {}, problem.merge(), gpu->device).variant)};
  std::vector<LoadedKernel> kernels;
  for (const cli::Built& one : cli::build(Compiler(), sources, {arch_of(gpu->device)}, 0)) {
    if (!one.ok()) throw Error(ATTUNE_INTERNAL_ERROR, one.error);
    kernels.emplace_back(gpu->driver, one.source->variant, gpu->device, one.compiled.image, one.source->name);
  }
  constexpr int rounds = 203;
  constexpr int warm_up = 3;
  std::vector<int> order;
  for (int i = 0; i < rounds; ++i) order.insert(order.end(), {i % 2, 1 - i % 2});
  cli::Contest contest(*gpu, make_trial(problem, 1),
                       {FixedKernels{&kernels[0], &kernels[2]}, FixedKernels{&kernels[1], &kernels[2]}});
  const std::vector<double> times = contest.time(order);
  std::array<std::vector<double>, 2> of;
  for (std::size_t i = 2 * warm_up; i < times.size(); ++i)
    of.at(static_cast<std::size_t>(order[i])).push_back(times[i]);
  const double kernel = median_us(of[0]);
  const double probe = median_us(of[1]);
  fmt::print("{} on {}\n{}: {:.2f} us, without products {:.2f} us: {:.3f}\n", problem.text(), gpu->device.name,
             served.name(), kernel, probe, kernel / probe);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compare(problem_of({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    fmt::print(stderr, "attune_decode_probe: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
