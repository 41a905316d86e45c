// What a model's config.json (as Hugging Face has it) says about its attention, and the problems that follow.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "runtime/record/record.hpp"

namespace attune::cli {

/// What layers share whose attention is alike.
struct LayerShape {
  std::string kind = "full_attention";  ///< in the words of layer_types
  int heads_q = 0;
  int heads_kv = 0;
  int head_dim = 0;
  int head_dim_v = 0;  ///< of V and O
  int window = 0;      ///< keys that a query sees, its own included; 0: all
  float softcap = 0;
  int rotary_dim = 0;  ///< columns that are rotated where keys are stored; 0: none, or the caller does it
  std::string lacks;   ///< why no kernel serves it; empty: kernels do

  bool operator==(const LayerShape&) const = default;
};

struct LayerGroup {
  LayerShape shape;
  std::vector<int> layers;  ///< which, from 0; the first where the config does not say how many there are
};

/// The attention of a decoder's layers.
struct ModelConfig {
  std::string type;    ///< "llama"
  bool known = false;  ///< what fields mean, and what is taken where they are missing, is known of the type
  Dtype dtype = Dtype::bf16;
  bool latent = false;  ///< keys and values are made of a latent vector (MLA), which is what the cache holds
  std::vector<LayerGroup> groups;
  Rotary rotary = Rotary::none;
  int max_tokens = 0;
  std::vector<std::string> lacks;    ///< what no kernel has and every layer needs: nothing of the model is served
  std::vector<std::string> assumed;  ///< what the file leaves out: "head_dim 128 (...)"
  std::vector<std::string> notes;    ///< what was taken otherwise than it stands there, or left out

  /// Whether kernels serve any of its layers.
  [[nodiscard]] bool served() const;

  /// Lines for a person: what was understood, then the notes.
  [[nodiscard]] std::string text() const;
};

/// `file` is for messages. `dtype` is in place of the config's, where it is given.
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file, std::optional<Dtype> dtype);

/// What the model's layers ask for that kernels serve: causal prefill of all lengths, decoding one token at a time from
/// a contiguous cache (new keys stored before, by a call of their own or by the same, rotated or not). With `serving`
/// also ragged batches (of few queries a sequence decode's), caches in pages, and merges of two results. None has
/// calls.
std::vector<Recorded> problems_of(const ModelConfig& config, bool serving);

}  // namespace attune::cli
