#include "runtime/cli/model_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/cli/config_reader.hpp"
#include "runtime/cli/model_families.hpp"
#include "runtime/cli/model_layers.hpp"

namespace attune::cli {
namespace {

/// Of a config that names no length.
constexpr int usual_tokens = 131072;

/// Columns that are rotated come in steps of so many (StoreProblem::rotary_dim).
constexpr int rotary_dim_step = 16;

/// Of types that are not known: the names and rules that most models have, and no numbers.
constexpr Family usual{};

/// What is read of a config, one after the other.
class Reading {
 public:
  Reading(ConfigReader& reader, const Family* family, ModelConfig& model)
      : reader_(reader), family_(family != nullptr ? *family : usual), known_(family != nullptr), model_(model) {}

  LayerShape heads() {
    LayerShape shape;
    shape.heads_q = count(family_.heads_names, family_.heads);
    shape.heads_kv = heads_kv(shape.heads_q);
    if (is_latent()) {
      latent_dims(shape);
    } else {
      shape.head_dim = shape.head_dim_v = head_dim(shape.heads_q);
    }
    check_row(shape);
    return shape;
  }

  int tokens() {
    const std::string_view name = reader_.first_of(family_.tokens_names);
    if (reader_.has(name)) return reader_.count(name).value_or(0);
    const int taken = family_.tokens > 0 ? family_.tokens : usual_tokens;
    assume(name, taken, "");
    return taken;
  }

  void rotary() {
    if (model_.latent || !model_.lacks.empty() || !rotates()) return;
    for (LayerGroup& group : model_.groups) {
      if (!group.shape.lacks.empty()) continue;
      group.shape.rotary_dim = rotary_dim(group.shape);
      if (group.shape.rotary_dim > 0) model_.rotary = family_.rotary == Rotary::none ? Rotary::halves : family_.rotary;
    }
  }

  void features() {
    if (!family_.lacks.empty()) model_.lacks.emplace_back(family_.lacks);
    if (!family_.note.empty()) model_.notes.emplace_back(family_.note);
    for (const Feature& feature : model_features()) {
      if (!reader_.says(feature.field) || (feature.weight == Weight::unknown_types && known_)) continue;
      std::vector<std::string>& list = feature.weight == Weight::every_layer ? model_.lacks : model_.notes;
      if (std::ranges::find(list, feature.what) == list.end()) list.emplace_back(feature.what);
    }
  }

 private:
  void assume(std::string_view name, int value, std::string_view why) {
    model_.assumed.push_back(
        fmt::format("{} {}{}{}{}", name, value, why.empty() ? "" : " (", why, why.empty() ? "" : ")"));
  }

  /// A count without which nothing can be said: the family's, or a problem, where it is missing.
  int count(const FieldNames& names, int otherwise, std::string_view or_else = "") {
    const std::string_view name = reader_.first_of(names);
    if (reader_.has(name)) return reader_.count(name).value_or(0);
    if (otherwise > 0) {
      assume(name, otherwise, "");
    } else {
      reader_.problem(fmt::format("{} is missing", name),
                      fmt::format("a decoder's config.json has it{}{}", or_else.empty() ? "" : ", ", or_else));
    }
    return otherwise;
  }

  /// Of a field of its own, which null says is the number of query heads.
  int named_heads_kv(int heads_q) {
    const std::string_view name = reader_.first_of(family_.heads_kv_names);
    if (name.empty()) return heads_q;
    if (!reader_.is_missing(name)) return reader_.count(name).value_or(heads_q);
    const int taken = family_.heads_kv > 0 ? family_.heads_kv : heads_q;
    assume(name, taken, family_.heads_kv > 0 ? "" : "as many as query heads");
    return taken;
  }

  bool flag(std::string_view name, bool otherwise) {
    if (reader_.has(name)) return reader_.flag(name).value_or(otherwise);
    model_.assumed.push_back(fmt::format("{} {}", name, otherwise));
    return otherwise;
  }

  int heads_kv(int heads_q) {
    switch (family_.kv) {
      case KvHeads::named:
        return named_heads_kv(heads_q);
      case KvHeads::multi_query:
        return flag("multi_query", true) ? 1 : heads_q;
      case KvHeads::falcon:
        if (!flag("new_decoder_architecture", false) && flag("multi_query", true)) return 1;
        return named_heads_kv(heads_q);
      case KvHeads::chatglm:
        if (!flag("multi_query_attention", false)) return heads_q;
        return count({"multi_query_group_num"}, 1);
      case KvHeads::attn_config:
        if (const std::optional<int> given = reader_.count_within("attn_config", "kv_n_heads")) return *given;
        assume("attn_config.kv_n_heads", family_.heads_kv, "");
        return family_.heads_kv;
    }
    return heads_q;
  }

  int head_dim(int heads_q) {
    const std::string_view name = reader_.first_of(family_.head_dim_names);
    if (!name.empty() && reader_.has(name)) return reader_.count(name).value_or(0);
    if (family_.head_dim > 0) {
      assume(name, family_.head_dim, "");
      return family_.head_dim;
    }
    const int hidden = count(family_.hidden_names, family_.hidden, "or head_dim");
    if (hidden == 0 || heads_q == 0) return 0;
    const std::string_view hidden_name = reader_.first_of(family_.hidden_names);
    const std::string_view heads_name = reader_.first_of(family_.heads_names);
    if (hidden % heads_q != 0) {
      reader_.problem(fmt::format("{} {} is no multiple of {} {}", hidden_name, hidden, heads_name, heads_q),
                      "head_dim, where it is not their quotient");
    }
    if (!name.empty()) assume(name, hidden / heads_q, fmt::format("{} by {}", hidden_name, heads_name));
    return hidden / heads_q;
  }

  bool is_latent() {
    return family_.latent.nope > 0 || (reader_.has("qk_nope_head_dim") && reader_.has("qk_rope_head_dim"));
  }

  void latent_dims(LayerShape& shape) {
    model_.latent = true;
    shape.heads_kv = shape.heads_q;
    const int nope = count({"qk_nope_head_dim"}, family_.latent.nope);
    const int rope = count({"qk_rope_head_dim"}, family_.latent.rope);
    const long long sum = static_cast<long long>(nope) + rope;
    if (sum > largest_count) {
      reader_.problem(fmt::format("qk_nope_head_dim {} and qk_rope_head_dim {} are too many columns", nope, rope),
                      fmt::format("together at most {}", largest_count));
      return;
    }
    shape.head_dim = static_cast<int>(sum);
    shape.head_dim_v = count({"v_head_dim"}, family_.latent.v);
  }

  /// A token's queries are a row, whose elements are counted by int.
  void check_row(const LayerShape& shape) {
    if (static_cast<long long>(shape.heads_q) * std::max(shape.head_dim, shape.head_dim_v) <=
        std::numeric_limits<int>::max()) {
      return;
    }
    reader_.problem(fmt::format("{} is {}, of head_dim {}", reader_.first_of(family_.heads_names), shape.heads_q,
                                std::max(shape.head_dim, shape.head_dim_v)),
                    fmt::format("their product is at most {}", std::numeric_limits<int>::max()));
  }

  /// A family has a rotation or has none; of others the fields say so.
  bool rotates() {
    if (known_) return family_.rotary != Rotary::none;
    constexpr std::array<std::string_view, 6> fields{"rope_theta", "rope_scaling",          "rope_parameters",
                                                     "rotary_dim", "partial_rotary_factor", "rotary_pct"};
    return std::ranges::any_of(fields, [&](std::string_view field) { return reader_.has(field); });
  }

  /// Of all layers, or of this kind's alone.
  double rotated_part(const std::string& kind) {
    const nlohmann::json& rope = reader_.find("rope_parameters");
    const bool by_kind = rope.is_object() && rope.contains(kind) && rope[kind].is_object();
    const nlohmann::json& own = by_kind ? rope[kind] : rope;
    if (own.is_object() && own.contains("partial_rotary_factor") && own["partial_rotary_factor"].is_number()) {
      return own["partial_rotary_factor"].get<double>();
    }
    if (const auto part = reader_.number("partial_rotary_factor")) return *part;
    return reader_.number("rotary_pct").value_or(family_.rotated);
  }

  int rotary_dim(const LayerShape& shape) {
    std::optional<int> columns = reader_.count("rotary_dim");
    if (!columns && family_.rotary_dim > 0 && reader_.is_missing("rotary_dim")) columns = family_.rotary_dim;
    const double part = rotated_part(shape.kind);
    if (!columns && part >= 0 && part <= 1) columns = static_cast<int>(part * shape.head_dim);
    if (columns && *columns >= rotary_dim_step && *columns % rotary_dim_step == 0 && *columns <= shape.head_dim) {
      return *columns;
    }
    const std::string note = fmt::format(
        "{} are rotated, and kernels rotate multiples of {} up to head_dim; left to the caller",
        columns ? fmt::format("{} columns", *columns) : fmt::format("{} of the columns", part), rotary_dim_step);
    if (std::ranges::find(model_.notes, note) == model_.notes.end()) model_.notes.push_back(note);
    return 0;
  }

  ConfigReader& reader_;
  const Family& family_;
  bool known_;
  ModelConfig& model_;
};

void read_dtype(ConfigReader& reader, ModelConfig& model, std::optional<Dtype> wanted) {
  const std::string word = reader.word_anywhere("dtype").value_or(reader.word_anywhere("torch_dtype").value_or(""));
  if (wanted) {
    model.dtype = *wanted;
  } else if (word == "float16") {
    model.dtype = Dtype::fp16;
  } else if (word != "bfloat16") {
    model.notes.push_back(word.empty()
                              ? "it names no dtype; taken as bf16 (--dtype)"
                              : fmt::format("its dtype is {}, which no kernel has; taken as bf16 (--dtype)", word));
  }
}

/// What no kernel of prefill takes of these layers.
std::vector<std::string> problems_of(const LayerShape& shape, Dtype dtype) {
  return attune::problems_of(Problem{.dtype = dtype,
                                     .heads_q = shape.heads_q,
                                     .heads_kv = shape.heads_kv,
                                     .seqlen_q = 1,
                                     .seqlen_k = 1,
                                     .head_dim = shape.head_dim,
                                     .head_dim_v = shape.head_dim_v == shape.head_dim ? 0 : shape.head_dim_v,
                                     .softcap = shape.softcap});
}

/// Whether kernels take what the layers have. Where all are alike, what they have is wrong; else some are left out.
void check_limits(ConfigReader& reader, ModelConfig& model) {
  for (LayerGroup& group : model.groups) {
    if (!group.shape.lacks.empty()) continue;
    const std::vector<std::string> problems = problems_of(group.shape, model.dtype);
    if (problems.empty()) continue;
    if (model.groups.size() > 1) {
      group.shape.lacks = fmt::format("{}", fmt::join(problems, "; "));
    } else {
      for (const std::string& text : problems) reader.problem(text, "");
    }
  }
}

std::string shape_text(const LayerShape& shape) {
  std::string text = fmt::format("{} query heads and {} K/V heads (", shape.heads_q, shape.heads_kv);
  text += shape.heads_q == shape.heads_kv ? "one to one" : fmt::format("{} to one", shape.heads_q / shape.heads_kv);
  text += fmt::format("), head_dim {}", shape.head_dim);
  if (shape.head_dim_v != shape.head_dim) text += fmt::format(" and {} of V", shape.head_dim_v);
  return text;
}

bool alike(const LayerShape& a, const LayerShape& b) {
  return std::tie(a.heads_q, a.heads_kv, a.head_dim, a.head_dim_v) ==
         std::tie(b.heads_q, b.heads_kv, b.head_dim, b.head_dim_v);
}

/// What one group of layers has that the first line of the text has not.
std::string group_text(const ModelConfig& model, const LayerGroup& group, const LayerShape& first, std::size_t layers) {
  const LayerShape& shape = group.shape;
  const std::string share = fmt::format("{} of {}", group.layers.size(), layers);
  std::string text;
  if (!alike(shape, first)) {
    text += fmt::format("  layers of type {} ({}) have {}\n", shape.kind, share, shape_text(shape));
  }
  if (!shape.lacks.empty()) {
    return text + fmt::format("  layers of type {} have no kernels here and are left out ({}): {}\n", shape.kind, share,
                              shape.lacks);
  }
  if (shape.window > 0) text += fmt::format("  layers with a sliding window of {} keys ({})\n", shape.window, share);
  const bool turns_first = shape.rotary_dim > 0 && (&shape == &first || shape.rotary_dim != first.rotary_dim);
  if (turns_first) {
    text += fmt::format("  rotary embedding of {} columns ({})\n", shape.rotary_dim,
                        value_text(*find_field("rotary"), static_cast<int>(model.rotary)));
  }
  return text;
}

}  // namespace

bool ModelConfig::served() const {
  return lacks.empty() &&
         std::ranges::any_of(groups, [](const LayerGroup& group) { return group.shape.lacks.empty(); });
}

std::string ModelConfig::text() const {
  std::string text = type + ": ";
  if (groups.empty()) {
    text += "no attention\n";
  } else {
    const auto served = std::ranges::find_if(groups, [](const LayerGroup& group) { return group.shape.lacks.empty(); });
    const LayerShape& first = (served == groups.end() ? groups.front() : *served).shape;
    std::size_t layers = 0;
    for (const LayerGroup& group : groups) layers += group.layers.size();
    text += fmt::format("{}, {}, up to {} tokens\n", shape_text(first),
                        value_text(*find_field("dtype"), static_cast<int>(dtype)), max_tokens);
    for (const LayerGroup& group : groups) text += group_text(*this, group, first, layers);
    if (first.softcap > 0) text += fmt::format("  scores capped at {}\n", first.softcap);
  }
  for (const std::string& reason : lacks) text += fmt::format("  no kernels: {}\n", reason);
  for (const std::string& note : notes) text += fmt::format("  {}\n", note);
  if (!known) text += "  this model_type is unknown here, and its fields are read as most models have them\n";
  if (!assumed.empty()) text += fmt::format("  not in the file, and assumed: {}\n", fmt::join(assumed, ", "));
  return text;
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file, std::optional<Dtype> dtype) {
  Result<ModelConfig> result;
  ConfigReader reader(text, file);
  ModelConfig& model = result.value;
  if (reader.ok()) {
    model.type = reader.word_anywhere("model_type").value_or("a model");
    const Family* family = find_family(model.type);
    model.known = family != nullptr;
    Reading reading(reader, family, model);
    reading.features();
    read_dtype(reader, model, dtype);
    if (family == nullptr || family->attends) {
      const LayerShape shape = reading.heads();
      if (reader.ok()) read_layers(reader, family, shape, model);
      model.max_tokens = reading.tokens();
      if (reader.ok()) check_limits(reader, model);
      reading.rotary();
    }
    if (model.latent) {
      model.notes.emplace_back(
          "its cache holds latent vectors (MLA), for which there are no kernels: prefill alone, on compute capability "
          "9.0");
    }
  }
  result.problems = std::move(reader).take_problems();
  return result;
}

}  // namespace attune::cli
