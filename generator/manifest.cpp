#include "generator/manifest.hpp"

#include <nlohmann/json.hpp>

#include "generator/check.hpp"

namespace attune {

std::string manifest_json(std::span<const Wanted> wanted) {
  using Json = nlohmann::ordered_json;
  Json kernels = Json::array();
  for (const auto& [variant, spec] : wanted) {
    const Resources needs = resources(variant);
    Json archs = Json::array();
    for (const Arch& arch : target_archs(variant)) archs.push_back(arch.name);
    Json values = Json::object();
    for (const std::string_view key : family_of(variant).keys) {
      const Field& field = *find_field(key);
      values[std::string{key}] = value_text(field, variant.*field.member);
    }
    const std::string name = variant.name();
    kernels.push_back({{"name", name},
                       {"source", name + ".cu"},
                       {"spec", spec},
                       {"template", family_of(variant).name},
                       {"archs", archs},
                       {"threads", needs.threads},
                       {"shared_bytes", needs.shared_bytes},
                       {"accumulator_registers", needs.accumulator_registers},
                       {"values", values}});
  }
  return Json{{"kernels", kernels}}.dump(2) + "\n";
}

}  // namespace attune
