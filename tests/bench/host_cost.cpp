// What a user waits for outside the kernels: generating, compiling, loading, launching. Prints one table.
//
// Each compilation is timed in a process of its own, as the first one there; opening libnvrtc is counted apart.
// Without a GPU kernels are compiled for sm_90, and loading and launching are said to be skipped.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <vector>

#include "attune/attune.h"
#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/execute/gpu_executor.hpp"
#include "runtime/lab/device_memory.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"

namespace {

using namespace attune;

double ms_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// `settle` runs after each repetition, untimed.
double median_ms(
    int repeats, const std::function<void()>& work, const std::function<void()>& settle = [] {}) {
  std::vector<double> times(static_cast<std::size_t>(repeats));
  for (double& time : times) {
    time = ms_of(work);
    settle();
  }
  std::ranges::nth_element(times, times.begin() + repeats / 2);
  return times[times.size() / 2];
}

/// Runs `work` in a child process, so that it is the first of its kind there; what it returns comes back.
template <class Times>
Times in_fresh_process(const std::function<Times()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    const Times times = work();
    _exit(write(ends[1], &times, sizeof(times)) == sizeof(times) ? 0 : 1);
  }
  close(ends[1]);
  Times times{};
  const bool whole = read(ends[0], &times, sizeof(times)) == sizeof(times);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!whole || status != 0) throw std::runtime_error("a measurement failed in its own process");
  return times;
}

struct CompileTimes {
  double open = 0;      ///< libnvrtc
  double generate = 0;  ///< variant to source
  double compile = 0;
  double cached = 0;  ///< the same kernel from the disk cache
  int spills = 0;
};

CompileTimes first_compile(const Variant& variant, int capability) {
  CompileTimes times;
  const TemplateFiles& templates = embedded_templates();
  std::unique_ptr<Compiler> compiler;
  times.open = ms_of([&] { compiler = std::make_unique<Compiler>(); });
  Source source;
  times.generate = ms_of([&] { source = emit(variant, templates, "made at run time").value; });
  Compiled compiled;
  times.compile = ms_of([&] { compiled = compiler->compile(source, capability); });
  times.spills = compiled.usage.spill_stores + compiled.usage.spill_loads;

  const auto folder = std::filesystem::temp_directory_path() / fmt::format("attune-host-cost-{}", getpid());
  const Cache cache(folder);
  cache.find_or_build(cache_key(variant, capability, compiler->identity()), source, [&] { return compiled; });
  times.cached = median_ms(9, [&] {
    if (!cache.find(cache_key(variant, capability, compiler->identity()))) throw std::runtime_error("not in the cache");
  });
  std::filesystem::remove_all(folder);
  return times;
}

void print_compile_times(const std::vector<Variant>& variants, int capability) {
  fmt::print("| kernel (NVRTC, sm_{}) | open libnvrtc | generate | first compile | from disk cache | spills |\n",
             capability);
  fmt::print("|---|---|---|---|---|---|\n");
  for (const Variant& variant : variants) {
    const auto times = in_fresh_process<CompileTimes>([&] { return first_compile(variant, capability); });
    fmt::print("| {} | {:.0f} ms | {:.2f} ms | {:.0f} ms | {:.2f} ms | {} B |\n", variant.name(), times.open,
               times.generate, times.compile, times.cached, times.spills);
    std::fflush(stdout);
  }
}

void print_load_times(const cli::Gpu& gpu) {
  std::vector<double> times;
  const Arch arch = arch_of(gpu.device);
  for (const ReadyKernel& kernel : embedded_kernels()) {
    if (!check_arch(kernel.variant, arch).empty()) continue;
    times.push_back(ms_of([&] {
      const LoadedKernel loaded(gpu.driver, kernel.variant, gpu.device, kernel.fatbin, std::string(kernel.name));
    }));
  }
  std::ranges::sort(times);
  fmt::print("\nloading an embedded kernel (decompression included): median {:.2f} ms, longest {:.2f} ms of {}\n",
             times[times.size() / 2], times.back(), times.size());
}

/// A call of 16 queries and keys, small enough that the host is what is timed.
attune_prefill_args small_call(const DeviceBuffer& memory, const Problem& problem) {
  const attune_tensor tensor{memory.data(), 0, problem.head_dim, 0};
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem.dtype);
  args.q = args.k = args.v = args.o = tensor;
  args.batch = problem.batch;
  args.seqlen_q = problem.seqlen_q;
  args.seqlen_k = problem.seqlen_k;
  args.heads_q = problem.heads_q;
  args.heads_kv = problem.heads_kv;
  args.head_dim = problem.head_dim;
  args.softmax_scale = 0.1F;
  args.causal = problem.causal ? 1 : 0;
  args.head_dim_v = problem.head_dim_v;
  return args;
}

/// A registry of the C ABI that goes when this goes.
class TimedRegistry {
 public:
  explicit TimedRegistry(const attune_options* options) {
    if (attune_registry_create(options, &registry_) != ATTUNE_OK) throw std::runtime_error(attune_last_error());
  }
  ~TimedRegistry() { attune_registry_destroy(registry_); }
  TimedRegistry(const TimedRegistry&) = delete;
  TimedRegistry& operator=(const TimedRegistry&) = delete;

  void prepare(const attune_prefill_args& args) const { check(attune_prefill_prepare(registry_, &args)); }
  void prefill(const attune_prefill_args& args) const { check(attune_prefill(registry_, &args, nullptr)); }

  [[nodiscard]] attune_counters counters() const {
    attune_counters result{};
    result.struct_size = sizeof(result);
    check(attune_registry_counters(registry_, &result));
    return result;
  }

 private:
  static void check(attune_status status) {
    if (status != ATTUNE_OK) throw std::runtime_error(attune_last_error());
  }

  attune_registry* registry_ = nullptr;
};

/// What a new registry needs until a kernel that is compiled at run time can be launched.
void print_run_time_kernel_times(const cli::Gpu& gpu) {
  const DeviceBuffer memory(gpu.driver, 1 << 20);
  const Problem problem{.seqlen_q = 16, .seqlen_k = 16, .head_dim = 64};
  attune_prefill_args args = small_call(memory, problem);
  args.softcap = 30;  // with which no kernel is embedded
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("attune-host-cost-{}", getpid());
  const std::string cache_dir = folder.string();
  attune_options options{};
  options.struct_size = sizeof(attune_options);
  options.compile_policy = ATTUNE_COMPILE_EXACT;
  options.cache_dir = cache_dir.c_str();
  const auto prepare = [&] { TimedRegistry(&options).prepare(args); };
  const double compiled = ms_of([&] {
    const TimedRegistry registry(&options);
    registry.prepare(args);
    if (registry.counters().compiles == 0) throw std::runtime_error("a kernel was ready where one is to be compiled");
  });
  const double cached = median_ms(9, prepare);
  std::filesystem::remove_all(folder);
  fmt::print("a kernel with a soft cap, ready to launch: {:.0f} ms when compiled, {:.2f} ms from the disk cache\n",
             compiled, cached);
}

/// What calls cost while the kernel made for them is compiled in the background, and when it takes over.
void print_background_times(const cli::Gpu& gpu) {
  constexpr int most_queued = 200;  // few enough that the queue never makes the host wait for the GPU
  const DeviceBuffer memory(gpu.driver, 1 << 20);
  const attune_prefill_args padded = small_call(memory, {.seqlen_q = 16, .seqlen_k = 16, .head_dim = 40});
  const attune_prefill_args plain = small_call(memory, {.seqlen_q = 16, .seqlen_k = 16, .head_dim = 64});
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("attune-host-cost-{}", getpid());
  const std::string cache_dir = folder.string();
  attune_options options{};
  options.struct_size = sizeof(options);
  options.compile_policy = ATTUNE_COMPILE_BACKGROUND;
  options.cache_dir = cache_dir.c_str();
  const TimedRegistry registry(&options);
  registry.prefill(plain);
  const auto time_calls = [&](const attune_prefill_args& args, const std::function<bool(std::size_t)>& more) {
    std::vector<double> times;
    for (std::size_t i = 0; more(i); ++i) {
      times.push_back(ms_of([&] { registry.prefill(args); }) * 1e3);
      if (i % most_queued == 0) gpu.driver.synchronize();
    }
    std::ranges::sort(times);
    return times;
  };
  const std::vector<double> alone = time_calls(plain, [](std::size_t i) { return i < 20'000; });
  const auto start = std::chrono::steady_clock::now();
  const double first_us = ms_of([&] { registry.prefill(padded); }) * 1e3;
  const std::vector<double> meanwhile = time_calls(
      padded, [&](std::size_t) { return registry.counters().swaps == 0 && registry.counters().pending > 0; });
  const double swap_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::filesystem::remove_all(folder);
  fmt::print("in the background: first call of head_dim 40 {:.0f} us, swapped after {:.0f} ms ({:.0f} ms of NVRTC)\n",
             first_us, swap_ms, registry.counters().compile_ms);
  if (meanwhile.empty()) return;
  for (const double quantile : {0.5, 0.99, 0.999, 1.0}) {
    const auto at = [quantile](const std::vector<double>& sorted) {
      return sorted[static_cast<std::size_t>(quantile * static_cast<double>(sorted.size() - 1))];
    };
    fmt::print("  host time of a call, quantile {}: {:.2f} us before, {:.2f} us meanwhile\n", quantile, at(alone),
               at(meanwhile));
  }
}

void print_launch_times(const cli::Gpu& gpu, const ReadyKernel& embedded) {
  constexpr int launches = 200;  // few enough that the queue never makes the host wait for the GPU
  const Variant variant = embedded.variant;
  const Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                        .seqlen_q = 16,
                        .seqlen_k = 16,
                        .head_dim = variant.head_dim,
                        .causal = variant.causal != 0};
  const DeviceBuffer memory(gpu.driver, 1 << 20);
  const attune_prefill_args args = small_call(memory, problem);
  const TimedRegistry registry(nullptr);
  const LoadedKernel kernel(gpu.driver, variant, gpu.device, embedded.fatbin, variant.name());
  const PrefillPlan launch = plan(variant, problem, gpu.device);

  const auto per_launch_us = [&](const std::function<void()>& call) {
    const double ms = median_ms(
        51,
        [&] {
          for (int i = 0; i < launches; ++i) call();
        },
        [&] { gpu.driver.synchronize(); });
    return ms / launches * 1e3;
  };
  GpuExecutor executor(gpu.driver);
  const PrefillParams params(args, problem, launch, executor);
  if (family_of(variant).tensor_maps) {
    const TensorDescription tensor =
        describe(make_params(args, problem).q, {1, 16, 1, problem.head_dim, problem.dtype}, variant.B_r);
    AttuneTensorMap map{};
    const double ms = median_ms(51, [&] {
      for (int i = 0; i < launches; ++i) map = gpu.driver.encode(tensor);
    });
    fmt::print("encoding a tensor map: {:.2f} us\n", ms / launches * 1e3);
  }
  const auto raw = [&] {
    gpu.driver.launch(kernel.handle, launch.grid, launch.threads, launch.shared_bytes, nullptr, params.get());
  };
  const auto ours = [&] { registry.prefill(args); };
  const double raw_us = per_launch_us(raw);
  const double our_us = per_launch_us(ours);
  fmt::print("{}: a repeated call: {:.2f} us, the driver's launch alone {:.2f} us: {:.2f} us added\n", variant.name(),
             our_us, raw_us, our_us - raw_us);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::filesystem::path> specs(argv + 1, argv + argc);
    const Result<Collection> collected = collect(specs);
    if (!collected.ok() || collected.value.wanted.empty()) {
      fmt::print(stderr, "usage: {} SPEC...\n", argv[0]);
      return 2;
    }
    std::vector<Variant> variants;
    for (const Wanted& one : collected.value.wanted) {
      if (runs_on(one.variant, 90)) variants.push_back(one.variant);
    }
    print_compile_times(variants, 90);  // before the driver is opened: its threads do not survive a fork
    const cli::Found<cli::Gpu> gpu = cli::find_gpu();
    if (!gpu) {
      fmt::print("\nloading and launching: skipped, no GPU\n");
      return 0;
    }
    print_load_times(*gpu);
    print_run_time_kernel_times(*gpu);
    print_background_times(*gpu);
    for (const int family : {prefill_sm80, prefill_sm90}) {
      const auto embedded = std::ranges::find_if(embedded_kernels(), [&](const ReadyKernel& kernel) {
        return kernel.variant.family == family && kernel.variant.tile_list == 0 &&
               check_arch(kernel.variant, arch_of(gpu->device)).empty();
      });
      if (embedded != embedded_kernels().end()) print_launch_times(*gpu, *embedded);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
