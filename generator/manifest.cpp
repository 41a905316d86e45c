#include "generator/manifest.hpp"

#include "generator/check.hpp"
#include "generator/variant_json.hpp"

namespace attune {

std::string manifest_json(std::span<const Wanted> wanted) {
  using Json = nlohmann::ordered_json;
  Json kernels = Json::array();
  for (const Wanted& one : wanted) {
    const Variant& variant = one.variant;
    const Resources needs = resources(variant);
    Json archs = Json::array();
    for (const Arch& arch : target_archs(variant)) archs.push_back(arch.name);
    const std::string name = variant.name();
    kernels.push_back({{"name", name},
                       {"source", name + ".cu"},
                       {"spec", one.spec},
                       {"template", family_of(variant).name},
                       {"archs", archs},
                       {"threads", needs.threads},
                       {"shared_bytes", needs.shared_bytes},
                       {"accumulator_registers", needs.accumulator_registers},
                       {"values", values_json(variant)}});
  }
  return json_text(Json{{"kernels", kernels}}, 2) + "\n";
}

}  // namespace attune
