#include <attune/attune.hpp>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace at = attune::api;
std::uint16_t to_bf16(float value) { return std::bit_cast<std::uint32_t>(value) >> 16U; }
float from_bf16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16U); }

int main() {
  constexpr int seqlen = 128, heads = 4, head_dim = 64, row = heads * head_dim;
  std::vector<std::uint16_t> q(seqlen * row), k(q), v(q), o(q);             // zeros, seqlen x heads x head_dim
  for (int i = 0; i < seqlen * row; ++i) v[i] = to_bf16(i / row);           // value j is j
  const at::Attention attention({.device = at::Device::emulator});          // once a process; thread-safe
  attention({.shape = {.dtype = at::Dtype::bf16, .batch = 1, .seqlen_q = seqlen, .seqlen_k = seqlen,
                       .heads_q = heads, .heads_kv = heads, .head_dim = head_dim, .causal = true},
             .q = at::bshd(q.data(), seqlen, heads, head_dim), .k = at::bshd(k.data(), seqlen, heads, head_dim),
             .v = at::bshd(v.data(), seqlen, heads, head_dim), .o = at::bshd(o.data(), seqlen, heads, head_dim)});
  std::printf("the last query takes the mean of 0 to %d: %.1f\n", seqlen - 1, from_bf16(o.back()));
  return from_bf16(o.back()) == 63.5F ? 0 : 1;
}
