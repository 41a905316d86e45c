#include "generator/embed.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "generator/check.hpp"

namespace attune {
namespace {

/// Compilers need not take string literals of more than 64 KB; this leaves room for any of them.
constexpr std::size_t max_literal = 8192;

/// The GPUs whose machine code every kernel for any GPU carries.
constexpr std::array<int, 2> common_capabilities{80, 90};

/// As a word of a shell command inside a ninja file.
std::string ninja_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      if (c == '$') word += '$';
      word += c;
    }
  }
  return word + "'";
}

std::string variant_literal(const Variant& variant) {
  std::string text = fmt::format("{{.family = {}, .arch = {:#x}", variant.family, variant.arch);
  for (const Field& field : fields()) text += fmt::format(", .{} = {}", field.key, variant.*field.member);
  return text + "}";
}

std::string blob_symbol(const Source& source) { return fmt::format("attune_fatbin_{}", source.name); }

}  // namespace

std::string gencode_options(const Variant& variant) {
  const Family& family = family_of(variant);
  const auto machine_code = [&](int capability) {
    return fmt::format(" -gencode arch=compute_{0},code=sm_{0}", family.target(capability));
  };
  const std::vector<Arch> targets = target_archs(variant);
  std::string options;
  if (variant.arch != 0 || family.architecture_specific) {
    for (const Arch& arch : targets) options += machine_code(arch.capability);
  } else {
    for (const int capability : common_capabilities) {
      if (std::ranges::find(targets, capability, &Arch::capability) != targets.end())
        options += machine_code(capability);
    }
    options += fmt::format(" -gencode arch=compute_{0},code=compute_{0}", family.minimum_capability);
  }
  return options.substr(1);
}

std::string kernels_ninja(std::span<const Source> sources, std::string_view nvcc) {
  std::string text = fmt::format(
      "# Compiles every kernel of this folder: ninja -f kernels.ninja\n"
      "nvcc = {}\n"
      "flags = {} --compress-mode=size -Werror all-warnings\n"
      "\n"
      "rule fatbin\n"
      "  command = $nvcc $flags $gencode --fatbin -o $out $in\n"
      "  description = nvcc $in\n",
      ninja_word(nvcc), fmt::join(compile_flags(), " "));
  for (const Source& source : sources) {
    text += fmt::format("\nbuild {0}.fatbin: fatbin {0}.cu\n  gencode = {1}\n", source.name,
                        gencode_options(source.variant));
  }
  return text;
}

std::string kernel_table(std::span<const Source> sources) {
  std::string symbols;
  std::string rows;
  for (const Source& source : sources) {
    const std::string symbol = blob_symbol(source);
    symbols += fmt::format("extern const char {0}_begin[];\nextern const char {0}_end[];\n", symbol);
    rows += fmt::format("      {{{}, \"{}\",\n       {{{}_begin, {}_end}}}},\n", variant_literal(source.variant),
                        source.name, symbol, symbol);
  }
  if (sources.empty()) {
    return "// The embedded kernels: none.\n"
           "#include \"runtime/embedded.hpp\"\n\n"
           "std::span<const attune::EmbeddedKernel> attune::embedded_kernels() { return {}; }\n";
  }
  return fmt::format(
      "// The embedded kernels.\n"
      "#include <array>\n\n"
      "#include \"runtime/embedded.hpp\"\n\n"
      "extern \"C\" {{\n{}}}\n\n"
      "std::span<const attune::EmbeddedKernel> attune::embedded_kernels() {{\n"
      "  static const std::array<EmbeddedKernel, {}> kernels{{{{\n{}  }}}};\n"
      "  return kernels;\n"
      "}}\n",
      symbols, sources.size(), rows);
}

std::string kernel_blobs(std::span<const Source> sources) {
  std::string text = "// The fatbins of the embedded kernels.\n  .section .rodata\n";
  for (const Source& source : sources) {
    text += fmt::format(
        "\n  .hidden {0}_begin\n  .hidden {0}_end\n  .global {0}_begin\n  .global {0}_end\n  .balign 64\n"
        "{0}_begin:\n  .incbin \"{1}.fatbin\"\n{0}_end:\n",
        blob_symbol(source), source.name);
  }
  return text + "\n  .section .note.GNU-stack, \"\", %progbits\n";
}

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
