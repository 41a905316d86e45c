#include "generator/spec.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/expression/parse.hpp"
#include "generator/expression/pool.hpp"
#include "generator/files.hpp"
#include "generator/hints.hpp"
#include "generator/problem_list.hpp"
#include "generator/yaml_tree.hpp"

namespace attune {
namespace {

/// A word of the file for a message: short, and on one line.
std::string quote(std::string_view word) {
  constexpr std::size_t shown = 40;
  std::string text{word.substr(0, shown)};
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return fmt::format("'{}{}'", text, word.size() > shown ? "..." : "");
}

std::vector<std::string> to_strings(std::span<const std::string_view> words) { return {words.begin(), words.end()}; }

template <class Range>
std::vector<std::string> names_of(const Range& range) {
  std::vector<std::string> names;
  for (const auto& element : range) names.emplace_back(element.name);
  return names;
}

/// The names of the families that have this key.
std::vector<std::string> families_with(std::string_view key) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (std::ranges::find(family.keys, key) != family.keys.end()) names.emplace_back(family.name);
  }
  return names;
}

/// "did you mean B_r?" when something is near, else what there is.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates, std::string_view kind) {
  const std::string near = nearest_word(std::string{word}, candidates);
  if (!near.empty()) return fmt::format("did you mean {}?", near);
  return fmt::format("{} {}", kind, fmt::join(candidates, ", "));
}

/// Why a key that a reader of the papers, or of older versions, may expect is none; empty for others.
std::string_view without_key(std::string_view key, Operation operation) {
  if (key == "splits" || key == "num_splits") {
    return operation == Operation::decode ? "into how many parts keys are split is chosen at run time, for each call"
                                          : "a thread block computes all keys of its rows";
  }
  if (key == "Q_stages") return "a tile of Q has one stage";
  if (key == "softmax_in_halves") return "the softmax of a block is computed in halves";
  return "";
}

class SpecReader {
 public:
  SpecReader(std::string_view text, const std::string& file) : text_(text) {
    result_.value.file = file;
    result_.value.name = std::filesystem::path(file).stem().string();
  }

  Result<Spec> read(const YamlNode& root) && {
    Spec& spec = result_.value;
    if (root.kind != YamlNode::Kind::mapping) {
      problem(root.where, fmt::format("the spec is {}", kind_text(root.kind)),
              "a mapping that begins with `template: <name>`");
      return std::move(result_);
    }
    spec.common.where = root.where;
    read_template(root);
    read_params(root);
    read_mapping(root, [&](const YamlNode& key, const YamlNode& value) {
      if (key.text == "arch") {
        read_arch(value);
      } else if (key.text == "variants") {
        read_rows(key, value, spec.rows);
      } else if (key.text == "exclude") {
        read_rows(key, value, spec.excludes);
      } else if (key.text == "tune") {
        read_tune(value);
      } else if (key.text != "template" && key.text != "params") {
        read_field(key, value, spec.common);
      }
    });
    for (const auto& [key, choice] : spec.tune.keys) report_fixed(key, choice.where);
    return std::move(result_);
  }

 private:
  void problem(const Location& where, std::string what, std::string fix) {
    add_problem(result_.problems, {where, std::move(what), std::move(fix)});
  }

  [[nodiscard]] const Family& family() const { return families()[static_cast<std::size_t>(result_.value.family)]; }

  /// Calls `use(key, value)` for every entry whose key is a word that did not occur before.
  template <class Use>
  void read_mapping(const YamlNode& mapping, const Use& use) {
    std::map<std::string_view, int> lines;
    for (std::size_t i = 0; i + 1 < mapping.children.size(); i += 2) {
      const YamlNode& key = mapping.children[i];
      if (key.kind != YamlNode::Kind::scalar) {
        problem(key.where, fmt::format("a key is {}", kind_text(key.kind)), "a key is a single word");
        continue;
      }
      const auto [first, is_new] = lines.emplace(key.text, key.where.line);
      if (is_new) {
        use(key, mapping.children[i + 1]);
      } else {
        problem(key.where, fmt::format("{} is given again, first on line {}", quote(key.text), first->second),
                "keep one, or one list of values");
      }
    }
  }

  // Which keys exist depends on the template, so it is read before the others.
  void read_template(const YamlNode& root) {
    const std::vector<std::string> names = names_of(families());
    for (std::size_t i = 0; i + 1 < root.children.size(); i += 2) {
      if (root.children[i].kind != YamlNode::Kind::scalar || root.children[i].text != "template") continue;
      const YamlNode& value = root.children[i + 1];
      const auto found = std::ranges::find(names, value.text);
      if (value.kind != YamlNode::Kind::scalar) {
        problem(value.where, fmt::format("template is {}", kind_text(value.kind)),
                fmt::format("one template per spec: {}", fmt::join(names, " or ")));
      } else if (found == names.end()) {
        problem(value.where, fmt::format("there is no template {}", quote(value.text)),
                suggestion(value.text, names, "templates are"));
      } else {
        result_.value.family = static_cast<int>(found - names.begin());
      }
      return;
    }
    problem(root.where, "the key template is missing",
            fmt::format("add `template: {}`", fmt::join(names, "` or `template: ")));
  }

  // Expressions need what params declares, so it is read before them, too.
  void read_params(const YamlNode& root) {
    for (std::size_t i = 0; i + 1 < root.children.size(); i += 2) {
      if (root.children[i].kind != YamlNode::Kind::scalar || root.children[i].text != "params") continue;
      const YamlNode& value = root.children[i + 1];
      if (!family().has_key("mask")) {
        problem(root.children[i].where, fmt::format("{} has no expressions", family().name), "leave out params");
        return;
      }
      if (value.kind != YamlNode::Kind::mapping || value.children.empty()) {
        problem(value.where, fmt::format("params is {}", kind_text(value.kind)), usual_params);
        return;
      }
      read_mapping(value, [&](const YamlNode& name, const YamlNode& array) { read_param(name, array); });
      return;
    }
  }

  /// `slope: {per: [head], dtype: fp32}`
  void read_param(const YamlNode& name, const YamlNode& array) {
    expression::Parameter parameter{name.text, expression::Type::real, {}};
    if (!expression::is_parameter_name(name.text)) {
      problem(name.where, fmt::format("{} is no name of a parameter", quote(name.text)),
              "a word of letters and digits that no expression has already");
      return;
    }
    if (array.kind != YamlNode::Kind::mapping) {
      problem(array.where, fmt::format("{} is {}", name.text, kind_text(array.kind)), usual_params);
      return;
    }
    bool has_dtype = false;
    read_mapping(array, [&](const YamlNode& key, const YamlNode& value) {
      if (key.text == "dtype") {
        has_dtype = value.text == "fp32" || value.text == "int32";
        if (!has_dtype)
          problem(value.where, fmt::format("{} is no dtype of a parameter", quote(value.text)), "fp32 or int32");
        parameter.type = value.text == "int32" ? expression::Type::integer : expression::Type::real;
      } else if (key.text == "per") {
        for (const YamlNode& word : value.children) read_dimension(word, parameter);
      } else {
        problem(key.where, fmt::format("unknown key {} of a parameter", quote(key.text)), "keys are per, dtype");
      }
    });
    if (!has_dtype && result_.ok()) problem(name.where, fmt::format("{} has no dtype", name.text), usual_params);
    if (result_.ok() && (parameter.per.empty() || parameter.per.size() > expression::most_dimensions)) {
      problem(name.where, fmt::format("{} has {} dimensions", name.text, parameter.per.size()),
              fmt::format("1 to {}, as in {}", expression::most_dimensions, usual_params));
    }
    params_.push_back(std::move(parameter));
  }

  void read_dimension(const YamlNode& word, expression::Parameter& parameter) {
    expression::Dimension dimension;
    if (word.kind == YamlNode::Kind::scalar && expression::parse_dimension(word.text, dimension)) {
      parameter.per.push_back(dimension);
    } else {
      problem(word.where, fmt::format("{} is no dimension", quote(word.text)),
              fmt::format("{} or a number", fmt::join(expression::per_words, ", ")));
    }
  }

  void read_arch(const YamlNode& value) {
    if (value.kind == YamlNode::Kind::scalar && value.text == "any") return;
    if (value.kind == YamlNode::Kind::scalar) {
      read_arch_name(value);
    } else if (value.kind == YamlNode::Kind::list && !value.children.empty()) {
      for (const YamlNode& item : value.children) read_arch_name(item);
    } else {
      problem(value.where,
              fmt::format("arch is {}", value.kind == YamlNode::Kind::list ? "an empty list" : kind_text(value.kind)),
              "any, a name as sm_90, or a list of names");
    }
  }

  void read_arch_name(const YamlNode& item) {
    const std::vector<std::string> names = names_of(all_archs());
    const auto found = std::ranges::find(names, item.text);
    if (item.kind != YamlNode::Kind::scalar) {
      problem(item.where, fmt::format("a value of arch is {}", kind_text(item.kind)), "a name as sm_90");
    } else if (item.text == "any") {
      problem(item.where, "'any' stands among the names of arch", "any alone, or names alone");
    } else if (found == names.end()) {
      const std::string meant = meant_arch(item.text);
      problem(item.where, fmt::format("there is no arch {}", quote(item.text)),
              meant.empty() ? fmt::format("any, or some of {}", fmt::join(names, ", "))
                            : fmt::format("did you mean {}?", meant));
    } else {
      const ArchSet bit = 1U << static_cast<unsigned>(found - names.begin());
      if ((result_.value.arch & bit) != 0) {
        problem(item.where, fmt::format("{} stands twice in arch", item.text), "name it once");
      }
      result_.value.arch |= bit;
    }
  }

  void read_rows(const YamlNode& key, const YamlNode& value, std::vector<Settings>& rows) {
    if (value.kind != YamlNode::Kind::list || value.children.empty()) {
      problem(value.where,
              fmt::format("{} is {}", key.text,
                          value.kind == YamlNode::Kind::list ? "an empty list" : kind_text(value.kind)),
              "a list of rows as `- {head_dim: 64, B_r: 128}`");
      return;
    }
    if (value.children.size() > max_variants) {
      problem(value.where, fmt::format("{} has {} rows", key.text, value.children.size()),
              fmt::format("at most {}", max_variants));
      return;
    }
    for (const YamlNode& row : value.children) {
      if (row.kind != YamlNode::Kind::mapping || row.children.empty()) {
        problem(row.where,
                fmt::format("a row of {} is {}", key.text,
                            row.kind == YamlNode::Kind::mapping ? "an empty mapping" : kind_text(row.kind)),
                "a mapping of keys to values as `{head_dim: 64, B_r: 128}`");
        continue;
      }
      Settings& settings = rows.emplace_back();
      settings.where = row.where;
      read_mapping(row, [&](const YamlNode& field, const YamlNode& setting) {
        if (std::ranges::find(top_keys, field.text) != top_keys.end()) {
          problem(field.where, fmt::format("{} stands in a row of {}", field.text, key.text),
                  "it belongs to the top level");
        } else {
          read_field(field, setting, settings);
        }
      });
    }
  }

  void read_tune(const YamlNode& value) {
    if (value.kind != YamlNode::Kind::mapping || value.children.empty()) {
      problem(
          value.where,
          fmt::format("tune is {}", value.kind == YamlNode::Kind::mapping ? "an empty mapping" : kind_text(value.kind)),
          "the keys to search as `{B_c: [64, 128], B_r: {from: 64, to: 192, step: 64}}`");
      return;
    }
    Settings& tune = result_.value.tune;
    tune.where = value.where;
    read_mapping(value, [&](const YamlNode& key, const YamlNode& setting) {
      if (std::ranges::find(top_keys, key.text) != top_keys.end()) {
        problem(key.where, fmt::format("{} stands in tune", key.text), "it belongs to the top level");
      } else {
        read_field(key, setting, tune);
      }
    });
  }

  /// A key that is searched is fixed nowhere.
  void report_fixed(const std::string& key, const Location& where) {
    const Spec& spec = result_.value;
    const auto has_key = [&](const Settings& settings) { return settings.keys.contains(key); };
    if (has_key(spec.common) || std::ranges::any_of(spec.rows, has_key)) {
      problem(where, fmt::format("{} stands in tune and elsewhere", key), "search it, or fix it");
    }
  }

  /// What to do about a key that the family lacks.
  std::string unknown_key_advice(const std::string& key, const Settings& settings) {
    const std::string_view gone = without_key(key, family().operation);
    if (!gone.empty()) return fmt::format("leave it out: {}", gone);
    const std::vector<std::string> others = families_with(key);
    if (!others.empty())
      return fmt::format(
          "{} has none{}; templates that do: {}", family().name,
          find_field(key)->role == Role::contract ? ", as all its kernels serve it or none (attune features)" : "",
          fmt::join(others, ", "));
    std::vector<std::string> candidates = to_strings(family().keys);
    if (&settings == &result_.value.common) candidates.insert(candidates.end(), top_keys.begin(), top_keys.end());
    return suggestion(key, candidates, "keys are");
  }

  void read_field(const YamlNode& key, const YamlNode& value, Settings& settings) {
    const Field* field = find_field(key.text);
    const auto known = family().keys;
    if (field == nullptr || std::ranges::find(known, key.text) == known.end()) {
      problem(key.where, fmt::format("unknown key {}", quote(key.text)), unknown_key_advice(key.text, settings));
      return;
    }
    Choice choice;
    choice.where = key.where;
    const bool may_range = &settings == &result_.value.tune && field->kind == FieldKind::integer;
    if (value.kind == YamlNode::Kind::scalar) {
      read_value(*field, value, choice, may_range);
    } else if (value.kind == YamlNode::Kind::list && !value.children.empty()) {
      for (const YamlNode& item : value.children) read_value(*field, item, choice);
    } else if (value.kind == YamlNode::Kind::mapping && may_range) {
      read_range(*field, value, choice);
    } else {
      problem(value.where,
              fmt::format("{} is {}", key.text,
                          value.kind == YamlNode::Kind::list ? "an empty list" : kind_text(value.kind)),
              fmt::format("{}, or a list of such values", accepted_values(*field)));
    }
    settings.keys.emplace(key.text, std::move(choice));
  }

  /// `{from: 64, to: 192, step: 64}`: both ends belong to it.
  void read_range(const Field& field, const YamlNode& range, Choice& choice) {
    std::map<std::string, int> bounds;
    read_mapping(range, [&](const YamlNode& key, const YamlNode& value) {
      const std::optional<int> number =
          value.kind == YamlNode::Kind::scalar ? parse_value(field, value.text) : std::nullopt;
      if (key.text != "from" && key.text != "to" && key.text != "step") {
        problem(key.where, fmt::format("unknown key {} in a range of {}", quote(key.text), field.key),
                "keys are from, to, step");
      } else if (!number || *number < field.minimum) {
        problem(value.where, fmt::format("{} is no bound of {}", quote(value.text), field.key), accepted_values(field));
      } else {
        bounds.emplace(key.text, *number);
      }
    });
    if (!result_.ok()) return;
    if (bounds.size() != 3 || bounds["from"] > bounds["to"] || (bounds["to"] - bounds["from"]) % bounds["step"] != 0) {
      problem(range.where, fmt::format("the range of {} does not lead from one end to the other", field.key),
              "from, to and step as `{from: 64, to: 192, step: 64}`");
      return;
    }
    for (int value = bounds["from"]; value <= bounds["to"]; value += bounds["step"]) choice.values.push_back(value);
  }

  /// Where a number was given for what a spec only says is there.
  static std::string size_advice(const Field& field, const std::string& word) {
    const bool has_size = field.member == &Variant::window || field.member == &Variant::softcap;
    const bool is_number = std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
    return has_size && is_number ? "; how large it is each call says" : "";
  }

  /// `may_range`: a range could stand here too.
  void read_value(const Field& field, const YamlNode& item, Choice& choice, bool may_range = false) {
    if (item.kind != YamlNode::Kind::scalar) {
      problem(item.where, fmt::format("a value of {} is {}", field.key, kind_text(item.kind)), accepted_values(field));
      return;
    }
    const std::optional<int> value =
        field.kind == FieldKind::expression ? read_expression(field, item) : parse_value(field, item.text);
    if (!value && field.kind == FieldKind::expression) return;
    if (!value) {
      const std::string near = meant_value(family(), field, item.text);
      const std::string accepted =
          accepted_values(field) + (may_range ? ", or a range as `{from: 64, to: 192, step: 64}`" : "");
      problem(item.where, fmt::format("{} is not a value of {}", quote(item.text), field.key),
              near.empty() ? accepted + size_advice(field, item.text)
                           : fmt::format("did you mean {}? ({})", near, accepted));
    } else if (std::ranges::find(choice.values, *value) != choice.values.end()) {
      problem(item.where, fmt::format("{} stands twice in {}", item.text, field.key), "name it once");
    } else {
      choice.values.push_back(*value);
    }
  }

  /// Where a byte of a scalar's text stands in the file: behind a quote, or on the lines after the sign of a block.
  /// What is one space or line break in the text may be a line break and the next line's indentation in the file.
  /// Escapes behind quotes are not followed.
  [[nodiscard]] Location place_of(const YamlNode& scalar, std::size_t offset) const {
    const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    Location where = scalar.where;
    std::size_t at = 0;
    for (int i = 1; i < where.line && at != std::string_view::npos; ++i) at = text_.find('\n', at) + 1;
    at += static_cast<std::size_t>(where.column) - 1;
    if (at >= text_.size()) return where;
    if (text_[at] == '"' || text_[at] == '\'') ++at;
    if (text_[at] == '|' || text_[at] == '>') at = std::min(text_.find('\n', at), text_.size());
    const auto skip_spaces = [&] {
      while (at < text_.size() && is_space(text_[at])) ++at;
    };
    skip_spaces();
    for (std::size_t i = 0; i < offset; ++i) {
      if (!is_space(scalar.text[i])) {
        ++at;
      } else if (i + 1 < scalar.text.size() && !is_space(scalar.text[i + 1])) {
        skip_spaces();
      }
    }
    const std::string_view before = text_.substr(0, std::min(at, text_.size()));
    where.line = static_cast<int>(std::ranges::count(before, '\n')) + 1;
    where.column = static_cast<int>(before.size() - (before.rfind('\n') + 1)) + 1;  // npos + 1 is 0
    return where;
  }

  /// The number of what a text says; nothing where it is wrong, which is reported with its place.
  std::optional<int> read_expression(const Field& field, const YamlNode& item) {
    if (item.text == "none") return 0;
    Result<expression::Expression> parsed =
        expression::parse(item.text, field.use(), params_, [&](std::size_t offset) { return place_of(item, offset); });
    for (Diagnostic& wrong : parsed.problems) add_problem(result_.problems, std::move(wrong));
    if (!parsed.ok()) return std::nullopt;
    return expression::number_of(parsed.value);
  }

  static constexpr std::array<std::string_view, 6> top_keys{"template", "arch",    "params",
                                                            "variants", "exclude", "tune"};
  static constexpr const char* usual_params = "arrays as `params: {slope: {per: [head], dtype: fp32}}`";

  std::string_view text_;
  Result<Spec> result_;
  std::vector<expression::Parameter> params_;
};

}  // namespace

Result<Spec> parse_spec(std::string_view text, const std::string& file) {
  if (text.size() > max_spec_bytes) {
    return {{},
            {{{file, 0, 0},
              fmt::format("the file is larger than {} bytes", max_spec_bytes),
              "a spec is a page of text; is this one?"}}};
  }
  Result<YamlNode> tree = parse_yaml(text, file, max_spec_depth);
  if (!tree.ok()) return {{}, std::move(tree.problems)};
  return SpecReader(text, file).read(tree.value);
}

Result<Spec> read_spec(const std::filesystem::path& path) {
  Result<std::string> text = read_named(path, max_spec_bytes, "a path to a .yaml spec");
  if (!text.ok()) return {{}, std::move(text.problems)};
  return parse_spec(text.value, path.string());
}

}  // namespace attune
