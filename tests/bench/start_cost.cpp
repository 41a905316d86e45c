// What a process waits for until its first call has been launched, from main() on, when the kernel lies in the disk
// cache; and what of that the parts are. The fake driver stands for CUDA, so that its own start is not in the numbers.
//
// Each number is the median of processes that did nothing before; beside the time on the clock stands that on the CPU,
// which other work on the machine disturbs less.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/files.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/cache/compiler_note.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/compiler/compile.hpp"
#include "tests/fake_driver/fake_cuda.hpp"

namespace {

using namespace attune;
namespace fs = std::filesystem;

constexpr int repeats = 15;
/// No kernel with a soft cap is embedded.
constexpr int head_dim = 64;
const Problem problem{.seqlen_q = 16, .seqlen_k = 16, .head_dim = head_dim, .softcap = 30};

struct Times {
  double clock = 0;  ///< ms
  double cpu = 0;
};

double cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

Times times_of(const std::function<void()>& work) {
  const double cpu = cpu_ms();
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> clock = std::chrono::steady_clock::now() - start;
  return {clock.count(), cpu_ms() - cpu};
}

void check(attune_status status) {
  if (status != ATTUNE_OK) throw std::runtime_error(attune_last_error());
}

/// The fake's soname is libcuda.so.1: whoever opens that from now on gets it.
void open_fake_driver() {
  void* library = dlopen(ATTUNE_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  void* state = library != nullptr ? dlsym(library, "fake_cuda_state") : nullptr;
  if (state == nullptr) throw std::runtime_error("no fake driver");
  reinterpret_cast<testing::FakeCudaState*>(state)()->current_device = 0;
}

void first_call(const std::string& folder) {
  attune_options options{};
  options.struct_size = sizeof(attune_options);
  options.compile_policy = ATTUNE_COMPILE_EXACT;
  options.cache_dir = folder.c_str();
  attune_registry* registry = nullptr;
  check(attune_registry_create(&options, &registry));
  std::array<std::uint16_t, 16 * head_dim> memory{};
  const attune_tensor tensor{memory.data(), 0, problem.head_dim, 0};
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem.dtype);
  args.q = args.k = args.v = args.o = tensor;
  args.batch = args.heads_q = args.heads_kv = 1;
  args.seqlen_q = problem.seqlen_q;
  args.seqlen_k = problem.seqlen_k;
  args.head_dim = problem.head_dim;
  args.softmax_scale = 0.1F;
  args.softcap = problem.softcap;
  check(attune_prefill(registry, &args, nullptr));
  attune_registry_destroy(registry);
}

/// What a child prints for its parent.
void print(const char* name, const Times& times) { fmt::print("{}\t{}\t{}\n", name, times.clock, times.cpu); }

void print_parts(const std::string& folder) {
  const Device device = device_of(*find_arch("sm_90"));
  Variant variant;
  print("choosing the variant", times_of([&] { variant = variant_to_generate(problem, device); }));
  std::optional<std::string> identity;
  const Cache cache(folder);
  print("NVRTC's identity, noted", times_of([&] { identity = noted_compiler(cache); }));
  CacheKey key;
  print("hashing what its source follows from", times_of([&] { key = cache_key(variant, 90, identity.value_or("")); }));
  print("reading the kernel", times_of([&] {
          if (!cache.find(key)) throw std::runtime_error("the kernel is not in the cache");
        }));
  std::unique_ptr<Compiler> compiler;
  print("opening libnvrtc", times_of([&] { compiler = std::make_unique<Compiler>(); }));
}

int child(const std::string& what, const std::string& folder) {
  if (what == "parts") {
    print_parts(folder);
    return 0;
  }
  if (what == "note") {
    // This program is not libattune: what one has noted does not hold for the other.
    print("opening libnvrtc and noting which it is", times_of([&] { note_compiler(Cache(folder), Compiler()); }));
    return 0;
  }
  open_fake_driver();
  print(what.c_str(), times_of([&] { first_call(folder); }));
  return 0;
}

struct Row {
  std::string name;
  std::vector<double> clock;
  std::vector<double> cpu;
};

/// Runs a child and adds what it printed to the rows.
void run_child(const std::string& self, const std::string& what, const std::string& folder, std::vector<Row>& rows) {
  const std::string command = fmt::format("'{}' --child '{}' '{}'", self, what, folder);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char name[64];
  double clock = 0;
  double cpu = 0;
  bool any = false;
  while (pipe && std::fscanf(pipe.get(), " %63[^\t] %lf %lf", name, &clock, &cpu) == 3) {
    any = true;
    auto row = std::ranges::find(rows, name, &Row::name);
    if (row == rows.end()) row = rows.insert(rows.end(), Row{name, {}, {}});
    row->clock.push_back(clock);
    row->cpu.push_back(cpu);
  }
  if (!any) throw std::runtime_error("a measurement failed in its own process");
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv, argv + argc);
    if (words.size() == 4 && words[1] == "--child") return child(words[2], words[3]);
    const fs::path folder = make_unique_folder(fs::temp_directory_path() / "attune-start-cost-");
    const std::string self = fs::read_symlink("/proc/self/exe").string();
    std::vector<Row> rows;
    run_child(self, "first call, compiled", folder.string(), rows);
    const fs::path parts = folder / "parts";
    fs::create_directory(parts);
    fs::copy(folder / "v1", parts / "v1", fs::copy_options::recursive);
    run_child(self, "note", parts.string(), rows);
    for (int i = 0; i < repeats; ++i) {
      run_child(self, "first call, from the disk cache", folder.string(), rows);
      run_child(self, "parts", parts.string(), rows);
    }
    for (int i = 0; i < repeats; ++i) {
      fs::remove(folder / "v1" / ".nvrtc.json");
      run_child(self, "the same without a note of NVRTC", folder.string(), rows);
    }
    fs::remove_all(folder);
    fmt::print("| from a new process's main() on | ms | ms of CPU | least ms |\n|---|--:|--:|--:|\n");
    for (const Row& row : rows) {
      fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} |\n", row.name, median(row.clock), median(row.cpu),
                 *std::ranges::min_element(row.clock));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
