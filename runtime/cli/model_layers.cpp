#include "runtime/cli/model_layers.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace attune::cli {
namespace {

/// Of different layers: each asks for kernels of its own.
constexpr std::size_t most_groups = 64;

constexpr std::string_view full = "full_attention";
constexpr std::string_view sliding = "sliding_attention";

/// Other words for a kind.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> synonyms{{{"attention", full},
                                                                                 {"global", full},
                                                                                 {"global_attention", full},
                                                                                 {"local", sliding},
                                                                                 {"mamba", "linear_attention"},
                                                                                 {"recurrent", "linear_attention"}}};

std::string kind_of(const std::string& word) {
  const auto* const found =
      std::ranges::find(synonyms, std::string_view(word), [](const auto& row) { return row.first; });
  return found == synonyms.end() ? word : std::string(found->second);
}

/// What the patterns of attention_types come to: [[["global", "local"], 12]].
std::vector<std::string> repeated_kinds(ConfigReader& reader) {
  const nlohmann::json& patterns = reader.find("attention_types");
  std::vector<std::string> kinds;
  const auto is_pattern = [](const nlohmann::json& item) {
    return item.is_array() && item.size() == 2 && item[0].is_array() && item[1].is_number_integer() && item[1] >= 1 &&
           item[1] <= most_layers &&
           std::ranges::all_of(item[0], [](const nlohmann::json& word) { return word.is_string(); });
  };
  if (!patterns.is_array() || !std::ranges::all_of(patterns, is_pattern)) {
    reader.problem("attention_types is no list of patterns", R"([[["global", "local"], 12]], say)");
    return kinds;
  }
  for (const nlohmann::json& item : patterns) {
    if (kinds.size() + item[0].size() * item[1].get<std::size_t>() > most_layers) {
      reader.problem("attention_types has too many layers", fmt::format("at most {}", most_layers));
      return {};
    }
    for (int i = 0; i < item[1].get<int>(); ++i) {
      for (const nlohmann::json& word : item[0]) kinds.push_back(kind_of(word.get<std::string>()));
    }
  }
  return kinds;
}

class Layers {
 public:
  Layers(ConfigReader& reader, const Family* family, ModelConfig& model)
      : reader_(reader), family_(family != nullptr ? *family : unknown), known_(family != nullptr), model_(model) {}

  /// The kind of each layer; one for all of them where the config says no number.
  std::vector<std::string> kinds() {
    const int layers = count();
    std::vector<std::string> listed;
    if (!reader_.has("layer_types") && reader_.has("layers_block_type")) {
      listed = reader_.words("layers_block_type");
    } else {
      listed = reader_.words("layer_types");
    }
    if (family_.rule == LayerRule::attention_types && reader_.has("attention_types")) listed = repeated_kinds(reader_);
    if (!listed.empty()) {
      if (said_ > 0 && static_cast<int>(listed.size()) != said_) {
        reader_.problem(fmt::format("{} is {}, and the list of layers has {}", layers_name(), said_, listed.size()),
                        "one kind for each layer");
      }
      std::ranges::transform(listed, listed.begin(), kind_of);
      return closed(std::move(listed));
    }
    const int period = this->period();
    const std::vector<int> rotated = reader_.counts("no_rope_layers");
    std::vector<std::string> result;
    for (int i = 0; i < std::max(layers, 1); ++i) result.emplace_back(kind_at(i, period, rotated));
    return closed(std::move(result));
  }

  /// Keys that a query of a sliding layer sees; 0 where windows are off.
  int window() {
    if (family_.switched || !known_) {
      if (!reader_.flag("use_sliding_window").value_or(!family_.switched)) return 0;
    }
    const std::string_view name = family_.window_name;
    if (!reader_.is_missing(name)) return reader_.count_or_0(name).value_or(0);
    return family_.window;
  }

  [[nodiscard]] bool lacks_window() const { return reader_.is_missing(family_.window_name); }

  double softcap() {
    if (!reader_.is_missing("attn_logit_softcapping")) return reader_.number("attn_logit_softcapping").value_or(0);
    if (family_.softcap > 0) {
      model_.assumed.push_back(fmt::format("attn_logit_softcapping {}", family_.softcap));
    }
    return family_.softcap;
  }

 private:
  static constexpr Family unknown{.type = {}, .rule = LayerRule::sliding};

  [[nodiscard]] std::string_view layers_name() const { return reader_.first_of(family_.layers_names); }

  /// Of families whose full layers are of another shape the last is always full.
  [[nodiscard]] std::vector<std::string> closed(std::vector<std::string> kinds) const {
    if (family_.global_head_dim > 0) kinds.back() = full;
    return kinds;
  }

  int count() {
    said_ = reader_.count(layers_name()).value_or(0);
    if (said_ > most_layers) {
      reader_.problem(fmt::format("{} is {}", layers_name(), said_), fmt::format("at most {}", most_layers));
      said_ = 0;
    }
    if (said_ == 0 && family_.layers > 0 && reader_.words("layer_types").empty()) {
      model_.assumed.push_back(fmt::format("{} {}", layers_name(), family_.layers));
    }
    return said_ > 0 ? said_ : family_.layers;
  }

  int period() {
    if (family_.rule == LayerRule::sliding_from || family_.rule == LayerRule::even_sliding_to) {
      return reader_.count_or_0("max_window_layers").value_or(family_.period);
    }
    if (family_.period_field.empty()) return family_.period;
    return reader_.count(family_.period_field).value_or(family_.period);
  }

  std::string_view kind_at(int i, int period, const std::vector<int>& rotated) {
    const bool closes = (i + 1) % std::max(period, 1) == 0;
    const bool rotates =
        static_cast<std::size_t>(i) < rotated.size() ? rotated[static_cast<std::size_t>(i)] != 0 : !closes;
    switch (family_.rule) {
      case LayerRule::full:
        return full;
      case LayerRule::sliding:
        return sliding;
      case LayerRule::nth_full:
        return closes ? full : family_.other;
      case LayerRule::nth_other:
        return closes ? family_.other : full;
      case LayerRule::sliding_from:
        return i >= period ? sliding : full;
      case LayerRule::even_sliding_to:
        return i % 2 == 0 && i < period ? sliding : full;
      case LayerRule::sliding_unrotated:
        return rotates ? full : sliding;
      case LayerRule::chunked_rotated:
        return rotates && (reader_.is_missing("attention_chunk_size") || reader_.has("attention_chunk_size"))
                   ? family_.other
                   : full;
      case LayerRule::attention_types:
        return i % 2 == 0 ? full : sliding;
      case LayerRule::at_offset:
        return i % period == reader_.count_or_0("attn_layer_offset").value_or(default_offset) ? full : family_.other;
    }
    return full;
  }

  static constexpr int default_offset = 4;

  ConfigReader& reader_;
  const Family& family_;
  bool known_;
  ModelConfig& model_;
  int said_ = 0;  ///< the number of layers that the config names
};

/// Replaces what a config says of one layer alone.
void take_own(ConfigReader& reader, const nlohmann::json& own, int layer, LayerShape& shape) {
  const auto take = [&](const char* key, int& value) {
    const auto found = own.find(key);
    if (found == own.end() || found->is_null()) return;
    if (found->is_number_integer() && *found >= 1 && *found <= largest_count) {
      value = found->get<int>();
    } else {
      reader.problem(fmt::format("{} of layer {} in per_layer_config is no count", key, layer),
                     fmt::format("a whole number from 1 to {}", largest_count));
    }
  };
  take("num_attention_heads", shape.heads_q);
  take("num_key_value_heads", shape.heads_kv);
  take("head_dim", shape.head_dim);
  take("head_dim", shape.head_dim_v);
  if (shape.kind == sliding) take("sliding_window", shape.window);
}

/// What layers have of their own, by layer; null for those that have nothing.
std::vector<const nlohmann::json*> own_configs(ConfigReader& reader, std::size_t layers) {
  std::vector<const nlohmann::json*> result(layers, nullptr);
  const nlohmann::json& all = reader.find("per_layer_config");
  if (!all.is_object()) return result;
  for (const auto& [key, own] : all.items()) {
    const bool is_layer = !key.empty() && key.size() <= 5 && key.find_first_not_of("0123456789") == std::string::npos;
    const std::size_t layer = is_layer ? std::stoul(key) : layers;
    if (layer >= layers || !own.is_object()) {
      reader.problem(fmt::format("per_layer_config has '{}'", key), fmt::format("layers from 0 to {}", layers - 1));
      return result;
    }
    result[layer] = &own;
  }
  return result;
}

void add(std::vector<LayerGroup>& groups, const LayerShape& shape, int layer) {
  const auto found = std::ranges::find(groups, shape, &LayerGroup::shape);
  if (found != groups.end()) {
    found->layers.push_back(layer);
  } else {
    groups.push_back({.shape = shape, .layers = {layer}});
  }
}

}  // namespace

void read_layers(ConfigReader& reader, const Family* family, const LayerShape& shape, ModelConfig& model) {
  Layers layers(reader, family, model);
  const std::vector<std::string> kinds = layers.kinds();
  const int window = layers.window();
  const double softcap = layers.softcap();
  const std::vector<const nlohmann::json*> own = own_configs(reader, kinds.size());
  const bool own_globals = family != nullptr && family->global_head_dim > 0 && reader.is_missing("per_layer_config");
  LayerShape global = shape;
  if (own_globals) {
    global.head_dim = global.head_dim_v = reader.count("global_head_dim").value_or(family->global_head_dim);
    if (reader.flag("attention_k_eq_v").value_or(false)) {
      global.heads_kv = reader.count("num_global_key_value_heads").value_or(shape.heads_kv);
    }
  }
  bool slides = false;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    LayerShape layer = own_globals && kinds[i] == full ? global : shape;
    layer.kind = kinds[i];
    layer.softcap = static_cast<float>(softcap);
    if (layer.kind == sliding) {
      slides = true;
      layer.window = window;
    }
    if (own[i] != nullptr) take_own(reader, *own[i], static_cast<int>(i), layer);
    if (layer.kind == sliding && layer.window == 0) layer.kind = full;  // the window is switched off
    if (layer.kind != sliding && layer.kind != full) layer.lacks = "attention of this kind is in no kernel";
    add(model.groups, layer, static_cast<int>(i));
    if (model.groups.size() > most_groups) {
      reader.problem(fmt::format("its layers are of more than {} shapes", most_groups), "a model's config.json");
    }
    if (!reader.ok()) return;
  }
  if (slides && window == 0 && reader.has("layer_types") && layers.lacks_window()) {
    model.notes.emplace_back("layers of type sliding_attention are here without a window; taken as full_attention");
  }
  if (family != nullptr && slides && window > 0 && layers.lacks_window()) {
    model.assumed.push_back(fmt::format("{} {}", family->window_name, window));
  }
}

}  // namespace attune::cli
