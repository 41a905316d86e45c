// attune spec-from: records and model configs into specs that the tool takes, and what it says about files that are
// neither.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cli/tool.hpp"

using namespace attune::testing;
namespace fs = std::filesystem;

namespace {

// The keys that decide, of well-known models.
constexpr const char* llama3_8b = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
  "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0,
  "torch_dtype": "bfloat16", "vocab_size": 128256})";
constexpr const char* qwen25_7b = R"({"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
  "num_key_value_heads": 4, "max_position_embeddings": 32768, "max_window_layers": 28, "sliding_window": 131072,
  "use_sliding_window": false, "rope_theta": 1000000.0, "torch_dtype": "bfloat16"})";
constexpr const char* gemma2_9b = R"({"model_type": "gemma2", "hidden_size": 3584, "head_dim": 256,
  "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": 8192, "sliding_window": 4096,
  "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256, "rope_theta": 10000.0, "torch_dtype": "float32"})";
constexpr const char* mistral_7b = R"({"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32,
  "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": 4096, "rope_theta": 10000.0,
  "torch_dtype": "bfloat16"})";
constexpr const char* deepseek_v3 = R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128,
  "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840, "rope_theta": 10000,
  "torch_dtype": "bfloat16"})";

constexpr const char* record =
    R"({"operation":"prefill","dtype":"bf16","batch":2,"heads_q":32,"heads_kv":8,"seqlen_q":1000,"seqlen_k":1000,)"
    R"("head_dim":128,"causal":true,"calls":1}
{"operation":"decode","dtype":"bf16","batch":8,"seqlen_q":1,"heads_q":32,"heads_kv":8,"head_dim":128,)"
    R"("max_seqlen_k":4096,"page_size":16,"pages":2048,"table_width":256,"window_right":0,"calls":1}
{"operation":"decode","dtype":"bf16","batch":8,"seqlen_q":1,"heads_q":32,"heads_kv":8,"head_dim":128,)"
    R"("max_seqlen_k":5000,"page_size":16,"pages":2048,"table_width":400,"window_right":0,"calls":3199}
)";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// spec-from of one file, as JSON; and `attune generate` of what it wrote makes as many sources.
nlohmann::json specs_from(const TemporaryFolder& folder, const std::string& file, std::vector<std::string> more = {}) {
  const std::string out = (folder.path() / "specs").string();
  std::vector<std::string> arguments{"spec-from", file, "-o", out, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ToolResult made = attune_tool(arguments);
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  auto json = parsed_json(made.out);
  std::vector<std::string> generate{"generate", "--out", (folder.path() / "kernels").string(), "--json"};
  for (const auto& spec : json["specs"]) generate.push_back(out + "/" + spec["name"].get<std::string>());
  const ToolResult generated = attune_tool(generate);
  CAPTURE(generated.err);
  REQUIRE(generated.exit_code == 0);
  CHECK(parsed_json(generated.out)["variants"] == json["kernels"].size());
  return json;
}

/// How many kernels' names have this part.
int kernels_with(const nlohmann::json& json, const std::string& part) {
  int count = 0;
  for (const auto& kernel : json["kernels"]) count += contains(kernel["variant"].get<std::string>(), part) ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("a record becomes one spec a template, which says what it was made of and which generate takes") {
  const TemporaryFolder folder;
  const std::string file = folder.file("calls.jsonl", record);
  const nlohmann::json json = specs_from(folder, file, {"--arch", "sm_90"});
  CHECK(json["problems"] == 2);
  CHECK(json["calls"] == 3201);
  CHECK(json["unserved"].empty());
  CHECK(json["estimated_seconds"] > 0.1);
  CHECK(json["estimated_bytes"] > 10'000);
  REQUIRE(json["specs"].size() == 3);
  const std::string decode = text_of(folder.path() / "specs/decode_sm80.yaml");
  CHECK(contains(decode, "# Made by attune spec-from for sm_90, of\n#   " + file + ": 2 problems, 3201 calls\n\n"));
  CHECK(contains(decode, "\ntemplate: decode_sm80\narch: sm_90\ndtype: bf16\nhead_dim: 128\n"));
  CHECK(contains(decode, "\npaged: true\n"));
  CHECK(fs::exists(folder.path() / "specs/combine.yaml"));
  CHECK(fs::exists(folder.path() / "specs/prefill_sm90.yaml"));
}

TEST_CASE("recorded scores, masks and sinks are those of the specs' kernels") {
  const TemporaryFolder folder;
  const std::string file = folder.file(
      "calls.jsonl",
      R"({"operation":"prefill","dtype":"bf16","batch":2,"heads_q":8,"heads_kv":8,"seqlen_q":1000,"seqlen_k":1000,)"
      R"("head_dim":128,"causal":true,"score":"s + slope[h] * (k - p) where slope: fp32[head]",)"
      R"("mask":"doc[b, p] == doc[b, k] where doc: int32[batch, position]","calls":3})"
      "\n"
      R"({"operation":"decode","dtype":"bf16","batch":8,"seqlen_q":1,"heads_q":32,"heads_kv":8,"head_dim":128,)"
      R"("max_seqlen_k":4096,"page_size":16,"pages":2048,"table_width":256,"window_right":0,"sink":true,"calls":1})"
      "\n");
  const nlohmann::json json = specs_from(folder, file, {"--arch", "sm_90"});
  CHECK(kernels_with(json, "_score_slope") == 1);
  CHECK(kernels_with(json, "_mask_doc") == 2);  // attention, and what finds its blocks
  CHECK(kernels_with(json, "_sink") == 1);
}

TEST_CASE("for a person it lists each kernel with its share of the calls, and what building will cost") {
  const TemporaryFolder folder;
  const std::string file = folder.file("calls.jsonl", record);
  const std::string out = (folder.path() / "specs").string();
  const ToolResult result = attune_tool({"spec-from", file, "--arch", "sm_90", "--arch", "sm_80", "--out", out});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "kernel "));
  CHECK(contains(result.out, "  sm_80 sm_90         1   3200\n"));
  CHECK(contains(result.out, " to compile on one core and "));
  CHECK(contains(result.out, "wrote " + out + "/decode_sm80.yaml (1 kernel)\n"));
  // Without a folder the specs alone are on stdout.
  const ToolResult printed = attune_tool({"spec-from", file, "--arch", "sm_90"});
  CHECK(printed.exit_code == 0);
  CHECK(printed.out.starts_with("# prefill_sm90.yaml\n# Made by attune spec-from"));
  CHECK(contains(printed.err, "kernel "));
}

TEST_CASE("records of several processes add up") {
  const TemporaryFolder folder;
  const ToolResult result = attune_tool(
      {"spec-from", folder.file("a.jsonl", record), folder.file("b.jsonl", record), "--arch", "sm_90", "--json"});
  CHECK(result.exit_code == 0);
  const auto json = parsed_json(result.out);
  CHECK(json["problems"] == 2);
  CHECK(json["calls"] == 6402);
  CHECK(json["from"].size() == 2);
  CHECK(contains(json["specs"][0]["text"].get<std::string>(), "template: "));
}

TEST_CASE("Llama 3: grouped heads, causal prefill and decode of head_dim 128, keys rotated by halves") {
  const TemporaryFolder folder;
  const std::string file = folder.file("config.json", llama3_8b);
  const nlohmann::json json = specs_from(folder, file, {"--arch", "sm_90"});
  CHECK(kernels_with(json, "prefill") >= 1);
  CHECK(kernels_with(json, "prefill") == kernels_with(json, "prefill_sm90_bf16_d128_"));
  CHECK(kernels_with(json, "_causal") == kernels_with(json, "prefill"));
  CHECK(kernels_with(json, "decode_sm80_bf16_d128_r16_") == 2);
  CHECK(kernels_with(json, "rotary_halves") == 2);
  CHECK(kernels_with(json, "combine") == 1);
  CHECK(kernels_with(json, "store_kv") == 2);
  CHECK(kernels_with(json, "paged") == 0);
  CHECK(kernels_with(json, "ragged") == 0);
  const ToolResult result = attune_tool({"spec-from", file, "--arch", "sm_90", "-o", (folder.path() / "p").string()});
  CHECK(contains(result.out,
                 "llama: 32 query heads and 8 K/V heads (4 to one), head_dim 128, bf16, up to 8192 tokens\n"
                 "  rotary embedding of 128 columns (halves)\n"));
}

TEST_CASE("for serving there are ragged batches, pages and merges too") {
  const TemporaryFolder folder;
  const nlohmann::json json =
      specs_from(folder, folder.file("config.json", llama3_8b), {"--arch", "sm_90", "--serving"});
  CHECK(kernels_with(json, "_causal_ragged") == 2);  // which tile is the tuned table's affair
  CHECK(kernels_with(json, "_paged_page16_causal_ragged") == 1);
  CHECK(kernels_with(json, "decode_sm80") == 6);
  CHECK(kernels_with(json, "decode_sm80_bf16_d128_r32_c64_w4_s2_ragged") == 1);
  CHECK(kernels_with(json, "combine_bf16_d128_w8_ragged") == 1);
  CHECK(kernels_with(json, "merge_states") == 1);
}

TEST_CASE("a window that the config switches off is none, others have kernels beside the causal ones") {
  const TemporaryFolder folder;
  CHECK(kernels_with(specs_from(folder, folder.file("qwen.json", qwen25_7b), {"--arch", "sm_80"}), "window") == 0);
  const nlohmann::json mistral = specs_from(folder, folder.file("mistral.json", mistral_7b), {"--arch", "sm_80"});
  CHECK(kernels_with(mistral, "window") == 1);
  CHECK(kernels_with(mistral, "causal") == 1);
  nlohmann::json layers = parsed_json(mistral_7b);
  layers["layer_types"] = {"full_attention", "full_attention"};
  CHECK(kernels_with(specs_from(folder, folder.file("full.json", layers.dump()), {"--arch", "sm_80"}), "window") == 0);
  layers["layer_types"] = {"full_attention", "sliding_attention", "linear_attention"};
  const std::string mixed = folder.file("mixed.json", layers.dump());
  CHECK(kernels_with(specs_from(folder, mixed, {"--arch", "sm_80"}), "window") == 1);
  CHECK(contains(attune_tool({"spec-from", mixed, "--arch", "sm_80"}).err,
                 "layers of type linear_attention have no kernels here and are left out"));
}

TEST_CASE("Gemma 2: soft caps in every kernel of attention, and a dtype that no kernel has is said") {
  const TemporaryFolder folder;
  const std::string file = folder.file("config.json", gemma2_9b);
  const nlohmann::json json = specs_from(folder, file, {"--arch", "sm_90"});
  CHECK(kernels_with(json, "softcap") == kernels_with(json, "prefill") + kernels_with(json, "decode"));
  CHECK(kernels_with(json, "window") >= 1);
  CHECK(kernels_with(json, "_d256_") >= 4);
  const std::string said = attune_tool({"spec-from", file, "--arch", "sm_90"}).err;
  CHECK(contains(said, "its dtype is float32, which no kernel has; taken as bf16 (--dtype)"));
  CHECK(contains(said, "scores capped at 50"));
  CHECK(contains(said, "layers with a sliding window of 4096 keys"));
  const nlohmann::json fp16 = specs_from(folder, file, {"--arch", "sm_90", "--dtype", "fp16"});
  CHECK(kernels_with(fp16, "_fp16_") == static_cast<int>(fp16["kernels"].size()));
}

TEST_CASE("DeepSeek V3: prefill of 192 and 128 columns, and that its latent cache has no kernels") {
  const TemporaryFolder folder;
  const std::string file = folder.file("config.json", deepseek_v3);
  const nlohmann::json json = specs_from(folder, file, {"--arch", "sm_90"});
  REQUIRE(json["kernels"].size() == 1);
  CHECK(contains(json["kernels"][0]["variant"].get<std::string>(), "prefill_sm90_bf16_d192_v128_"));
  const ToolResult said = attune_tool({"spec-from", file, "--arch", "sm_90"});
  CHECK(contains(said.err, "head_dim 192 and 128 of V"));
  CHECK(contains(said.err, "latent vectors (MLA)"));
  const ToolResult older = attune_tool({"spec-from", file, "--arch", "sm_80"});
  CHECK(older.exit_code == 1);
  CHECK(contains(older.err, "on sm_80: head_dim_v: "));
}

TEST_CASE("the text model of a multimodal config counts, and so does a rotation of some columns") {
  const TemporaryFolder folder;
  const std::string file = folder.file("config.json", R"({"model_type": "glimpse", "torch_dtype": "float16",
    "hidden_size": 1, "vision_config": {"num_attention_heads": 3}, "text_config": {"model_type": "glm",
    "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 6144,
    "partial_rotary_factor": 0.5, "max_position_embeddings": 131072}})");
  const nlohmann::json json = specs_from(folder, file, {"--arch", "sm_86"});
  CHECK(kernels_with(json, "fp16_d128") >= 3);
  CHECK(kernels_with(json, "rotary_interleaved") == 2);
  const std::string said = attune_tool({"spec-from", file, "--arch", "sm_86"}).err;
  CHECK(contains(said, "glm: 48 query heads and 8 K/V heads (6 to one), head_dim 128, fp16, up to 131072 tokens"));
  CHECK(contains(said, "rotary embedding of 64 columns (interleaved)"));
}

TEST_CASE("files that are no record and no config are bad usage, each with what is wrong") {
  const TemporaryFolder folder;
  const auto said = [&](const std::string& text) {
    const std::string out = (folder.path() / "out").string();
    const ToolResult result = attune_tool({"spec-from", folder.file("f.json", text), "-o", out, "--arch", "sm_90"});
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_FALSE(fs::exists(out));
    return result.err;
  };
  const std::string file = (folder.path() / "f.json").string();
  CHECK(contains(said(""), file + ": no call is recorded here"));
  CHECK(contains(said("{\"a\": 1,\n \"b\" 2}"), file + ":2:6: this is neither a record of calls nor JSON"));
  CHECK(contains(said("[1]"), "the JSON is no object"));
  CHECK(contains(said("{}"), "num_attention_heads is missing; a decoder's config.json has it"));
  CHECK(contains(said(R"({"num_attention_heads": 4})"), "hidden_size is missing"));
  CHECK(contains(said(R"({"num_attention_heads": "4", "head_dim": 64})"),
                 "num_attention_heads is no count: \"4\"; a whole number from 1"));
  CHECK(contains(said(R"({"num_attention_heads": 4, "head_dim": 512})"), "head_dim is 512; it must be from 1 to 256"));
  CHECK(contains(said(R"({"num_attention_heads": 4, "num_key_value_heads": 3, "head_dim": 64})"), "heads_kv is 3"));
  CHECK(contains(said(R"({"num_attention_heads": 3, "hidden_size": 64})"), "no multiple of num_attention_heads 3"));
  CHECK(contains(said(std::string(record) + "{}\n"), file + ":4:1: operation is none that is known"));
  CHECK(attune_tool({"spec-from"}).exit_code == 2);
  CHECK(contains(attune_tool({"spec-from", "/nowhere"}).err, "/nowhere: there is no such file"));
}
