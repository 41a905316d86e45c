#include "generator/need.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace attune {
namespace {

/// The number that a field's value stands for: 0 may be head_dim's.
template <class Values>
int number_of(const Values& values, int Values::*member, const Field& field) {
  return values.*member == 0 && field.zero_is_head_dim() ? values.head_dim : values.*member;
}

bool relates(Relation relation, int kernel, int wanted) {
  switch (relation) {
    case Relation::free:
      return true;
    case Relation::exact:
      return kernel == wanted;
    case Relation::at_least:
      return kernel >= wanted;
    case Relation::divides:
      return wanted % kernel == 0;
    case Relation::any_or_equal:
      return kernel == 0 || kernel == wanted;
    case Relation::covers:
      return kernel != 0 || wanted == 0;
  }
  return false;
}

std::string difference_text(const Field& field, Relation relation, int kernel, int wanted) {
  const char* form = "{}: the kernel has {}, the problem {}";
  if (relation == Relation::at_least) form = "{}: the kernel serves up to {}, the problem has {}";
  if (relation == Relation::divides) form = "{}: the kernel serves multiples of {}, the problem has those of {}";
  if (relation == Relation::any_or_equal) form = "{}: the kernel is for {} alone, the problem has {}";
  return fmt::format(fmt::runtime(form), field.key, value_text(field, kernel), value_text(field, wanted));
}

/// Why the variant's value of one field does not do; nothing where it does.
std::optional<std::string> difference(const Variant& variant, const Need& need, const Field& field) {
  const Family& family = family_of(variant);
  if (!family.has_key(field.key)) {
    if (field.met_by_maps && family.tensor_maps) return std::nullopt;
    const bool is_any = field.relation == Relation::any_or_equal || field.relation == Relation::divides;
    if (is_any || need.*field.wanted == Need{}.*field.wanted) return std::nullopt;
    return fmt::format("{}: {} has no kernels with it, the problem {}", field.key, family.name,
                       field.kind == FieldKind::boolean ? "needs one" : "has " + value_text(field, need.*field.wanted));
  }
  if (const Field* within = field.within.empty() ? nullptr : find_field(field.within)) {
    if (variant.*within->member != 0 || need.*within->wanted != 0) return std::nullopt;
  }
  const int kernel = number_of(variant, field.member, field);
  const int wanted = number_of(need, field.wanted, field);
  const bool no_padding = field.relation == Relation::at_least && variant.one_query != 0;
  const Relation relation = no_padding ? Relation::exact : field.relation;
  if (relates(relation, kernel, wanted)) return std::nullopt;
  return difference_text(field, relation, kernel, wanted);
}

const char* unmappable_text(Unmappable reason) {
  switch (reason) {
    case Unmappable::seqlen_k:
      return "seqlen_k: it is 0, and a tensor map holds at least one key";
    case Unmappable::total_k:
      return "total_k: it is 0, and a tensor map holds at least one key";
    case Unmappable::queries:
      return "queries: there are none, and a tensor map holds at least one";
    case Unmappable::pages:
      return "pages: there are none, and a tensor map holds at least one";
    case Unmappable::strides:
    case Unmappable::no:
      break;
  }
  return "strides: one is 0, shorter than a row or 2^40 bytes and more, which no tensor map takes";
}

/// Gives each reason to visit(); stops where it returns false.
template <class Visit>
void for_each_refusal(const Variant& variant, const Need& need, const Visit& visit) {
  const Family& family = family_of(variant);
  if (family.operation != need.operation) {
    visit("template: it computes something else");
    return;
  }
  for (const Field& field : fields()) {
    if (field.relation == Relation::free) continue;
    const std::optional<std::string> reason = difference(variant, need, field);
    if (reason && !visit(*reason)) return;
  }
  const auto unmappable = static_cast<Unmappable>(need.unmappable);
  if (family.tensor_maps && unmappable != Unmappable::no) visit(unmappable_text(unmappable));
}

}  // namespace

std::uint64_t Need::hash() const {
  constexpr std::uint64_t prime = 0x9e3779b97f4a7c15;
  std::uint64_t hash = 0;
  for (const std::uint32_t word :
       std::bit_cast<std::array<std::uint32_t, sizeof(Need) / sizeof(std::uint32_t)>>(*this)) {
    hash = (hash ^ word) * prime;
  }
  return hash ^ hash >> 32;
}

std::vector<std::string> refusals(const Variant& variant, const Need& need) {
  std::vector<std::string> result;
  for_each_refusal(variant, need, [&](std::string reason) {
    result.push_back(std::move(reason));
    return true;
  });
  return result;
}

bool meets(const Variant& variant, const Need& need) {
  bool met = true;
  for_each_refusal(variant, need, [&](const std::string&) { return met = false; });
  return met;
}

Variant relaxed(const Variant& variant) {
  Variant result = variant;
  if (variant.pack_gqa != 0) return result;  // its rows are those of so many heads
  for (const Field& field : fields()) {
    if (field.relation == Relation::any_or_equal) result.*field.member = 0;
  }
  return result;
}

}  // namespace attune
