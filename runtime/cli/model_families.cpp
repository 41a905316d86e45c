#include "runtime/cli/model_families.hpp"

#include <algorithm>

namespace attune::cli {
namespace {

constexpr std::string_view alibi =
    "ALiBi (a bias of each head that grows with the distance) is in no spec that is made of a model; specs of your own "
    "have it as score: s + alibi_slopes[h] * (k - p)";
constexpr std::string_view sinks =
    "attention sinks (a logit of each head in the softmax's sum) are in no spec that is made of a model: add sink: "
    "true "
    "to its specs";
constexpr std::string_view no_attention = "its layers have a state in place of attention";

constexpr std::string_view some_states =
    "layers with a state in place of attention have no kernels here and are left out";

constexpr FieldNames n_head{"n_head", "num_attention_heads"};
constexpr FieldNames n_embd{"n_embd", "hidden_size"};
constexpr FieldNames n_layer{"n_layer", "num_hidden_layers"};
constexpr FieldNames n_positions{"n_positions", "max_position_embeddings"};
constexpr FieldNames n_heads{"n_heads", "num_attention_heads"};
constexpr FieldNames d_model{"d_model", "hidden_size"};
constexpr FieldNames n_layers{"n_layers", "num_hidden_layers"};
constexpr FieldNames max_seq_len{"max_seq_len", "max_position_embeddings"};
constexpr FieldNames none{};

// A row a family.
// clang-format off
constexpr Family families[] = {
    {.type = "apertus", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 65536},
    {.type = "arcee", .heads = 32, .hidden = 2560, .layers = 32, .tokens = 4096},
    {.type = "bloom", .heads = 8, .hidden = 64, .layers = 2, .rotary = Rotary::none, .lacks = alibi,
     .heads_names = n_head, .heads_kv_names = none, .head_dim_names = none,
     .hidden_names = {"n_embed", "hidden_size"}, .layers_names = n_layer, .tokens_names = {"seq_length"}},
    {.type = "chatglm", .heads = 32, .head_dim = 128, .hidden = 4096, .layers = 28, .tokens = 2048,
     .rotary = Rotary::interleaved, .rotated = 0.5, .kv = KvHeads::chatglm, .head_dim_names = {"kv_channels"},
     .layers_names = {"num_layers", "num_hidden_layers"}, .tokens_names = {"seq_length"}},
    {.type = "codegen", .heads = 16, .hidden = 4096, .layers = 28, .tokens = 2048, .rotary = Rotary::interleaved,
     .rotary_dim = 64, .heads_names = n_head, .heads_kv_names = none, .head_dim_names = none, .hidden_names = n_embd,
     .layers_names = n_layer, .tokens_names = n_positions},
    {.type = "cohere", .heads = 64, .hidden = 8192, .layers = 40, .tokens = 8192, .rotary = Rotary::interleaved},
    {.type = "cohere2", .heads = 64, .hidden = 8192, .layers = 40, .tokens = 8192, .window = 4096,
     .rotary = Rotary::interleaved, .rule = LayerRule::nth_full, .period = 4,
     .period_field = "sliding_window_pattern", .head_dim_names = none},
    {.type = "dbrx", .heads = 16, .heads_kv = 1, .hidden = 2048, .layers = 24, .tokens = 2048,
     .kv = KvHeads::attn_config, .heads_names = n_heads, .head_dim_names = none, .hidden_names = d_model,
     .layers_names = n_layers, .tokens_names = max_seq_len},
    {.type = "deepseek_v2", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048,
     .latent = {.nope = 128, .rope = 64, .v = 128}},
    {.type = "deepseek_v3", .heads = 128, .heads_kv = 128, .hidden = 7168, .layers = 61, .tokens = 4096,
     .latent = {.nope = 128, .rope = 64, .v = 128}},
    {.type = "ernie4_5", .heads = 16, .heads_kv = 2, .head_dim = 128, .hidden = 1024, .layers = 18, .tokens = 131072,
     .rotary = Rotary::interleaved},
    {.type = "ernie4_5_moe", .heads = 20, .heads_kv = 4, .hidden = 2560, .layers = 28, .tokens = 131072,
     .rotary = Rotary::interleaved},
    {.type = "exaone4", .heads = 32, .heads_kv = 32, .hidden = 4096, .layers = 32, .tokens = 2048, .window = 4096,
     .rule = LayerRule::nth_full, .period = 4, .period_field = "sliding_window_pattern"},
    {.type = "falcon", .heads = 71, .hidden = 4544, .layers = 32, .tokens = 2048, .kv = KvHeads::falcon,
     .heads_names = {"num_attention_heads", "n_head"}, .heads_kv_names = {"num_kv_heads", "n_head_kv"},
     .head_dim_names = none, .hidden_names = {"n_embed", "hidden_size"},
     .layers_names = {"num_hidden_layers", "n_layer"}},
    {.type = "falcon_mamba", .attends = false, .lacks = no_attention},
    {.type = "gemma", .heads = 16, .heads_kv = 16, .head_dim = 256, .hidden = 3072, .layers = 28, .tokens = 8192},
    {.type = "gemma2", .heads = 8, .heads_kv = 4, .head_dim = 256, .hidden = 2304, .layers = 26, .tokens = 8192,
     .window = 4096, .softcap = 50, .rule = LayerRule::nth_full, .period = 2},
    {.type = "gemma3_text", .heads = 8, .heads_kv = 4, .head_dim = 256, .hidden = 2304, .layers = 26,
     .tokens = 131072, .window = 4096, .rule = LayerRule::nth_full, .period = 6,
     .period_field = "sliding_window_pattern"},
    {.type = "gemma3n_text", .heads = 8, .heads_kv = 2, .head_dim = 256, .hidden = 2048, .layers = 35,
     .tokens = 32768, .window = 512, .rule = LayerRule::nth_full, .period = 5},
    {.type = "gemma4_text", .heads = 8, .heads_kv = 4, .head_dim = 256, .hidden = 2304, .layers = 30,
     .tokens = 131072, .window = 512, .rule = LayerRule::nth_full, .period = 6, .global_head_dim = 512},
    {.type = "glm", .heads = 32, .heads_kv = 2, .head_dim = 128, .hidden = 4096, .layers = 40, .tokens = 131072,
     .rotary = Rotary::interleaved, .rotated = 0.5},
    {.type = "glm4", .heads = 32, .heads_kv = 2, .head_dim = 128, .hidden = 4096, .layers = 40, .tokens = 131072,
     .rotary = Rotary::interleaved, .rotated = 0.5},
    {.type = "glm4_moe", .heads = 96, .heads_kv = 8, .hidden = 4096, .layers = 46, .tokens = 131072, .rotated = 0.5},
    {.type = "gpt2", .heads = 12, .hidden = 768, .layers = 12, .tokens = 1024, .rotary = Rotary::none,
     .heads_names = n_head, .heads_kv_names = none, .head_dim_names = none, .hidden_names = n_embd,
     .layers_names = n_layer, .tokens_names = n_positions},
    {.type = "gpt_bigcode", .heads = 12, .hidden = 768, .layers = 12, .tokens = 1024, .rotary = Rotary::none,
     .kv = KvHeads::multi_query, .heads_names = n_head, .heads_kv_names = none, .head_dim_names = none,
     .hidden_names = n_embd, .layers_names = n_layer, .tokens_names = n_positions},
    {.type = "gpt_neo", .heads = 16, .hidden = 2048, .layers = 24, .tokens = 2048, .window = 256,
     .rotary = Rotary::none, .rule = LayerRule::attention_types, .heads_names = {"num_heads", "num_attention_heads"},
     .heads_kv_names = none, .head_dim_names = none, .layers_names = {"num_layers", "num_hidden_layers"},
     .window_name = "window_size"},
    {.type = "gpt_neox", .heads = 64, .hidden = 6144, .layers = 44, .tokens = 2048, .rotated = 0.25,
     .heads_kv_names = none, .head_dim_names = none},
    {.type = "gpt_oss", .heads = 64, .heads_kv = 8, .head_dim = 64, .hidden = 2880, .layers = 36, .tokens = 131072,
     .window = 128, .rule = LayerRule::nth_full, .period = 2, .note = sinks},
    {.type = "gptj", .heads = 16, .hidden = 4096, .layers = 28, .tokens = 2048, .rotary = Rotary::interleaved,
     .rotary_dim = 64, .heads_names = n_head, .heads_kv_names = none, .head_dim_names = none, .hidden_names = n_embd,
     .layers_names = n_layer, .tokens_names = n_positions},
    {.type = "granite", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048},
    {.type = "granitemoe", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048},
    {.type = "granitemoehybrid", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048,
     .rule = LayerRule::nth_full, .period = 1 << 30, .other = "linear_attention"},
    {.type = "helium", .heads = 20, .heads_kv = 20, .head_dim = 128, .hidden = 2560, .layers = 24, .tokens = 4096,
     .rotary = Rotary::interleaved},
    {.type = "hunyuan_v1_dense", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048},
    {.type = "jamba", .heads = 32, .heads_kv = 8, .hidden = 4096, .layers = 32, .tokens = 262144,
     .rotary = Rotary::none, .rule = LayerRule::at_offset, .period = 8, .period_field = "attn_layer_period",
     .other = "linear_attention"},
    {.type = "llama", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048},
    {.type = "llama4_text", .heads = 40, .heads_kv = 8, .head_dim = 128, .hidden = 5120, .layers = 48,
     .tokens = 131072, .rotary = Rotary::interleaved, .rule = LayerRule::chunked_rotated, .period = 4,
     .period_field = "no_rope_layer_interval", .other = "chunked_attention"},
    {.type = "mamba", .attends = false, .lacks = no_attention},
    {.type = "mamba2", .attends = false, .lacks = no_attention},
    {.type = "minimax", .heads = 32, .heads_kv = 8, .hidden = 4096, .layers = 32, .tokens = 131072,
     .rule = LayerRule::nth_other, .period = 2, .other = "linear_attention"},
    {.type = "minimax_m2", .heads = 48, .heads_kv = 8, .head_dim = 128, .hidden = 3072, .layers = 62,
     .tokens = 196608},
    {.type = "ministral3", .heads = 32, .heads_kv = 8, .head_dim = 128, .hidden = 4096, .layers = 34,
     .tokens = 262144, .rule = LayerRule::sliding},
    {.type = "mistral", .heads = 32, .heads_kv = 8, .hidden = 4096, .layers = 32, .tokens = 131072, .window = 4096,
     .rule = LayerRule::sliding},
    {.type = "mixtral", .heads = 32, .heads_kv = 8, .hidden = 4096, .layers = 32, .tokens = 131072,
     .rule = LayerRule::sliding},
    {.type = "mpt", .heads = 16, .hidden = 2048, .layers = 24, .tokens = 2048, .rotary = Rotary::none, .lacks = alibi,
     .heads_names = n_heads, .heads_kv_names = none, .head_dim_names = none, .hidden_names = d_model,
     .layers_names = n_layers, .tokens_names = max_seq_len},
    {.type = "nemotron", .heads = 48, .hidden = 6144, .layers = 32, .tokens = 4096, .rotated = 0.5},
    {.type = "olmo", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048},
    {.type = "olmo2", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048},
    {.type = "olmo3", .heads = 32, .hidden = 4096, .layers = 32, .tokens = 2048, .window = 4096,
     .rule = LayerRule::nth_full, .period = 4},
    {.type = "olmoe", .heads = 16, .hidden = 2048, .layers = 16, .tokens = 4096},
    {.type = "opt", .heads = 12, .hidden = 768, .layers = 12, .tokens = 2048, .rotary = Rotary::none,
     .heads_kv_names = none, .head_dim_names = none},
    {.type = "persimmon", .heads = 64, .hidden = 4096, .layers = 36, .tokens = 16384, .rotated = 0.5,
     .heads_kv_names = none, .head_dim_names = none},
    {.type = "phi", .heads = 32, .hidden = 2048, .layers = 24, .tokens = 2048, .rotated = 0.5},
    {.type = "phi3", .heads = 32, .hidden = 3072, .layers = 32, .tokens = 4096, .rule = LayerRule::sliding},
    {.type = "phimoe", .heads = 32, .heads_kv = 8, .hidden = 4096, .layers = 32, .tokens = 131072,
     .rule = LayerRule::sliding},
    {.type = "qwen2", .heads = 32, .heads_kv = 32, .hidden = 4096, .layers = 32, .tokens = 32768, .window = 4096,
     .rule = LayerRule::sliding_from, .period = 28, .switched = true},
    {.type = "qwen2_moe", .heads = 16, .heads_kv = 16, .hidden = 2048, .layers = 24, .tokens = 32768, .window = 4096,
     .rule = LayerRule::even_sliding_to, .period = 28, .switched = true},
    {.type = "qwen3", .heads = 32, .heads_kv = 32, .head_dim = 128, .hidden = 4096, .layers = 32, .tokens = 32768,
     .window = 4096, .rule = LayerRule::sliding_from, .period = 28, .switched = true},
    {.type = "qwen3_moe", .heads = 32, .heads_kv = 4, .hidden = 2048, .layers = 24, .tokens = 32768, .window = 4096,
     .rule = LayerRule::sliding, .switched = true},
    {.type = "qwen3_next", .heads = 16, .heads_kv = 2, .head_dim = 256, .hidden = 2048, .layers = 48, .tokens = 32768,
     .rotated = 0.25, .rule = LayerRule::nth_full, .period = 4, .period_field = "full_attention_interval",
     .other = "linear_attention"},
    {.type = "rwkv", .attends = false, .lacks = no_attention},
    {.type = "seed_oss", .heads = 80, .heads_kv = 8, .head_dim = 128, .hidden = 4096, .layers = 64, .tokens = 524288},
    {.type = "smollm3", .heads = 16, .heads_kv = 4, .hidden = 2048, .layers = 36, .tokens = 32768,
     .rule = LayerRule::sliding_unrotated, .period = 4, .period_field = "no_rope_layer_interval", .switched = true},
    {.type = "stablelm", .heads = 32, .heads_kv = 32, .hidden = 2560, .layers = 32, .tokens = 4096, .rotated = 0.25,
     .head_dim_names = none},
    {.type = "starcoder2", .heads = 24, .heads_kv = 2, .hidden = 3072, .layers = 30, .tokens = 4096,
     .rule = LayerRule::sliding},
};
// clang-format on

/// Types whose text model is of another: configs of several modalities that leave its type out, say.
struct Alias {
  std::string_view type;
  std::string_view family;
};
constexpr Alias aliases[] = {
    {"gemma3", "gemma3_text"},  {"gemma3n", "gemma3n_text"}, {"gemma4", "gemma4_text"},
    {"kimi_k2", "deepseek_v3"}, {"llama4", "llama4_text"},
};

constexpr Feature features[] = {
    {"alibi", alibi},
    {"use_alibi", alibi},
    {"position_embedding_type", alibi},
    {"use_bidirectional_attention", "queries see later keys too, and kernels of decoders are causal"},
    {"position_encoding_2d", "queries see a whole prefix, later keys included, and kernels of decoders are causal"},
    {"is_encoder_decoder", "it is an encoder with a decoder, and kernels of decoders alone are made"},
    {"relative_attention_num_buckets", "a bias that is looked up by distance is in no kernel"},
    {"index_topk", "keys that an indexer chooses one by one are in no kernel"},
    {"add_swa_attention_sink_bias", sinks, Weight::beside},
    {"add_full_attention_sink_bias", sinks, Weight::beside},
    {"add_cross_attention", "layers that attend to an encoder's states have no kernels here and are left out",
     Weight::beside},
    {"mamba_d_state", some_states, Weight::unknown_types},
    {"ssm_state_size", some_states, Weight::unknown_types},
};

}  // namespace

const Family* find_family(std::string_view type) {
  const auto* const alias = std::ranges::find(aliases, type, &Alias::type);
  if (alias != std::end(aliases)) type = alias->family;
  const auto* const found = std::ranges::find(families, type, &Family::type);
  return found == std::end(families) ? nullptr : found;
}

std::span<const Feature> model_features() { return features; }

}  // namespace attune::cli
