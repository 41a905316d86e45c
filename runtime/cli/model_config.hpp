// What a model's config.json (as Hugging Face has it) says about its attention, and the problems that follow.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "runtime/record/record.hpp"

namespace attune::cli {

/// The attention of a decoder's layers.
struct ModelConfig {
  std::string type;  ///< "llama"
  Dtype dtype = Dtype::bf16;
  int heads_q = 0;
  int heads_kv = 0;
  int head_dim = 0;
  int head_dim_v = 0;   ///< of V and O
  bool latent = false;  ///< keys and values are made of a latent vector (MLA), which is what the cache holds
  int window = 0;       ///< keys that a query sees in sliding layers, its own included; 0: there are no such layers
  float softcap = 0;
  Rotary rotary = Rotary::none;
  int rotary_dim = 0;
  int max_tokens = 0;
  std::vector<std::string> notes;  ///< what was taken otherwise than it stands there, or left out

  /// Lines for a person: what was understood, then the notes.
  [[nodiscard]] std::string text() const;
};

/// `file` is for messages. `dtype` is in place of the config's, where it is given.
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file, std::optional<Dtype> dtype);

/// What the model asks for: causal prefill of all lengths, decoding one token at a time from a contiguous cache (new
/// keys stored before, by a call of their own or by the same, rotated or not). With `serving` also ragged batches
/// (of few queries a sequence decode's), caches in pages, and merges of two results. None has calls.
std::vector<Recorded> problems_of(const ModelConfig& config, bool serving);

}  // namespace attune::cli
