#include "runtime/cli/kernel_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/text.hpp"

namespace attune::cli {
namespace {

/// "any" when nothing new enough is left out.
std::string archs_text(const Variant& variant) {
  const std::vector<std::string_view> names = arch_names(variant);
  const auto new_enough = std::ranges::count_if(
      all_archs(), [&](const Arch& arch) { return arch.capability >= minimum_capability(variant); });
  return names.size() == static_cast<std::size_t>(new_enough) ? "any" : fmt::format("{}", fmt::join(names, " "));
}

std::string field_text(const Variant& variant, std::string_view key) {
  const Field& field = *find_field(key);
  return value_text(field, variant.*field.member);
}

/// "192", or "192 / 128" where V has its own.
std::string head_dims_text(const Variant& variant) {
  if (variant.head_dim_of_v() == variant.head_dim) return std::to_string(variant.head_dim);
  return fmt::format("{} / {}", variant.head_dim, variant.head_dim_of_v());
}

}  // namespace

std::vector<std::string_view> arch_names(const Variant& variant) {
  std::vector<std::string_view> names;
  for (const Arch& arch : target_archs(variant)) names.push_back(arch.name);
  return names;
}

std::string kernel_table(std::span<const ReadyKernel> kernels, std::span<const BundledTable> tables) {
  Table table({{"name"},
               {"dtype"},
               {"head_dim", Align::right},
               {"tile"},
               {"mask"},
               {"threads", Align::right},
               {"shared", Align::right},
               {"bytes", Align::right},
               {"GPUs"}});
  double total = 0;
  for (const ReadyKernel& kernel : kernels) {
    const Variant& variant = kernel.variant;
    const Resources asked = resources(variant);
    table.add({std::string(kernel.name), field_text(variant, "dtype"), head_dims_text(variant),
               fmt::format("{} x {}", variant.B_r, variant.B_c), variant.causal != 0 ? "causal" : "full",
               std::to_string(asked.threads), bytes_text(asked.shared_bytes),
               bytes_text(static_cast<double>(kernel.fatbin.size())), archs_text(variant)});
    total += static_cast<double>(kernel.fatbin.size());
  }
  return fmt::format("{}{}, {} of images{}\n", table.text(), counted(static_cast<long long>(kernels.size()), "kernel"),
                     bytes_text(total),
                     tables.empty() ? "" : fmt::format("; tuned: {}", fmt::join(names_of(tables), ", ")));
}

std::vector<std::string> names_of(std::span<const BundledTable> tables) {
  std::vector<std::string> names;
  for (const BundledTable& table : tables) names.push_back(table.file);
  return names;
}

nlohmann::ordered_json kernels_json(std::span<const ReadyKernel> kernels) {
  auto rows = nlohmann::ordered_json::array();
  for (const ReadyKernel& kernel : kernels) {
    const Resources asked = resources(kernel.variant);
    rows.push_back({{"name", kernel.name},
                    {"dtype", field_text(kernel.variant, "dtype")},
                    {"head_dim", kernel.variant.head_dim},
                    {"head_dim_v", kernel.variant.head_dim_of_v()},
                    {"B_r", kernel.variant.B_r},
                    {"B_c", kernel.variant.B_c},
                    {"causal", kernel.variant.causal != 0},
                    {"threads", asked.threads},
                    {"shared_bytes", asked.shared_bytes},
                    {"archs", arch_names(kernel.variant)},
                    {"tables_only", kernel.tables_only},
                    {"bytes", kernel.fatbin.size()}});
  }
  return rows;
}

}  // namespace attune::cli
