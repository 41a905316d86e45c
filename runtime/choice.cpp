#include "runtime/choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/error.hpp"
#include "runtime/plan.hpp"

namespace attune {
namespace {

/// Smallest head_dim that a kernel of exactly this problem's head_dim can have.
int exact_head_dim(const Problem& problem, const Device& device) {
  return default_variant(problem.dtype, problem.head_dim, problem.causal, device.shared_per_block).head_dim;
}

std::string lines_of(const std::vector<Diagnostic>& problems) {
  std::vector<std::string> lines;
  lines.reserve(problems.size());
  for (const Diagnostic& problem : problems) lines.push_back(problem.text());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

EmbeddedChoice choose_embedded(const Problem& problem, const Device& device, attune_compile_policy policy) {
  const auto kernels = embedded_kernels();
  std::vector<Variant> variants;
  variants.reserve(kernels.size());
  for (const EmbeddedKernel& kernel : kernels) variants.push_back(kernel.variant);
  const auto best = choose(variants, problem, device);
  if (!best) return {};
  const bool padded = best->head_dim > exact_head_dim(problem, device);
  return {.kernel = &*std::ranges::find(kernels, *best, &EmbeddedKernel::variant),
          .preferred = !(padded && policy == ATTUNE_COMPILE_EXACT)};
}

Variant variant_to_generate(const Problem& problem, const Device& device, attune_compile_policy policy) {
  const Variant variant = default_variant(problem.dtype, problem.head_dim, problem.causal, device.shared_per_block);
  if (const auto reasons = refusals(variant, problem, device); !reasons.empty()) {
    throw Error(ATTUNE_UNSUPPORTED,
                fmt::format("no kernel can serve {} on {} (compute capability {}.{}): {}", problem.text(), device.name,
                            device.capability / 10, device.capability % 10, fmt::join(reasons, "; ")));
  }
  if (policy == ATTUNE_COMPILE_NEVER) {
    throw Error(ATTUNE_NOT_COMPILED, "the compile policy is ATTUNE_COMPILE_NEVER");
  }
  return variant;
}

Source generate(const Variant& variant) {
  Result<Source> source = emit(variant, embedded_templates(), "made at run time");
  if (!source.ok()) throw Error(ATTUNE_INTERNAL_ERROR, lines_of(source.problems));
  return std::move(source.value);
}

}  // namespace attune
