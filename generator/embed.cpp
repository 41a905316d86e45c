#include "generator/embed.hpp"

#include <fmt/format.h>

namespace attune {
namespace {

/// Compilers need not take string literals of more than 64 KB; this leaves room for any of them.
constexpr std::size_t max_literal = 8192;

}  // namespace

std::string text_table(const TemplateFiles& files, std::string_view function, std::string_view header) {
  std::string text = fmt::format(
      "// Files as text.\n"
      "#include \"{}\"\n\n"
      "const attune::TemplateFiles& {}() {{\n"
      "  static const TemplateFiles files = [] {{\n"
      "    TemplateFiles all;\n",
      header, function);
  for (const auto& [path, content] : files) {
    text += fmt::format("    {{\n      std::string& text = all[\"{}\"];\n", path);
    for (std::size_t start = 0; start < content.size(); start += max_literal) {
      text += fmt::format("      text += R\"~~~~({})~~~~\";\n", std::string_view{content}.substr(start, max_literal));
    }
    text += "    }\n";
  }
  return text +
         "    return all;\n"
         "  }();\n"
         "  return files;\n"
         "}\n";
}

}  // namespace attune
