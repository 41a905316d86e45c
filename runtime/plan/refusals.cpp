#include "runtime/plan/refusals.hpp"

#include <fmt/format.h>

#include "generator/check.hpp"
#include "runtime/plan/plan.hpp"

namespace attune {

std::vector<std::string> common_refusals(const Variant& variant, Operation operation, Dtype dtype,
                                         const Device& device) {
  if (family_of(variant).operation != operation) return {"template: it computes something else"};
  std::vector<std::string> result;
  if (variant.dtype != static_cast<int>(dtype)) {
    const Field& field = *find_field("dtype");
    result.push_back(fmt::format("dtype: the kernel takes {}, the problem has {}", value_text(field, variant.dtype),
                                 value_text(field, static_cast<int>(dtype))));
  }
  if (!meant_for(variant, device.capability)) {
    result.push_back(fmt::format("arch: the kernel is not meant for compute capability {}.{}", device.capability / 10,
                                 device.capability % 10));
  }
  for (const Refusal& refusal : check_limits(variant, device.capability, device.shared_per_block)) {
    result.push_back(refusal.field + ": " + refusal.message);
  }
  return result;
}

void check_knob(std::vector<std::string>& result, const Variant& variant, const char* key, bool wanted) {
  const bool has = variant.*find_field(key)->member != 0;
  if (has == wanted) return;
  const Family& family = family_of(variant);
  if (!family.has_key(key)) {
    result.push_back(fmt::format("{}: {} has no kernels with it, the problem needs one", key, family.name));
  } else {
    result.push_back(fmt::format("{}: the kernel has {}, the problem {}", key, has, wanted));
  }
}

void check_rotary(std::vector<std::string>& result, const Variant& variant, Rotary wanted) {
  if (variant.rotary == static_cast<int>(wanted)) return;
  const Field& field = *find_field("rotary");
  result.push_back(fmt::format("rotary: the kernel has {}, the problem {}", value_text(field, variant.rotary),
                               value_text(field, static_cast<int>(wanted))));
}

}  // namespace attune
