// Calls the installed library through attune.hpp, as a C++ program would.
#include <attune/attune.hpp>
#include <cstring>
#include <iostream>

int main() {
  namespace at = attune::api;
  const at::Attention attention({.compile = at::Compile::frozen, .cache_dir = {}});

  at::Prefill call{.shape = {.dtype = at::Dtype::fp16,
                             .batch = 0,
                             .seqlen_q = 7,
                             .seqlen_k = 9,
                             .heads_q = 4,
                             .heads_kv = 2,
                             .head_dim = 64,
                             .causal = false},
                   .q = at::bshd(nullptr, 7, 4, 64),
                   .k = at::bhsd(nullptr, 9, 2, 64),
                   .v = at::packed(nullptr, 9, 8, 64, 6),
                   .o = at::bshd(nullptr, 7, 4, 64),
                   .lse = nullptr,
                   .softmax_scale = {}};
  attention(call);  // an empty batch launches nothing, with or without a GPU

  call.shape.heads_kv = 3;
  try {
    attention(call);
  } catch (const at::Error& error) {
    const bool named = error.status() == ATTUNE_INVALID_ARGUMENT && std::strstr(error.what(), "heads_kv is 3");
    std::cout << "attune " << attune_version() << ": C++ API " << (named ? "works" : "is broken") << '\n';
    return named ? 0 : 1;
  }
  std::cerr << "a head count that does not divide was accepted\n";
  return 1;
}
