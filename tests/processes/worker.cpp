// One process among many that share a cache folder. It waits until its standard input ends, so that all begin at once,
// and ends with 0 when every result was right, 1 when one was not, 2 on an error. What the cache says goes to stderr.
//
//   attune_cache_worker keys ROOT TALLY SEED LIMIT   20 kernels of its own making, in an order by SEED; each build is
//                                                    a line "<number> <pid>" in TALLY
//   attune_cache_worker serve ROOT                   three problems through a registry on the emulator
//   attune_cache_worker read ROOT TALLY USER         the first kernel, then the last twice, as this user where root
//   asks
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cache/cache.hpp"
#include "runtime/compiler/nvrtc_abi.hpp"
#include "runtime/lab/reference.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/fake_driver/fake_cuda.hpp"
#include "tests/processes/kernels.hpp"

namespace {

using namespace attune;
using namespace attune::process_tests;

/// A kernel of the cache, built here if need be; whether it is the right one.
bool fetch(const Cache& cache, int number, const std::string& tally, std::chrono::milliseconds takes) {
  const Compiled got = cache.find_or_build(key_of(number), source_of(number), [&] {
    const FileDescriptor fd(::open(tally.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    const std::string line = fmt::format("{} {}\n", number, ::getpid());
    if (::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(2);
    std::this_thread::sleep_for(takes);
    return compiled_of(number);
  });
  return got.image == compiled_of(number).image;
}

bool fetch_all(const std::string& root, const std::string& tally, unsigned seed, long long limit) {
  std::mt19937 random(seed);
  std::array<int, kernel_count> order{};
  for (int i = 0; i < kernel_count; ++i) order[static_cast<std::size_t>(i)] = i;
  std::ranges::shuffle(order, random);
  const Cache cache(root, log_to_stderr, limit);
  bool right = true;
  for (const int number : order) {
    right = fetch(cache, number, tally, std::chrono::milliseconds(random() % 8)) && right;
  }
  return right;
}

/// Attention over a few tokens, held against float64.
bool serve(Registry& registry, const Problem& problem) {
  const auto tokens = [&](int seqlen, int heads) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(seqlen) * heads * problem.head_dim);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = to_storage(problem.dtype, static_cast<float>(i * 37 % 101) / 50 - 1);
    }
    return values;
  };
  std::vector<std::uint16_t> q = tokens(problem.seqlen_q, problem.heads_q);
  std::vector<std::uint16_t> k = tokens(problem.seqlen_k, problem.heads_kv);
  std::vector<std::uint16_t> v = k;
  std::ranges::reverse(v);
  std::vector<std::uint16_t> o(q.size());
  std::vector<float> lse(q.size() / problem.head_dim);
  const auto tensor = [&](std::vector<std::uint16_t>& values, int heads) {
    return attune_tensor{values.data(), static_cast<long long>(values.size()),
                         static_cast<long long>(heads) * problem.head_dim, problem.head_dim};
  };
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem.dtype);
  args.batch = 1;
  args.seqlen_q = problem.seqlen_q;
  args.seqlen_k = problem.seqlen_k;
  args.heads_q = problem.heads_q;
  args.heads_kv = problem.heads_kv;
  args.head_dim = problem.head_dim;
  args.softmax_scale = 0.25F;
  args.causal = problem.causal ? 1 : 0;
  args.q = tensor(q, problem.heads_q);
  args.k = tensor(k, problem.heads_kv);
  args.v = tensor(v, problem.heads_kv);
  args.o = tensor(o, problem.heads_q);
  args.lse = lse.data();
  registry.run(args, nullptr);
  const auto host = [](const attune_tensor& of) {
    return HostTensor{static_cast<const std::uint16_t*>(of.data), of.stride_batch, of.stride_seq, of.stride_head};
  };
  const HostTensor inputs[] = {host(args.q), host(args.k), host(args.v)};
  const double scale = args.softmax_scale;
  return compare(problem, o.data(), lse.data(), reference_attention(problem, inputs[0], inputs[1], inputs[2], scale),
                 naive_attention(problem, inputs[0], inputs[1], inputs[2], scale))
      .agrees;
}

/// Problems of as many kernels.
std::vector<Problem> problems() {
  std::vector<Problem> result;
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const bool causal : {false, true}) {
        result.push_back({.dtype = dtype,
                          .heads_q = 2,
                          .heads_kv = 1,
                          .seqlen_q = 5,
                          .seqlen_k = 9,
                          .head_dim = head_dim,
                          .causal = causal});
      }
    }
  }
  return result;
}

/// In an order that the seed decides.
bool serve_all(const std::string& root, unsigned seed) {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR, .policy = ATTUNE_COMPILE_EXACT, .cache_root = root});
  std::vector<Problem> all = problems();
  std::ranges::shuffle(all, std::mt19937(seed));
  return all.size() == kernel_count &&
         std::ranges::all_of(all, [&](const Problem& problem) { return serve(registry, problem); });
}

void become(uid_t user) {
  if (::geteuid() != 0) return;
  if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) {
    throw std::runtime_error("cannot become another user");
  }
}

bool read_only(const std::string& root, const std::string& tally, uid_t user) {
  become(user);
  const Cache cache(root, log_to_stderr, 0);
  constexpr auto no_time = std::chrono::milliseconds(0);
  const bool there = fetch(cache, 0, tally, no_time);
  return fetch(cache, kernel_count - 1, tally, no_time) && fetch(cache, kernel_count - 1, tally, no_time) && there;
}

/// Makes a kernel that no library has embedded ready on a GPU that is not there.
bool load_without_nvrtc(const std::string& root) {
  void* const driver = ::dlopen(ATTUNE_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  void* const state = driver != nullptr ? ::dlsym(driver, "fake_cuda_state") : nullptr;
  if (state == nullptr) throw std::runtime_error("no fake driver");
  reinterpret_cast<testing::FakeCudaState*>(state)()->current_device = 0;
  Registry registry({.policy = ATTUNE_COMPILE_EXACT, .cache_root = root});
  std::array<std::uint16_t, 40> memory{};
  const attune_tensor tensor{memory.data(), 0, 40, 0};
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = ATTUNE_BF16;
  args.q = args.k = args.v = args.o = tensor;
  args.batch = args.heads_q = args.heads_kv = args.seqlen_q = args.seqlen_k = 1;
  args.head_dim = 40;
  args.softmax_scale = 1;
  registry.prepare(args);
  return std::ranges::none_of(nvrtc::sonames, [](const char* soname) {
    return ::dlopen(soname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) != nullptr;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    char ignored = 0;
    while (::read(STDIN_FILENO, &ignored, 1) > 0) {
    }
    bool right = false;
    if (words.size() == 5 && words[0] == "keys") {
      right = fetch_all(words[1], words[2], static_cast<unsigned>(std::stoul(words[3])), std::stoll(words[4]));
    } else if (words.size() == 3 && words[0] == "serve") {
      right = serve_all(words[1], static_cast<unsigned>(std::stoul(words[2])));
    } else if (words.size() == 4 && words[0] == "read") {
      right = read_only(words[1], words[2], static_cast<uid_t>(std::stoul(words[3])));
    } else if (words.size() == 2 && words[0] == "load") {
      right = load_without_nvrtc(words[1]);
    } else {
      throw std::runtime_error(
          "usage: keys ROOT TALLY SEED LIMIT | serve ROOT SEED | read ROOT TALLY USER | load ROOT");
    }
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
