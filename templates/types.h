// Names of the plain types and of the choices a variant makes. NVRTC has no <cstdint>, so these are ours.
#pragma once

using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// The type that a variant's constant chooses.
template <bool condition, class A, class B>
struct Choice {
  using Type = A;
};
template <class A, class B>
struct Choice<false, A, B> {
  using Type = B;
};
template <bool condition, class A, class B>
using Select = typename Choice<condition, A, B>::Type;

enum class Dtype { fp16, bf16 };
enum class Rescale { always, skip_first, on_new_max };

[[maybe_unused]] constexpr int warp_size = 32;        // threads that ldmatrix and mma are defined over
[[maybe_unused]] constexpr int warpgroup_size = 128;  // and those of wgmma and setmaxnreg
