#include "runtime/choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/error.hpp"

namespace attune {
namespace {

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
  const bool padded = best->columns() > choose_own(problem, device).variant.columns();
  return {.kernel = &*std::ranges::find(kernels, *best, &EmbeddedKernel::variant),
          .preferred = !(padded && policy == ATTUNE_COMPILE_EXACT)};
}

OwnChoice choose_own(const Problem& problem, const Device& device) {
  OwnChoice choice;
  for (auto family = static_cast<int>(families().size()) - 1; family >= 0; --family) {
    choice.variant = default_variant(family, problem.dtype, problem.head_dim, problem.causal, device.shared_per_block,
                                     problem.best_tile(), problem.head_dim_of_v());
    choice.refusals = refusals(choice.variant, problem, device);
    const bool newer = family > 0;
    if (newer && wastes_padding(choice.variant, problem)) {
      choice.refusals.push_back(fmt::format("head_dim: padding {} to {} costs more than this family gains",
                                            problem.head_dim, choice.variant.head_dim));
    }
    if (!newer || choice.refusals.empty()) break;
    if (family_of(choice.variant).runs_on(device.capability)) {
      choice.passed_over.push_back({choice.variant, choice.refusals});
    }
  }
  return choice;
}

Variant variant_to_generate(const Problem& problem, const Device& device, attune_compile_policy policy) {
  const OwnChoice own = choose_own(problem, device);
  if (!own.refusals.empty()) {
    throw Error(ATTUNE_UNSUPPORTED,
                fmt::format("no kernel can serve {} on {} (compute capability {}.{}): {}", problem.text(), device.name,
                            device.capability / 10, device.capability % 10, fmt::join(own.refusals, "; ")));
  }
  if (policy == ATTUNE_COMPILE_NEVER) {
    throw Error(ATTUNE_NOT_COMPILED, "the compile policy is ATTUNE_COMPILE_NEVER");
  }
  return own.variant;
}

Source generate(const Variant& variant) {
  Result<Source> source = emit(variant, embedded_templates(), "made at run time");
  if (!source.ok()) throw Error(ATTUNE_INTERNAL_ERROR, lines_of(source.problems));
  return std::move(source.value);
}

}  // namespace attune
