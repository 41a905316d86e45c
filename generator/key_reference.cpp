#include "generator/key_reference.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/variant.hpp"

namespace attune {
namespace {

constexpr std::string_view begin_mark = "<!-- keys -->\n";
constexpr std::string_view end_mark = "<!-- end of keys -->\n";

struct RoleText {
  Role role;
  std::string_view title;
};

constexpr std::array role_texts{
    RoleText{Role::contract, "What a kernel computes (contract)"},
    RoleText{Role::tile, "Its tile"},
    RoleText{Role::schedule, "Its schedule"},
    RoleText{Role::teaching, "To see what a technique gains (teaching)"},
};

/// "64", or where families differ "64; prefill_sm90 128".
std::string defaults_text(const Field& field, const std::vector<const Family*>& having) {
  const auto value_in = [&](const Family& family) { return value_text(field, family.defaults.*field.member); };
  const std::string usual = value_in(*having.front());
  std::string text = usual;
  for (const Family* family : having) {
    if (value_in(*family) != usual) text += fmt::format("; {} {}", family->name, value_in(*family));
  }
  return text;
}

std::string row_of(const Field& field) {
  std::vector<const Family*> having;
  std::vector<std::string_view> names;
  for (const Family& family : families()) {
    if (!family.has_key(field.key)) continue;
    having.push_back(&family);
    names.push_back(family.name);
  }
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", field.key, accepted_values(field), defaults_text(field, having),
                     field.doc, fmt::join(names, ", "));
}

}  // namespace

std::string key_reference() {
  std::string text = "| `template:` | compute capability | |\n|---|---|---|\n";
  for (const Family& family : families()) {
    text += fmt::format("| `{}` | {}.{}{} | {} |\n", family.name, family.minimum_capability / 10,
                        family.minimum_capability % 10, family.architecture_specific ? "" : " and newer", family.doc);
  }
  for (const RoleText& role : role_texts) {
    text += fmt::format("\n### {}\n\n| key | values | default | | templates |\n|---|---|---|---|---|\n", role.title);
    for (const Field& field : fields()) {
      if (field.role == role.role) text += row_of(field);
    }
  }
  return text;
}

Result<std::string> with_key_reference(std::string_view page, const std::string& file) {
  Result<std::string> result;
  const std::size_t begin = page.find(begin_mark);
  const std::size_t end = page.find(end_mark);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
    result.problems.push_back(
        {.where = {.file = file},
         .what = "the page has no place for the keys",
         .fix =
             "a line `<!-- keys -->`, and behind it a line `<!-- end of keys -->`; what is between them is written"});
    return result;
  }
  result.value = fmt::format("{}{}\n{}", page.substr(0, begin + begin_mark.size()), key_reference(), page.substr(end));
  return result;
}

}  // namespace attune
