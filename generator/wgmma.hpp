// The one block that is written for a variant, because C++ has no operand list that follows a template argument.
#pragma once

#include <string>
#include <string_view>

#include "generator/variant.hpp"

namespace attune {

/// Where templates include it from.
inline constexpr std::string_view wgmma_path = "ptx/wgmma_shapes.cuh";

/// Its text for a variant: the products of a warpgroup, S of B_c columns with A in shared memory or, where it holds Q
/// in registers, there, and O of head_dim columns with A in registers, those of P and of its residual. All steps of a
/// product are one asm statement, since NVRTC needs 9% longer for one each. Products that are alike share a function.
std::string wgmma_text(const Variant& variant);

/// The text for the variant block that stands in prefill_sm90.cu: the file at wgmma_path, which is there so that the
/// template compiles as it stands.
std::string own_wgmma_text();

}  // namespace attune
