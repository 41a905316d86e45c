#include "generator/hints.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "generator/arch.hpp"
#include "generator/check.hpp"
#include "generator/diagnostic.hpp"

namespace attune {
namespace {

/// Names that others have for words of the table.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> other_names{{{"float16", "fp16"},
                                                                                    {"torch.float16", "fp16"},
                                                                                    {"half", "fp16"},
                                                                                    {"f16", "fp16"},
                                                                                    {"bfloat16", "bf16"},
                                                                                    {"torch.bfloat16", "bf16"},
                                                                                    {"yes", "true"},
                                                                                    {"no", "false"}}};

std::optional<int> number_of(std::string_view word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

bool is_buildable(const Family& family, const Field& field, int value) {
  Variant variant = family.defaults;
  variant.*field.member = value;
  return is_legal(field, value) && check(variant).empty();
}

}  // namespace

std::string meant_arch(std::string_view word) {
  std::vector<std::string> names;
  for (const Arch& arch : all_archs()) names.emplace_back(arch.name);
  std::string digits(word);
  std::erase(digits, '.');
  if (std::string name = "sm_" + digits; std::ranges::find(names, name) != names.end()) return name;
  return nearest_word(std::string(word), names);
}

std::string meant_value(const Family& family, const Field& field, std::string_view word) {
  const std::optional<int> number = field.kind == FieldKind::integer ? number_of(word) : std::nullopt;
  if (!number) {
    const std::vector<std::string> words = accepted_words(field);
    const auto* const other =
        std::ranges::find(other_names, word, &std::pair<std::string_view, std::string_view>::first);
    if (other != other_names.end() && std::ranges::find(words, other->second) != words.end()) {
      return std::string(other->second);
    }
    return nearest_word(std::string(word), words);
  }
  const bool serves_smaller = field.member == &Variant::head_dim || field.member == &Variant::head_dim_v;
  if (serves_smaller && *number > field.maximum) return "";
  std::optional<int> meant;
  for (int value = std::max(1, field.minimum); value <= field.maximum; ++value) {
    if (!is_buildable(family, field, value)) continue;
    meant = value;
    if (value >= *number) break;
  }
  return meant ? std::to_string(*meant) : nearest_value(field, word);
}

}  // namespace attune
