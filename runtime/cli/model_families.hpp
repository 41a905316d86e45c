// The families of decoders that `attune spec-from` knows: what each calls its fields, and what its class takes for
// those that a config.json leaves out.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "generator/variant.hpp"

namespace attune::cli {

/// What a field may be called; the first that a config has counts.
using FieldNames = std::array<std::string_view, 2>;

/// How layers get their kind where a config has no list of layer_types.
enum class LayerRule {
  full,               ///< every layer sees all keys
  sliding,            ///< every layer has the window, where there is one
  nth_full,           ///< the last of each `period` layers sees all keys, the others are of the kind `other`
  nth_other,          ///< the other way round
  sliding_from,       ///< those from max_window_layers on have the window
  even_sliding_to,    ///< every second before max_window_layers has it
  sliding_unrotated,  ///< those without a rotation (no_rope_layers) have it
  chunked_rotated,    ///< those with a rotation see a chunk of the keys
  attention_types,    ///< a list of patterns and how often each is repeated
  at_offset,          ///< layer i attends where i % attn_layer_period is attn_layer_offset
};

/// Where the number of K/V heads stands.
enum class KvHeads {
  named,        ///< a field of its own, else as many as query heads
  multi_query,  ///< one, unless multi_query is false
  falcon,       ///< a field of its own under new_decoder_architecture, else as multi_query
  chatglm,      ///< multi_query_group_num, under multi_query_attention
  attn_config,  ///< kv_n_heads of the object attn_config
};

/// Of keys that are made of a latent vector (MLA): columns without and with a rotation, and V's.
struct LatentDims {
  int nope = 0;
  int rope = 0;
  int v = 0;
};

/// One model_type. Numbers are what its configuration class takes where a field is missing; 0: there is no such number.
struct Family {
  std::string_view type;
  int heads = 0;
  int heads_kv = 0;  ///< 0: as many as query heads
  int head_dim = 0;  ///< 0: hidden size by heads
  int hidden = 0;
  int layers = 0;
  int tokens = 0;
  int window = 0;
  double softcap = 0;
  Rotary rotary = Rotary::halves;
  double rotated = 1;  ///< part of head_dim
  int rotary_dim = 0;  ///< in its place, where the class has a number of columns
  LatentDims latent = {};
  KvHeads kv = KvHeads::named;
  LayerRule rule = LayerRule::full;
  int period = 0;
  std::string_view period_field = {};
  std::string_view other = "sliding_attention";
  bool switched = false;        ///< windows count under use_sliding_window alone
  int global_head_dim = 0;      ///< of layers that see all keys, where it is another
  bool attends = true;          ///< false: it has no attention at all
  std::string_view lacks = {};  ///< of every layer: what no kernel has
  std::string_view note = {};   ///< what kernels leave to the caller
  FieldNames heads_names = {"num_attention_heads"};
  FieldNames heads_kv_names = {"num_key_value_heads"};
  FieldNames head_dim_names = {"head_dim"};
  FieldNames hidden_names = {"hidden_size"};
  FieldNames layers_names = {"num_hidden_layers"};
  FieldNames tokens_names = {"max_position_embeddings"};
  std::string_view window_name = "sliding_window";
};

/// Nothing for a type that is not listed.
const Family* find_family(std::string_view type);

/// What a feature leaves to kernels.
enum class Weight {
  every_layer,    ///< nothing
  beside,         ///< the rest of the model
  unknown_types,  ///< the rest of the model; what is known of a family says more
};

/// A field that says of a model, of any type, what no kernel has (ConfigReader::says).
struct Feature {
  std::string_view field;
  std::string_view what;
  Weight weight = Weight::every_layer;
};

std::span<const Feature> model_features();

}  // namespace attune::cli
