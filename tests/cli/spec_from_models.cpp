// attune spec-from of models whose fields have other names, other defaults, or features that no kernel has; and of
// configs that are no model's. What it reads of forty families is held against their classes in tests/python.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>

#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

/// What the tool says of one config.
struct Said {
  int exit_code = -1;
  std::string out;
  std::string err;
  json model;  ///< null where the config is refused
};

Said spec_from(const std::string& config) {
  const TemporaryFolder folder;
  const std::string file = folder.file("config.json", config);
  const ToolResult text = attune_tool({"spec-from", file, "--arch", "sm_90"});
  const ToolResult result = attune_tool({"spec-from", file, "--arch", "sm_90", "--json"});
  CHECK(text.exit_code == result.exit_code);
  Said said{.exit_code = text.exit_code, .out = text.out, .err = text.err, .model = nullptr};
  const json printed = parsed_json(result.out);
  if (printed.contains("models")) said.model = printed["models"][0];
  return said;
}

/// Query heads, K/V heads and head_dim of all layers, which are alike.
std::string heads_of(const Said& said) {
  CAPTURE(said.err);
  REQUIRE(said.exit_code == 0);
  REQUIRE(said.model["groups"].size() == 1);
  const json& group = said.model["groups"][0];
  return group["heads_q"].dump() + " " + group["heads_kv"].dump() + " " + group["head_dim"].dump();
}

}  // namespace

TEST_CASE("K/V heads stand where each family has them") {
  // falcon-7b, falcon-40b, chatglm3-6b, glm-4-9b-chat, starcoder, bloom's and dbrx's names of fields.
  CHECK(heads_of(spec_from(R"({"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71,
    "num_kv_heads": 71, "multi_query": true, "new_decoder_architecture": false, "alibi": false})")) == "71 1 64");
  CHECK(heads_of(spec_from(R"({"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128,
    "num_kv_heads": 8, "multi_query": true, "new_decoder_architecture": true, "alibi": false})")) == "128 8 64");
  for (const char* layers : {"28", "40"}) {
    const Said glm = spec_from(R"({"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32,
      "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2, "seq_length": 8192,
      "torch_dtype": "float16", "num_layers": )" +
                               std::string(layers) + "}");
    CHECK(heads_of(glm) == "32 2 128");
    CHECK(glm.model["groups"][0]["layers"].size() == std::stoul(layers));
    CHECK(glm.model["groups"][0]["rotary_dim"] == 64);
    CHECK(glm.model["rotary"] == "interleaved");
    CHECK(glm.model["max_tokens"] == 8192);
  }
  CHECK(heads_of(spec_from(R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48})")) == "48 1 128");
  CHECK(heads_of(spec_from(R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48,
    "attn_config": {"kv_n_heads": 8}})")) == "48 8 128");
}

TEST_CASE("what a config leaves out is its family's default, and is said") {
  const Said gemma = spec_from(R"({"model_type": "gemma3", "hidden_size": 1, "text_config": {"hidden_size": 3840,
    "model_type": "gemma3_text", "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8,
    "sliding_window": 1024}})");
  REQUIRE(gemma.model["groups"].size() == 2);
  CHECK(gemma.model["groups"][0]["head_dim"] == 256);
  CHECK(gemma.model["groups"][0]["window"] == 1024);
  CHECK(gemma.model["groups"][0]["layers"].size() == 40);
  CHECK(gemma.model["groups"][1]["window"] == 0);
  CHECK(contains(gemma.err, "  layers with a sliding window of 1024 keys (40 of 48)\n"));
  CHECK(contains(gemma.err, "  not in the file, and assumed: head_dim 256, max_position_embeddings 131072\n"));
  // Of the text model, not of the config around it, which is another model's.
  const Said smallest = spec_from(R"({"model_type": "gemma3", "hidden_size": 1, "num_attention_heads": 99})");
  CHECK(smallest.model["groups"][0]["heads_q"] == 99);
  const Said inner = spec_from(R"({"model_type": "gemma3", "num_attention_heads": 99, "text_config": {}})");
  CHECK(inner.model["groups"][0]["heads_q"] == 8);
  CHECK(inner.model["groups"][0]["heads_kv"] == 4);
  // Llama 2 names no rotation, and has one.
  CHECK(spec_from(R"({"model_type": "llama"})").model["groups"][0]["rotary_dim"] == 128);
}

TEST_CASE("null is no missing field: Mistral's window is on by default, and null switches it off") {
  const Said omitted = spec_from(R"({"model_type": "mistral"})");
  CHECK(omitted.model["groups"][0]["window"] == 4096);
  CHECK(contains(omitted.err, "sliding_window 4096"));
  CHECK(spec_from(R"({"model_type": "mistral", "sliding_window": null})").model["groups"][0]["window"] == 0);
  CHECK(spec_from(R"({"model_type": "mistral", "sliding_window": 0})").model["groups"][0]["window"] == 0);
  CHECK(heads_of(spec_from(R"({"model_type": "mistral", "num_key_value_heads": null})")) == "32 32 128");
  CHECK(spec_from(R"({"model_type": "gemma2"})").model["groups"][0]["softcap"] == 50);
  CHECK(spec_from(R"({"model_type": "gemma2", "attn_logit_softcapping": null})").model["groups"][0]["softcap"] == 0);
}

TEST_CASE("what no kernel has is named, and where every layer needs it there are no specs") {
  const TemporaryFolder folder;
  const std::string rw = folder.file("rw.json", R"({"model_type": "falcon", "hidden_size": 2048,
    "num_attention_heads": 32, "multi_query": false, "alibi": true})");
  const std::string out = (folder.path() / "specs").string();
  const ToolResult refused = attune_tool({"spec-from", rw, "--arch", "sm_90", "-o", out});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "attune: " + rw + ": no kernel can serve falcon: ALiBi"));
  CHECK_FALSE(std::filesystem::exists(out));
  const auto reason = [](const char* config) {
    const Said said = spec_from(config);
    CHECK(said.exit_code == 1);
    CHECK(said.model["served"] == false);
    return said.err;
  };
  CHECK(contains(reason(R"({"model_type": "bloom", "n_embed": 1024, "num_attention_heads": 16})"), "ALiBi"));
  CHECK(contains(reason(R"({"model_type": "mpt"})"), "ALiBi"));
  CHECK(contains(reason(R"({"model_type": "mamba"})"), "a state in place of attention"));
  CHECK(contains(reason(R"({"model_type": "chatglm", "position_encoding_2d": true})"), "later keys"));
  // Of types that are not known too, by their fields.
  const std::string heads = R"("num_attention_heads": 4, "head_dim": 64)";
  CHECK(contains(reason((R"({"model_type": "x", "use_alibi": true, )" + heads + "}").c_str()), "ALiBi"));
  CHECK(contains(reason((R"({"relative_attention_num_buckets": 32, )" + heads + "}").c_str()),
                 "a bias that is looked up"));
  CHECK(contains(reason((R"({"layer_types": ["linear_attention"], )" + heads + "}").c_str()), "linear_attention"));
  // Beside what kernels serve.
  const Said sinks = spec_from(R"({"model_type": "gpt_oss", "num_hidden_layers": 24})");
  CHECK(sinks.exit_code == 0);
  CHECK(contains(sinks.err,
                 "attention sinks (a logit of each head in the softmax's sum) are in no spec that is made of a model"));
  const Said chunks = spec_from(R"({"model_type": "llama4_text"})");
  CHECK(chunks.exit_code == 0);
  CHECK(contains(chunks.err, "layers of type chunked_attention have no kernels here and are left out (36 of 48)"));
  const Said wide = spec_from(R"({"model_type": "gemma4_text"})");
  CHECK(wide.exit_code == 0);
  CHECK(contains(wide.err,
                 "layers of type full_attention (5 of 30) have 8 query heads and 4 K/V heads (2 to one), "
                 "head_dim 512\n"));
  CHECK(contains(wide.err, "left out (5 of 30): head_dim is 512"));
}

TEST_CASE("a model_type that is not known is said to be, with what was assumed") {
  const Said said = spec_from(R"({"model_type": "novel", "hidden_size": 4096, "num_attention_heads": 32})");
  CHECK(said.exit_code == 0);
  CHECK(said.model["known"] == false);
  CHECK(contains(said.err, "this model_type is unknown here, and its fields are read as most models have them"));
  CHECK(contains(said.err,
                 "not in the file, and assumed: num_key_value_heads 32 (as many as query heads), "
                 "head_dim 128 (hidden_size by num_attention_heads), max_position_embeddings 131072"));
  CHECK_FALSE(contains(spec_from(R"({"model_type": "llama"})").err, "unknown"));
}

TEST_CASE("Python's Infinity and numbers beyond a double stand where nobody reads, and are named where they are read") {
  const std::string heads = R"("model_type": "jamba", "time_step_limit": [0.0, Infinity], "a": -Infinity, "b": NaN,
    "c": 1e999, "d": "Infinity \" 1e999", )";
  CHECK(spec_from("{" + heads + R"("num_attention_heads": 16})").exit_code == 0);
  const auto refusal = [&](const std::string& field) {
    const Said said = spec_from("{" + heads + field + "}");
    CHECK(said.exit_code == 2);
    return said.err;
  };
  CHECK(contains(refusal(R"("attn_logit_softcapping": Infinity)"), "attn_logit_softcapping is no number"));
  CHECK(contains(refusal(R"("attn_logit_softcapping": 1e999)"), "attn_logit_softcapping is no number"));
  CHECK(contains(refusal(R"("num_attention_heads": NaN)"), "num_attention_heads is no count"));
  CHECK(
      contains(refusal(R"("num_attention_heads": 123456789012345678901234567890)"), "num_attention_heads is no count"));
  CHECK(contains(refusal("\n\"e\": Infinite"), "config.json:3:"));
}

TEST_CASE("sizes beyond any model's are refused in no time, by the name of their field") {
  const auto start = std::chrono::steady_clock::now();
  const auto refusal = [](const json& config) {
    const Said said = spec_from(config.dump());
    CHECK(said.exit_code == 2);
    return said.err;
  };
  const json llama{{"model_type", "llama"}, {"num_attention_heads", 32}, {"head_dim", 128}};
  const auto with = [&](const char* key, const json& value) {
    json config = llama;
    config[key] = value;
    return config;
  };
  CHECK(contains(refusal(with("layer_types", std::vector<std::string>(200'000, "full_attention"))),
                 "layer_types has 200000 entries; one for each layer, of which there are at most 4096"));
  CHECK(contains(refusal(with("num_hidden_layers", 1'000'000'000)), "num_hidden_layers is 1000000000; at most 4096"));
  CHECK(contains(refusal(with("num_attention_heads", 1 << 30)),
                 "num_attention_heads is 1073741824, of head_dim 128; their product is at most 2147483647"));
  CHECK(contains(refusal({{"model_type", "deepseek_v3"}, {"qk_nope_head_dim", 1 << 30}, {"qk_rope_head_dim", 1 << 30}}),
                 "qk_nope_head_dim 1073741824"));
  CHECK(contains(refusal({{"model_type", "gpt_neo"}, {"attention_types", {{{"global", "local"}, 4096}}}}),
                 "attention_types"));
  CHECK(contains(refusal({{"model_type", "llama"}, {"num_hidden_layers", 3}, {"layer_types", {"full_attention"}}}),
                 "num_hidden_layers is 3, and the list of layers has 1"));
  json own = llama;
  for (int i = 0; i < 100; ++i) own["per_layer_config"][std::to_string(i)] = {{"num_key_value_heads", i + 1}};
  own["num_hidden_layers"] = 100;
  CHECK(contains(refusal(own), "its layers are of more than 64 shapes"));
  own["num_hidden_layers"] = 10;
  CHECK(contains(refusal(own), "per_layer_config has '"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(ATTUNE_SANITIZED ? 60 : 10));
}
