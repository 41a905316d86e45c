#include "generator/emit.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "generator/check.hpp"
#include "generator/condition.hpp"
#include "generator/constant.hpp"
#include "generator/declarations.hpp"
#include "generator/expression/cuda.hpp"
#include "generator/expression/pool.hpp"
#include "generator/fold.hpp"
#include "generator/template_file.hpp"
#include "generator/wgmma.hpp"

namespace attune {
namespace {

constexpr std::size_t line_width = 120;
constexpr std::string_view block_begin = "namespace variant {";
constexpr std::string_view block_end = "}  // namespace variant";

/// The three layers of templates/; each may include its own and those before it.
enum class Layer { root, ptx, blocks };

Layer layer_of(std::string_view path) {
  if (path.starts_with("blocks/")) return Layer::blocks;
  return path.find('/') == std::string_view::npos ? Layer::root : Layer::ptx;
}

/// Collects lines and keeps the text free of trailing blanks, of runs of empty lines and of those around the head of a
/// section, its first comment, unless another comment follows.
class Text {
 public:
  void line(std::string_view text) {
    const std::size_t end = text.find_last_not_of(" \t\r");
    text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
    if (text.empty() && (text_.empty() || text_.ends_with("\n\n") || text_.ends_with("{\n") || in_head_)) {
      head_ends_ = in_head_;
      return;
    }
    if (text_.ends_with("\n\n") && trimmed(text).starts_with('}')) text_.pop_back();
    const bool is_comment = text.starts_with("//");
    if (head_ends_ && is_comment) text_ += '\n';
    in_head_ = in_head_ && is_comment && !head_ends_;
    head_ends_ = false;
    text_ += text;
    text_ += '\n';
  }

  void section(std::string_view title) {
    if (text_.ends_with("\n\n")) text_.pop_back();
    in_head_ = true;
    head_ends_ = false;
    const std::string head = fmt::format("// --- {} ", title);
    line(head + std::string(line_width - std::min(line_width, head.size()), '-'));
  }

  [[nodiscard]] std::string take() && {
    while (text_.ends_with("\n\n")) text_.pop_back();
    return std::move(text_);
  }

 private:
  std::string text_;
  bool in_head_ = false;
  bool head_ends_ = false;  ///< behind it an empty line was left out
};

/// A file as it is written, and as the variant has it.
struct Part {
  Part(std::string_view path, std::string_view text, const Variant& variant)
      : file(path, text), folded(fold(file, variant)), own(path, folded.value) {}

  TemplateFile file;
  Result<std::string> folded;
  TemplateFile own;              ///< of the text that is folded
  std::vector<bool> used_lines;  ///< of it
};

/// The text of the expressions of a variant that has some, of blocks.
std::string block_expressions_text(const Variant& variant) {
  return variant.mask == 0 ? std::string{} : expression::block_cuda_text(expression::expression_of(variant.mask));
}

/// The same of where scores are finished.
std::string expressions_text(const Variant& variant) {
  const auto of = [](int number) { return number == 0 ? nullptr : &expression::expression_of(number); };
  if (variant.score == 0 && variant.mask == 0) return {};
  return expression::cuda_text(of(variant.score), of(variant.mask), tilts_scores(variant),
                               first_keys_apart(variant) > 0);
}

class Emitter {
 public:
  Emitter(const Variant& variant, const TemplateFiles& templates, std::string_view spec)
      : variant_(variant),
        templates_(templates),
        spec_(spec),
        family_(family_of(variant)),
        wgmma_text_(wgmma_text(variant)),
        expressions_text_(expressions_text(variant)),
        block_expressions_text_(block_expressions_text(variant)) {}

  Result<Source> run() && {
    const std::string path = fmt::format("{}.cu", family_.name);
    const auto found = templates_.find(path);
    if (found == templates_.end()) {
      result_.problems.push_back({{"templates/" + path, 0, 0}, "there is no such template", ""});
      return std::move(result_);
    }
    Part part(path, found->second, variant_);
    const TemplateFile& kernel = part.file;
    find_block(kernel);
    visit_includes(part, Layer::blocks);
    check_names(part);
    find_kernel(kernel);
    if (!result_.ok()) return std::move(result_);
    find_uses(part);
    result_.value.variant = variant_;
    result_.value.name = variant_.name();
    result_.value.text = assemble(part);
    return std::move(result_);
  }

 private:
  void problem(Location where, std::string what, std::string fix) {
    result_.problems.push_back({std::move(where), std::move(what), std::move(fix)});
  }

  /// The text of a file that is included; null when there is none.
  [[nodiscard]] const std::string* text_of(std::string_view path) const {
    if (path == wgmma_path) return &wgmma_text_;
    if (path == expression::cuda_path && !expressions_text_.empty()) return &expressions_text_;
    if (path == expression::block_cuda_path && !block_expressions_text_.empty()) return &block_expressions_text_;
    const auto found = templates_.find(path);
    return found == templates_.end() ? nullptr : &found->second;
  }

  [[nodiscard]] std::vector<std::string> knobs() const { return {family_.keys.begin(), family_.keys.end()}; }

  /// Finds the variant block and checks it against the family's keys.
  void find_block(const TemplateFile& kernel) {
    const auto& lines = kernel.lines();
    const auto begin = std::ranges::find(lines, block_begin);
    const auto end = std::find(begin, lines.end(), block_end);
    if (end == lines.end()) {
      problem(kernel.at(0), "there is no variant block",
              fmt::format("a block from `{}` to `{}`", block_begin, block_end));
      return;
    }
    block_begin_ = static_cast<std::size_t>(begin - lines.begin());
    block_end_ = static_cast<std::size_t>(end - lines.begin());
    for (std::size_t i = block_begin_ + 1; i < block_end_; ++i) read_constant(kernel, i);
    for (const std::string_view key : family_.keys) {
      if (!constants_.contains(key)) {
        problem(kernel.at(block_begin_), fmt::format("the variant block lacks {}", key),
                constant_definition(*find_field(key), variant_.*find_field(key)->member));
      }
    }
  }

  /// One line of the variant block: `constexpr type key = value;`, a comment or nothing.
  void read_constant(const TemplateFile& kernel, std::size_t index) {
    const std::string_view code = trimmed(kernel.code_lines()[index]);
    if (code.empty()) return;
    const std::size_t type_start = std::min(code.find(' '), code.size());
    const std::size_t key_start = std::min(code.find(' ', type_start + 1), code.size());
    const std::size_t key_end = std::min(code.find(" = ", key_start), code.size());
    if (code.substr(0, type_start) != "constexpr" || key_end == code.size() || !code.ends_with(';')) {
      problem(kernel.at(index), "only constants may stand in the variant block", "`constexpr int head_dim = 128;`");
      return;
    }
    const std::string_view type = code.substr(type_start + 1, key_start - type_start - 1);
    const std::string_view key = code.substr(key_start + 1, key_end - key_start - 1);
    if (std::ranges::find(family_.keys, key) == family_.keys.end()) {
      const std::string near = nearest_word(std::string{key}, knobs());
      problem(kernel.at(index), fmt::format("{} has no knob {}", family_.name, key),
              near.empty() ? fmt::format("knobs are {}", fmt::join(family_.keys, ", "))
                           : fmt::format("did you mean {}?", near));
      return;
    }
    const std::string expected = constant_type(*find_field(key));
    if (type != expected)
      problem(kernel.at(index), fmt::format("{} is of type {}", key, type), "its type is " + expected);
    const auto [first, is_new] = constants_.emplace(key, index);
    if (!is_new) {
      problem(kernel.at(index), fmt::format("{} is given again", key),
              fmt::format("line {} has it", first->second + 1));
    }
  }

  /// Follows the includes of one file, depth first, so that every file comes behind those it needs.
  void visit_includes(const Part& part, Layer layer) {
    for (const Include& include : part.file.includes()) {
      const std::string* const text = text_of(include.path);
      if (text == nullptr) {
        std::vector<std::string> paths;
        for (const auto& file : templates_) paths.push_back(file.first);
        const std::string near = nearest_word(include.path, paths);
        problem(include.where, fmt::format("templates/ has no {}", include.path),
                near.empty() ? "a path relative to templates/: an emitted file includes nothing"
                             : fmt::format("did you mean {}?", near));
      } else if (layer_of(include.path) > layer) {
        problem(include.where, fmt::format("{} may not be included from here", include.path),
                "blocks/ builds on ptx/, and both build on the headers beside the templates");
      } else if (std::ranges::find(open_, include.path) != open_.end()) {
        problem(
            include.where,
            fmt::format("including {} closes a circle: {} -> {}", include.path, fmt::join(open_, " -> "), include.path),
            "remove one of these includes");
      } else if (visited_.insert(include.path).second) {
        const Part& included =
            *files_.emplace(include.path, std::make_unique<Part>(include.path, *text, variant_)).first->second;
        open_.push_back(include.path);
        visit_includes(included, layer_of(include.path));
        open_.pop_back();
        layers_[static_cast<std::size_t>(layer_of(include.path))].emplace_back(include.path);
      }
    }
  }

  /// Every variant::name exists, every knob is used, every condition is understood, and nothing waits for a splice.
  void check_names(const Part& part) {
    std::set<std::string_view> used;
    check_file(part, used);
    for (const auto& entry : files_) check_file(*entry.second, used);
    for (const auto& [key, index] : constants_) {
      if (!used.contains(key))
        problem(part.file.at(index), fmt::format("unused knob {}", key),
                fmt::format("neither the kernel nor what it includes reads variant::{}", key));
    }
  }

  void check_file(const Part& part, std::set<std::string_view>& used) {
    for (const VariantUse& use : part.file.variant_uses()) {
      used.insert(use.name);
      if (std::ranges::find(family_.keys, use.name) != family_.keys.end()) continue;
      const std::string near = nearest_word(std::string{use.name}, knobs());
      problem(use.where, fmt::format("variant::{} does not exist", use.name),
              near.empty() ? fmt::format("knobs are {}", fmt::join(family_.keys, ", "))
                           : fmt::format("did you mean variant::{}?", near));
    }
    std::ranges::copy(part.folded.problems, std::back_inserter(result_.problems));
    std::ranges::move(part.file.splices(), std::back_inserter(result_.problems));
  }

  /// Which lines of the kernel's file and of those it includes the source has, and which constants these read.
  void find_uses(Part& kernel) {
    std::vector<Part*> parts{&kernel};
    for (const auto& entry : files_) parts.push_back(entry.second.get());
    std::vector<const TemplateFile*> files;
    for (const Part* part : parts) files.push_back(&part->own);
    std::vector<std::vector<bool>> lines = used_lines(files);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Part& part = *parts[i];
      part.used_lines = std::move(lines[i]);
      for (std::size_t line = 0; line < part.used_lines.size(); ++line) {
        if (part.own.is_dropped(line)) part.used_lines[line] = false;
      }
      for (const VariantUse& use : part.own.variant_uses()) {
        if (part.used_lines[static_cast<std::size_t>(use.where.line) - 1]) emitted_.insert(find_field(use.name)->key);
      }
    }
  }

  /// Finds the one extern "C" kernel, whose name the variant's replaces.
  void find_kernel(const TemplateFile& kernel) {
    constexpr std::string_view linkage = "extern \"C\"";
    const std::string_view code = kernel.code();
    const std::size_t declared = code.find(linkage);
    if (declared == std::string_view::npos) {
      problem(kernel.at(0), "there is no extern \"C\" kernel",
              fmt::format("extern \"C\" __global__ void {}(...)", family_.name));
      return;
    }
    const std::size_t second = code.find(linkage, declared + 1);
    if (second != std::string_view::npos)
      problem(kernel.at_offset(second), "a second extern \"C\" stands here", "one kernel per template");
    std::vector<std::size_t> names;
    for (std::size_t i = code.find(family_.name); i != std::string_view::npos; i = code.find(family_.name, i + 1)) {
      if (i > 0 && !is_word(code[i - 1]) && code.substr(i + family_.name.size()).starts_with('(')) names.push_back(i);
    }
    if (names.size() != 1 || names.front() < declared) {
      problem(names.size() > 1 ? kernel.at_offset(names[1]) : kernel.at_offset(declared),
              fmt::format("the kernel's name {} occurs {} times before a parenthesis", family_.name, names.size()),
              "it occurs once, behind extern \"C\"");
    }
  }

  [[nodiscard]] std::string assemble(const Part& part) const {
    Text text;
    banner(text);
    text.line("");
    const auto& lines = part.own.lines();
    std::size_t header_lines = 0;
    while (header_lines < lines.size() && lines[header_lines].starts_with("//")) text.line(lines[header_lines++]);
    layer(text, Layer::root);
    constants(text);
    text.line("#ifndef ATTUNE_EMULATOR  // on the CPU these instructions have other bodies, given before this file");
    layer(text, Layer::ptx);
    text.line("#endif  // ATTUNE_EMULATOR");
    layer(text, Layer::blocks);
    text.section(fmt::format("{}.cu", family_.name));
    bool in_block = false;
    for (std::size_t i = header_lines; i < lines.size(); ++i) {
      in_block = in_block || lines[i] == block_begin;
      if (part.used_lines[i] && !in_block) text.line(renamed(lines[i]));
      in_block = in_block && lines[i] != block_end;
    }
    return std::move(text).take();
  }

  /// The line, with the variant's name where it has the kernel's.
  [[nodiscard]] std::string renamed(std::string_view line) const {
    const std::string declared = fmt::format(" {}(", family_.name);
    const std::size_t found = line.find(declared);
    if (found == std::string_view::npos) return std::string{line};
    return fmt::format("{} {}({}", line.substr(0, found), variant_.name(), line.substr(found + declared.size()));
  }

  /// The element type and the shapes, in words.
  [[nodiscard]] std::string serves() const {
    return fmt::format(
        "{}, {}{}", value_text(*find_field("dtype"), variant_.dtype),
        family_.has_key("head_dim") ? fmt::format("head_dim up to {}", variant_.head_dim) : "any head_dim",
        variant_.causal != 0 ? ", causal" : "");
  }

  void banner(Text& text) const {
    const Resources needs = resources(variant_);
    const std::string name = variant_.name();
    std::string spec{spec_};
    std::ranges::replace_if(
        spec, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    text.line(fmt::format("// {}", name));
    text.line(fmt::format("// {}{}.", family_.doc, family_.has_key("dtype") ? ": " + serves() : ""));
    text.line(fmt::format("// Generated by Attune from the spec {} and templates/{}.cu: change those, not this file.",
                          spec, family_.name));
    text.line("//");
    text.line(fmt::format("// {} threads, {} bytes of dynamic shared memory, {} accumulator registers per thread",
                          needs.threads, needs.shared_bytes, needs.accumulator_registers));
    text.line(fmt::format("// nvcc {0} -gencode arch=compute_{1},code=sm_{1} -cubin -o {2}.cubin {2}.cu",
                          fmt::join(compile_flags(), " "), family_.target(minimum_capability(variant_)), name));
  }

  void layer(Text& text, Layer which) const {
    for (const std::string& path : layers_[static_cast<std::size_t>(which)]) {
      const Part& part = *files_.at(path);
      if (std::ranges::find(part.used_lines, true) == part.used_lines.end()) continue;
      text.section(path);
      for (std::size_t i = 0; i < part.used_lines.size(); ++i) {
        if (part.used_lines[i]) text.line(part.own.lines()[i]);
      }
    }
  }

  void constants(Text& text) const {
    text.section("the variant");
    // What only a choice read has no name left that the source speaks of.
    std::vector<const Field*> fields;
    std::vector<std::string> lines;
    for (const std::string_view key : family_.keys) {
      if (!emitted_.contains(key)) continue;
      fields.push_back(find_field(key));
      lines.push_back(constant_definition(*fields.back(), variant_.*fields.back()->member));
    }
    const std::size_t width = lines.empty() ? 0 : std::ranges::max_element(lines, {}, &std::string::size)->size();
    text.line(block_begin);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Field& field = *fields[i];
      // A 0 that stands for a word is explained by it.
      const bool word = field.kind == FieldKind::integer && !field.choices.empty() && variant_.*field.member == 0;
      text.line(fmt::format("{:<{}}  // {}{}", lines[i], width, word ? fmt::format("{}: ", field.choices[0]) : "",
                            field.doc));
    }
    text.line(block_end);
  }

  const Variant& variant_;
  const TemplateFiles& templates_;
  std::string_view spec_;
  const Family& family_;
  const std::string wgmma_text_;  ///< files_ has views of it, and of
  const std::string expressions_text_;
  const std::string block_expressions_text_;
  Result<Source> result_;
  std::size_t block_begin_ = 0;
  std::size_t block_end_ = 0;
  std::map<std::string_view, std::size_t> constants_;                ///< key to line index
  std::map<std::string, std::unique_ptr<Part>, std::less<>> files_;  ///< the included ones
  std::set<std::string_view> emitted_;                               ///< keys that the source reads
  std::set<std::string> visited_;
  std::vector<std::string> open_;                   ///< includes being followed, outermost first
  std::array<std::vector<std::string>, 3> layers_;  ///< paths in dependency order
};

}  // namespace

Result<TemplateFiles> read_templates(const std::filesystem::path& folder) {
  constexpr std::array<std::string_view, 4> extensions{".cu", ".cuh", ".h", ".hpp"};
  Result<TemplateFiles> result;
  const auto problem = [&](const std::filesystem::path& path, std::string what, std::string fix) {
    result.problems.push_back({{path.string(), 0, 0}, std::move(what), std::move(fix)});
  };
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator{}; entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    const std::string extension = path.extension().string();
    if (!entry->is_regular_file() || std::ranges::find(extensions, extension) == extensions.end()) continue;
    std::ifstream stream(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (!stream) problem(path, "the file cannot be read", "check its permissions");
    result.value.emplace(path.lexically_relative(folder).generic_string(), std::move(text));
  }
  if (error) problem(folder, "the folder cannot be read: " + error.message(), "the templates/ folder of Attune");
  if (result.ok() && result.value.empty())
    problem(folder, "the folder holds no templates", "the templates/ folder of Attune");
  return result;
}

Result<Source> emit(const Variant& variant, const TemplateFiles& templates, std::string_view spec) {
  return Emitter(variant, templates, spec).run();
}

std::vector<std::string> compile_flags() { return {"-std=c++20"}; }

}  // namespace attune
