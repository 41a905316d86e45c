#include "runtime/cli/model_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/cli/config_reader.hpp"

namespace attune::cli {
namespace {

/// Of a config that names no length.
constexpr int usual_tokens = 131072;

/// Models whose rotary embedding pairs neighbouring columns; the others pair those of two halves.
constexpr std::array<std::string_view, 11> interleaving_models{"chatglm",  "codegen",      "cohere",     "cohere2",
                                                               "ernie4_5", "ernie4_5_moe", "glm",        "glm4",
                                                               "gptj",     "helium",       "llama4_text"};

/// Columns that are rotated come in steps of so many (StoreProblem::rotary_dim).
constexpr int rotary_dim_step = 16;

void read_heads(ConfigReader& reader, ModelConfig& model) {
  model.heads_q = reader.required_count("num_attention_heads");
  model.heads_kv = reader.count("num_key_value_heads").value_or(model.heads_q);
  const std::optional<int> nope = reader.count("qk_nope_head_dim");
  const std::optional<int> rope = reader.count("qk_rope_head_dim");
  if (nope && rope) {
    model.latent = true;
    model.head_dim = *nope + *rope;
    model.head_dim_v = reader.required_count("v_head_dim");
    model.rotary_dim = *rope;
    return;
  }
  if (const std::optional<int> given = reader.count("head_dim")) {
    model.head_dim = *given;
  } else if (const int hidden = reader.required_count("hidden_size", "or head_dim"); hidden > 0 && model.heads_q > 0) {
    model.head_dim = hidden / model.heads_q;
    if (hidden % model.heads_q != 0) {
      reader.problem(fmt::format("hidden_size {} is no multiple of num_attention_heads {}", hidden, model.heads_q),
                     "head_dim, where it is not their quotient");
    }
  }
  model.head_dim_v = model.head_dim;
}

void read_dtype(ConfigReader& reader, ModelConfig& model, std::optional<Dtype> wanted) {
  const std::string word = reader.word("dtype").value_or(reader.word("torch_dtype").value_or(""));
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

void read_layers(ConfigReader& reader, ModelConfig& model) {
  const std::vector<std::string> layers = reader.words("layer_types");
  const std::optional<int> window = reader.count("sliding_window");
  const bool slides = layers.empty() || std::ranges::find(layers, "sliding_attention") != layers.end();
  if (window && slides && reader.flag("use_sliding_window").value_or(true)) model.window = *window;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool first = std::find(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i), layers[i]) ==
                       layers.begin() + static_cast<std::ptrdiff_t>(i);
    if (first && layers[i] != "full_attention" && layers[i] != "sliding_attention") {
      model.notes.push_back(fmt::format("layers of type {} have no kernels here and are left out", layers[i]));
    }
  }
  model.softcap = static_cast<float>(reader.number("attn_logit_softcapping").value_or(0));
}

void read_rotary(ConfigReader& reader, ModelConfig& model) {
  const bool rotates = reader.has("rope_theta") || reader.has("rope_scaling") || reader.has("rope_parameters") ||
                       reader.has("rotary_dim") || reader.has("partial_rotary_factor") || reader.has("rotary_pct");
  if (!rotates || model.latent) {
    model.rotary_dim = 0;
    return;
  }
  const double part =
      reader.number_within("rope_parameters", "partial_rotary_factor")
          .value_or(reader.number("partial_rotary_factor").value_or(reader.number("rotary_pct").value_or(1)));
  model.rotary_dim = reader.count("rotary_dim").value_or(static_cast<int>(std::lround(part * model.head_dim)));
  if (model.rotary_dim < rotary_dim_step || model.rotary_dim % rotary_dim_step != 0 ||
      model.rotary_dim > model.head_dim) {
    model.notes.push_back(
        fmt::format("{} columns are rotated, and kernels rotate multiples of {} up to head_dim; "
                    "left to the caller",
                    model.rotary_dim, rotary_dim_step));
    model.rotary_dim = 0;
    return;
  }
  const bool interleaves = std::ranges::find(interleaving_models, model.type) != interleaving_models.end();
  model.rotary = interleaves ? Rotary::interleaved : Rotary::halves;
}

/// The lengths up to `most` that can differ in which kernel serves them: few tiles, and twice and one and a half times
/// as many.
std::vector<int> lengths_up_to(int most) {
  std::vector<int> result{1, 64, 128, 192, 256, 320, 384};
  for (long long length = 512; length < most; length *= 2) {
    result.push_back(static_cast<int>(length));
    result.push_back(static_cast<int>(length * 3 / 2));
  }
  result.push_back(most);
  std::erase_if(result, [&](int length) { return length > most; });
  return result;
}

Problem prefill_of(const ModelConfig& model, int seqlen_q, int seqlen_k, int window) {
  Problem problem{.dtype = model.dtype,
                  .heads_q = model.heads_q,
                  .heads_kv = model.heads_kv,
                  .seqlen_q = seqlen_q,
                  .seqlen_k = seqlen_k,
                  .head_dim = model.head_dim,
                  .head_dim_v = model.head_dim_v == model.head_dim ? 0 : model.head_dim_v,
                  .causal = true,
                  .softcap = model.softcap};
  if (window > 0) problem.set_window(window - 1, 0);
  return problem;
}

constexpr int usual_page = 16;

Problem ragged(Problem problem) {
  problem.ragged = true;
  problem.total_q = problem.seqlen_q;
  problem.total_k = problem.seqlen_k;
  return problem;
}

Problem paged(Problem problem) {
  problem.total_k = 0;
  problem.paged = true;
  problem.page_size = usual_page;
  problem.table_width = (problem.seqlen_k + usual_page - 1) / usual_page;
  problem.pages = problem.table_width;
  return problem;
}

void add_prefill(std::vector<Recorded>& result, const ModelConfig& model, bool serving) {
  for (const int seqlen_k : lengths_up_to(model.max_tokens)) {
    for (const int seqlen_q : lengths_up_to(seqlen_k)) {
      for (const int window : {0, model.window}) {
        const Problem dense = prefill_of(model, seqlen_q, seqlen_k, window);
        result.push_back({.problem = dense});
        if (!serving) continue;
        result.push_back({.problem = ragged(dense)});
        if (!model.latent) result.push_back({.problem = paged(ragged(dense))});
      }
    }
  }
}

/// Decoding a token of each sequence; with the rotation, where keys come along.
DecodeProblem decode_of(const ModelConfig& model, bool in_pages, Rotary rotary) {
  DecodeProblem problem{.dtype = model.dtype,
                        .heads_q = model.heads_q,
                        .heads_kv = model.heads_kv,
                        .head_dim = model.head_dim,
                        .max_seqlen_k = model.max_tokens,
                        .page_size = in_pages ? usual_page : model.max_tokens,
                        .window_left = model.window - 1,
                        .window_right = 0,
                        .softcap = model.softcap,
                        .seqlen_new = 1,
                        .rotary = rotary};
  problem.table_width = (model.max_tokens + problem.page_size - 1) / problem.page_size;
  problem.pages = problem.table_width;
  if (rotary == Rotary::none) return problem;
  problem.rotary_dim = model.rotary_dim;
  problem.rotations = model.max_tokens;
  return problem;
}

/// Ragged batches of few queries a sequence, up to as many as decode takes.
DecodeProblem ragged_decode_of(const ModelConfig& model, bool in_pages) {
  DecodeProblem problem = decode_of(model, in_pages, Rotary::none);
  problem.seqlen_q = most_decode_queries;
  problem.seqlen_new = 0;
  problem.ragged = true;
  problem.total_q = most_decode_queries;
  return problem;
}

/// Whether kernels of all operations take what the model has.
void check_limits(ConfigReader& reader, const ModelConfig& model) {
  for (const std::string& text : problems_of(prefill_of(model, 1, 1, 0))) reader.problem(text, "");
}

}  // namespace

std::string ModelConfig::text() const {
  std::string text = fmt::format("{}: {} query heads and {} K/V heads (", type, heads_q, heads_kv);
  text += heads_q == heads_kv ? "one to one" : fmt::format("{} to one", heads_q / heads_kv);
  text += fmt::format("), head_dim {}", head_dim);
  if (head_dim_v != head_dim) text += fmt::format(" and {} of V", head_dim_v);
  text += fmt::format(", {}, up to {} tokens\n", value_text(*find_field("dtype"), static_cast<int>(dtype)), max_tokens);
  if (window > 0) text += fmt::format("  layers with a sliding window of {} keys\n", window);
  if (softcap > 0) text += fmt::format("  scores capped at {}\n", softcap);
  if (rotary != Rotary::none) {
    text += fmt::format("  rotary embedding of {} columns ({})\n", rotary_dim,
                        value_text(*find_field("rotary"), static_cast<int>(rotary)));
  }
  for (const std::string& note : notes) text += fmt::format("  {}\n", note);
  return text;
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file, std::optional<Dtype> dtype) {
  Result<ModelConfig> result;
  ConfigReader reader(text, file);
  ModelConfig& model = result.value;
  if (reader.ok()) {
    model.type = reader.word("model_type").value_or("a model");
    read_heads(reader, model);
    read_dtype(reader, model, dtype);
    read_layers(reader, model);
    read_rotary(reader, model);
    model.max_tokens = reader.count("max_position_embeddings").value_or(usual_tokens);
    if (model.latent) {
      model.notes.emplace_back(
          "its cache holds latent vectors (MLA), for which there are no kernels: prefill alone, on compute capability "
          "9.0");
    }
    if (reader.ok()) check_limits(reader, model);
  }
  result.problems = std::move(reader).take_problems();
  return result;
}

std::vector<Recorded> problems_of(const ModelConfig& model, bool serving) {
  std::vector<Recorded> result;
  add_prefill(result, model, serving);
  if (!model.latent) {
    for (const bool in_pages : {false, true}) {
      if (in_pages && !serving) continue;
      result.push_back({.problem = decode_of(model, in_pages, Rotary::none)});
      if (model.rotary != Rotary::none) result.push_back({.problem = decode_of(model, in_pages, model.rotary)});
      if (serving) result.push_back({.problem = ragged_decode_of(model, in_pages)});
    }
  }
  if (serving) {
    result.push_back(
        {.problem = MergeProblem{.dtype = model.dtype, .heads = model.heads_q, .head_dim = model.head_dim_v}});
  }
  return result;
}

}  // namespace attune::cli
