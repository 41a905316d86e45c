#include "generator/tuned_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "generator/arch.hpp"
#include "generator/check.hpp"
#include "generator/files.hpp"
#include "generator/json_fields.hpp"
#include "generator/need.hpp"
#include "generator/problem_list.hpp"
#include "generator/template_file.hpp"
#include "generator/variant_json.hpp"

namespace attune {
namespace {

constexpr double longest_microseconds = 1e9;
constexpr double shortest_microseconds = 1e-3;
constexpr int most_multiprocessors = 100000;

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

/// The architecture's bit.
ArchSet arch_set(int capability) {
  const auto archs = all_archs();
  return 1U << (std::ranges::find(archs, capability, &Arch::capability) - archs.begin());
}

bool is_date(std::string_view text) {
  constexpr std::string_view form = "0000-00-00";
  return text.size() == form.size() && std::ranges::equal(text, form, [](char c, char like) {
           return like == '-' ? c == '-' : std::isdigit(static_cast<unsigned char>(c)) != 0;
         });
}

class TunedReader {
 public:
  explicit TunedReader(const std::string& file) : file_(file) {}

  Result<TunedFile> read(std::string_view text) && {
    if (text.size() > max_tuned_bytes) {
      problem({file_, 0, 0}, fmt::format("the file is larger than {} MB", max_tuned_bytes >> 20),
              "a table of tuned problems has fewer rows");
      return std::move(result_);
    }
    while (!text.empty() && !is_full(result_.problems)) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (is_full(result_.problems)) return std::move(result_);
    if (!has_gpu_) {
      problem({file_, 0, 0}, "the file does not say which GPU it is for", R"(add a line: gpu: {"name": ...})");
    } else if (!has_rows_ && result_.ok()) {
      problem({file_, 0, 0}, "the file has no rows", "add a line: rows: []");
    }
    return std::move(result_);
  }

 private:
  void problem(const Location& where, std::string what, std::string fix) {
    add_problem(result_.problems, {where, std::move(what), std::move(fix)});
  }

  void read_line(std::string_view line) {
    const std::string_view words = trimmed(line);
    const Location where{file_, line_, 1};
    if (words.empty() || words.front() == '#') return;
    if (line.starts_with("gpu:")) return read_gpu(line, where);
    if (line.starts_with("- ")) return read_row(line, where);
    if (words != "rows:" && words != "rows: []") {
      problem(where, "the line is neither a comment, nor gpu:, rows: or a row",
              R"(a row is: - {"problem": {...}, ...})");
    } else if (std::exchange(has_rows_, true)) {
      problem(where, "rows: is given again", "keep one");
    } else {
      is_empty_ = words != "rows:";
    }
  }

  /// The object after the first `start` characters of a line, and where it is.
  std::optional<Json> object_of(std::string_view line, std::size_t start, Location& where) {
    const std::string_view blanks = " \t\r";
    start = std::min(line.find_first_not_of(blanks, start), line.size());
    where.column = static_cast<int>(start) + 1;
    return parse_json_object(line.substr(start), where, result_.problems);
  }

  void read_gpu(std::string_view line, Location where) {
    if (std::exchange(has_gpu_, true)) return problem(where, "gpu: is given again", "one file for each GPU");
    const std::optional<Json> object = object_of(line, sizeof("gpu:") - 1, where);
    if (!object) return;
    TunedGpu& gpu = result_.value.gpu;
    JsonFields fields(*object, "gpu", where, result_.problems);
    gpu.name = fields.word("name");
    const std::string capability = fields.word("capability");
    std::vector<std::string> known;
    for (const Arch& arch : all_archs()) {
      known.push_back(capability_text(arch.capability));
      if (known.back() == capability) gpu.capability = arch.capability;
    }
    if (gpu.capability == 0 && !capability.empty()) {
      fields.problem(fmt::format("capability of gpu is {}", shown_as(capability)),
                     fmt::format("one of {}", fmt::join(known, ", ")));
    }
    gpu.multiprocessors = fields.integer("multiprocessors", 1, most_multiprocessors);
    fields.finish();
  }

  void read_row(std::string_view line, Location where) {
    if (!has_gpu_ || !has_rows_ || is_empty_) {
      return problem(where, "a row stands before gpu: and rows:", "first the line gpu:, then the line rows:");
    }
    if (result_.value.rows.size() == max_tuned_rows) {
      return problem(where, fmt::format("there are more than {} rows", max_tuned_rows), "keep fewer");
    }
    const std::optional<Json> object = object_of(line, 1, where);
    if (!object) return;
    JsonFields fields(*object, "the row", where, result_.problems);
    const Json* problem_of_row = fields.object("problem");
    const Json* variant = fields.object("variant");
    TunedResult row;
    row.microseconds = fields.number("microseconds", shortest_microseconds, longest_microseconds);
    row.default_microseconds = fields.number("default_microseconds", shortest_microseconds, longest_microseconds);
    row.confidence = fields.number("confidence", 0, 1);
    row.date = fields.word("date");
    if (!row.date.empty() && !is_date(row.date)) {
      fields.problem(fmt::format("date of the row is {}", shown_as(row.date)), "year-month-day, as 2026-11-22");
    }
    row.driver = fields.word("driver");
    row.compiler = fields.word("compiler");
    fields.finish();
    if (variant != nullptr) row.variant = read_variant(*variant, where);
    if (problem_of_row != nullptr) result_.value.rows.push_back({json_line(*problem_of_row), std::move(row), where});
  }

  Variant read_variant(const Json& object, const Location& where) {
    const std::size_t before = result_.problems.size();
    JsonFields fields(object, "variant", where, result_.problems);
    const std::string name = fields.word("template");
    const auto family = std::ranges::find(families(), name, &Family::name);
    if (family == families().end()) {
      if (!name.empty()) fields.problem(fmt::format("there is no template {}", shown_as(name)), template_names());
      return {};
    }
    Variant variant = family->defaults;
    for (const std::string_view key : family->keys) {
      const Field& field = *find_field(key);
      variant.*field.member = fields.value_of(field, variant.*field.member);
    }
    fields.finish();
    if (result_.problems.size() > before || result_.value.gpu.capability == 0) return variant;
    Variant there = variant;
    there.arch = arch_set(result_.value.gpu.capability);
    for (const Refusal& refusal : check(there)) fields.problem("variant cannot be built: " + refusal.message);
    return variant;
  }

  static std::string template_names() {
    std::vector<std::string_view> names;
    for (const Family& family : families()) names.push_back(family.name);
    return fmt::format("templates are {}", fmt::join(names, ", "));
  }

  std::string file_;
  int line_ = 0;
  bool has_gpu_ = false;
  bool has_rows_ = false;
  bool is_empty_ = false;  ///< as `rows: []` says
  Result<TunedFile> result_;
};

}  // namespace

Result<TunedFile> parse_tuned_file(std::string_view text, const std::string& file) {
  return TunedReader(file).read(text);
}

Result<std::string> read_tuned_text(const std::filesystem::path& path) {
  return read_named(path, max_tuned_bytes, "a path to a table of tuned problems");
}

std::string tuned_file_text(const TunedFile& file) {
  const Json gpu{{"name", file.gpu.name},
                 {"capability", capability_text(file.gpu.capability)},
                 {"multiprocessors", file.gpu.multiprocessors}};
  std::string text = fmt::format(
      "# The fastest variant for each problem, as attune tune measured it on this GPU. The confidence is that the\n"
      "# fastest of the others beats the heuristic's choice, which stays if that is unsure or saves under 0.5%.\n"
      "gpu: {}\n"
      "rows:{}\n",
      json_line(gpu), file.rows.empty() ? " []" : "");
  for (const TunedLine& row : file.rows) {
    const TunedResult& result = row.result;
    const Json rest{{"variant", variant_json(result.variant)},
                    {"microseconds", result.microseconds},
                    {"default_microseconds", result.default_microseconds},
                    {"confidence", result.confidence},
                    {"date", result.date},
                    {"driver", result.driver},
                    {"compiler", result.compiler}};
    text += fmt::format("- {{\"problem\": {}, {}\n", row.problem, json_line(rest).substr(1));
  }
  return text;
}

std::vector<Variant> tuned_variants(const TunedFile& file) {
  std::vector<Variant> variants;
  for (const TunedLine& row : file.rows) {
    for (Variant variant : {row.result.variant, relaxed(row.result.variant)}) {
      variant.arch = arch_set(file.gpu.capability);
      if (std::ranges::find(variants, variant) == variants.end()) variants.push_back(variant);
    }
  }
  return variants;
}

}  // namespace attune
