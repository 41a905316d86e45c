#include "runtime/call/problem_fields.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace attune {

std::string value_text(int value) { return std::to_string(value); }
std::string value_text(float value) { return fmt::format("{}", value); }
std::string value_text(Dtype value) { return value_text(*find_field("dtype"), static_cast<int>(value)); }
std::string value_text(Rotary value) { return value_text(*find_field("rotary"), static_cast<int>(value)); }

std::string joined(std::string_view word, std::vector<TextPart> parts) {
  std::ranges::stable_sort(parts, {}, [](const TextPart& part) { return std::min(part.first, Topic::mask); });
  std::string text(word);
  for (const TextPart& part : parts) text += part.second;
  return word.empty() ? text.substr(1) : text;
}

}  // namespace attune
