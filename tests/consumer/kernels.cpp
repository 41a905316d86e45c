// A program that carries kernels of its own: the emulator runs the variant that was compiled into it, and what comes
// out is attention.
#include <attune/attune.hpp>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace at = attune::api;
namespace fs = std::filesystem;

constexpr int seqlen = 70;
constexpr int heads_q = 2;
constexpr int head_dim = 128;

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }
std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16U);
}

/// Numbers between -1 and 1 that follow no pattern, 16-byte aligned as a vector's are.
std::vector<std::uint16_t> values(int heads, unsigned seed) {
  std::vector<std::uint16_t> result(static_cast<std::size_t>(seqlen) * heads * head_dim);
  for (std::uint16_t& value : result) {
    seed = seed * 1664525U + 1013904223U;
    value = to_bf16(static_cast<float>(seed >> 8U) / 8388608.0F - 1);
  }
  return result;
}

/// The largest error of o against the formula, causal, one K/V head for all.
double largest_error(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& k,
                     const std::vector<std::uint16_t>& v, const std::vector<std::uint16_t>& o) {
  double largest = 0;
  for (int head = 0; head < heads_q; ++head) {
    for (int i = 0; i < seqlen; ++i) {
      const std::size_t row = (static_cast<std::size_t>(i) * heads_q + head) * head_dim;
      std::vector<double> sum(head_dim);
      double weights = 0;
      for (int j = 0; j <= i; ++j) {
        const std::size_t key = static_cast<std::size_t>(j) * head_dim;
        double score = 0;
        for (int d = 0; d < head_dim; ++d) score += static_cast<double>(from_bf16(q[row + d])) * from_bf16(k[key + d]);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
        weights += weight;
        for (int d = 0; d < head_dim; ++d) sum[d] += weight * from_bf16(v[key + d]);
      }
      for (int d = 0; d < head_dim; ++d)
        largest = std::fmax(largest, std::abs(sum[d] / weights - from_bf16(o[row + d])));
    }
  }
  return largest;
}

/// Whether the cache has a kernel of this name: what the emulator compiled.
bool was_used(const fs::path& cache, const std::string& name) {
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    if (entry.path().filename().string().starts_with(name + "-")) return true;
  }
  return false;
}

}  // namespace

int main() {
  const fs::path cache = fs::absolute("consumer_kernels_cache");
  fs::remove_all(cache);
  const at::Attention attention({.cache_dir = cache.string(), .device = at::Device::emulator});
  std::vector<std::uint16_t> q = values(heads_q, 1);
  std::vector<std::uint16_t> k = values(1, 2);
  std::vector<std::uint16_t> v = values(1, 3);
  std::vector<std::uint16_t> o(q.size());
  attention({.shape = {.dtype = at::Dtype::bf16,
                       .batch = 1,
                       .seqlen_q = seqlen,
                       .seqlen_k = seqlen,
                       .heads_q = heads_q,
                       .heads_kv = 1,
                       .head_dim = head_dim,
                       .causal = true},
             .q = at::bshd(q.data(), seqlen, heads_q, head_dim),
             .k = at::bshd(k.data(), seqlen, 1, head_dim),
             .v = at::bshd(v.data(), seqlen, 1, head_dim),
             .o = at::bshd(o.data(), seqlen, heads_q, head_dim)});
  const double error = largest_error(q, k, v, o);
  if (!(error < 0.02)) {
    std::cerr << "an element of O is off by " << error << '\n';
    return 1;
  }
#ifdef CONSUMER_HAS_KERNELS
  constexpr bool has_kernels = true;
#else
  constexpr bool has_kernels = false;
#endif
  const bool own =
      was_used(cache, "prefill_sm90_bf16_d128_r128_c128_s2_causal_qreg128_resid16_nopingpong_bound8");
  if (own != has_kernels) {
    std::cerr << "the program's own kernel was " << (own ? "" : "not ") << "the one that ran\n";
    return 1;
  }
  std::cout << "the program's own kernel " << (own ? "ran" : "was not built, there is no nvcc") << "; largest error "
            << error << '\n';
  return 0;
}
