// What is committed is what is generated today: generated/, the schema, the shipped specs.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "generator/expand.hpp"
#include "generator/key_reference.hpp"
#include "generator/schema.hpp"
#include "tests/harness/shipped_specs.hpp"

namespace {

using namespace attune;

const std::filesystem::path source_dir = ATTUNE_SOURCE_DIR;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

template <class T>
T value_of(const Result<T>& result) {
  for (const Diagnostic& problem : result.problems) FAIL_CHECK(problem.text());
  REQUIRE(result.ok());
  return result.value;
}

TemplateFiles shipped_templates() { return value_of(read_templates(source_dir / "templates")); }

std::vector<Wanted> shipped_variants() { return value_of(collect(testing::shipped_specs())).wanted; }

TEST_CASE("generated/ holds exactly what is emitted today (else: attune-gen golden)") {
  std::vector<std::filesystem::path> specs = testing::shipped_specs();
  specs.insert(specs.begin(), source_dir / "specs/quickstart.yaml");
  const auto wanted = value_of(golden_variants(specs));
  CHECK(wanted.size() == families().size() + 1);  // the quickstart has two of one family
  // What is shown of a family is shipped, where any of it is.
  const std::vector<Wanted> shipped = shipped_variants();
  for (const Wanted& one : wanted) {
    CAPTURE(one.variant.name());
    const auto of_family = [&](const Wanted& other) { return other.variant.family == one.variant.family; };
    const auto same = [&](const Wanted& other) { return other.variant == one.variant; };
    CHECK(std::ranges::any_of(shipped, same) == std::ranges::any_of(shipped, of_family));
  }
  std::set<std::string> expected;
  for (const Source& source : value_of(emit_all(wanted, shipped_templates()))) {
    CAPTURE(source.name);
    expected.insert(source.name + ".cu");
    const bool current = read_text(source_dir / "generated" / (source.name + ".cu")) == source.text;
    CHECK(current);
  }
  std::set<std::string> present;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir / "generated")) {
    if (entry.path().extension() == ".cu") present.insert(entry.path().filename().string());
  }
  CHECK(present == expected);
}

TEST_CASE("the kernel section of every shipped source is shorter than 300 lines") {
  std::vector<std::filesystem::path> specs;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir / "specs")) {
    if (entry.path().extension() == ".yaml") specs.push_back(entry.path());
  }
  const Collection collected = value_of(collect(specs, std::array{source_dir / "specs/tuned/h200.yaml"}));
  CHECK(collected.wanted.size() >= 200);
  for (const Source& source : value_of(emit_all(collected.wanted, shipped_templates()))) {
    CAPTURE(source.name);
    const std::string head = "// --- " + std::string(family_of(source.variant).name) + ".cu ";
    const std::size_t kernel = source.text.find(head);
    REQUIRE(kernel != std::string::npos);
    CHECK(std::count(source.text.begin() + static_cast<std::ptrdiff_t>(kernel), source.text.end(), '\n') < 300);
  }
}

TEST_CASE("specs/attune.schema.json is what the table says today (else: attune-gen schema)") {
  const bool current = read_text(source_dir / "specs/attune.schema.json") == json_schema();
  CHECK(current);
}

TEST_CASE("specs/README.md has the keys that the table has today (else: attune-gen keys --out specs/README.md)") {
  const std::string page = read_text(source_dir / "specs/README.md");
  const bool current = page == value_of(with_key_reference(page, "specs/README.md"));
  CHECK(current);
}

TEST_CASE("the reference has a row for every key, and a page without a place for it is refused") {
  const std::string reference = key_reference();
  for (const Field& field : fields()) CHECK(reference.find(fmt::format("\n| `{}` | ", field.key)) != std::string::npos);
  for (const Family& family : families())
    CHECK(reference.find(fmt::format("\n| `{}` | ", family.name)) != std::string::npos);
  for (const char* page : {"", "<!-- keys -->\n", "<!-- end of keys -->\n<!-- keys -->\n"}) {
    CAPTURE(page);
    CHECK(with_key_reference(page, "page.md").problems.size() == 1);
  }
  CHECK(value_of(with_key_reference("a\n<!-- keys -->\nold\n<!-- end of keys -->\nb\n", "page.md")) ==
        "a\n<!-- keys -->\n" + reference + "\n<!-- end of keys -->\nb\n");
}

TEST_CASE("the schema knows every key of a spec") {
  const std::string schema = json_schema();
  for (const Field& field : fields()) {
    CHECK(schema.find("\"#/definitions/" + std::string(field.key) + "\"") != std::string::npos);
  }
  for (const char* key : {"\"template\": {", "\"arch\": {", "\"variants\": {", "\"exclude\": {"}) {
    CHECK(schema.find(key) != std::string::npos);
  }
}

TEST_CASE("the schema allows each template its own keys, and says where defaults differ") {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  REQUIRE(schema["allOf"].size() == families().size());
  for (std::size_t i = 0; i < families().size(); ++i) {
    const nlohmann::json& rule = schema["allOf"][i];
    CHECK(rule["if"]["properties"]["template"]["const"] == families()[i].name);
    const nlohmann::json& allowed = rule["then"]["propertyNames"]["enum"];
    CHECK(allowed.size() == families()[i].keys.size() + 5);
    for (const std::string_view key : families()[i].keys) {
      CHECK(std::any_of(allowed.begin(), allowed.end(), [&](const nlohmann::json& one) { return one == key; }));
    }
  }
  const nlohmann::json& definitions = schema["definitions"];
  CHECK_FALSE(definitions["B_c"].contains("default"));
  CHECK(definitions["B_c"]["description"].get<std::string>().ends_with(
      "default 64 in prefill_sm80, 128 in prefill_sm90, 64 in decode_sm80, 128 in backward_sm80, 64 in "
      "backward_dq_sm80, 64 in prefill_fa1_sm80, 128 in backward_sm90"));
  const auto warps = definitions["warps"]["description"].get<std::string>();
  CHECK(warps.find("; prefill_sm80, decode_sm80, combine, store_kv, ") != std::string::npos);
  CHECK(warps.find(" only; default 4 in prefill_sm80, 4 in decode_sm80, 8 in combine, 4 in ") != std::string::npos);
  CHECK(warps.find("prefill_sm90") == std::string::npos);
  CHECK(definitions["rescale_bound"]["default"] == 0);
  CHECK(definitions["head_dim"]["default"] == 128);
}

TEST_CASE("every shipped variant is emitted, as one file without includes") {
  const TemplateFiles templates = shipped_templates();
  const auto wanted = shipped_variants();
  const auto sources = value_of(emit_all(wanted, templates));
  CHECK(sources.size() == wanted.size());
  for (const Source& source : sources) {
    CHECK(source.name == source.variant.name());
    const bool self_contained = source.text.find("#include") == std::string::npos;
    CHECK(self_contained);
  }
}

TEST_CASE("a 0 that stands for no word is a number like any other") {
  Variant variant = families()[prefill_sm90].defaults;
  variant.rescale_bound = 0;
  const Source source = value_of(emit(variant, shipped_templates(), "some"));
  CHECK(source.text.find("constexpr int rescale_bound = 0; ") != std::string::npos);
}

TEST_CASE("every head_dim has a shipped kernel that fits 99 KB of shared memory") {
  const auto wanted = shipped_variants();
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const int causal : {0, 1}) {
      for (const int dtype : {0, 1}) {
        const bool served = std::ranges::any_of(wanted, [&](const Wanted& entry) {
          return family_of(entry.variant).operation == Operation::prefill && entry.variant.head_dim >= head_dim &&
                 entry.variant.causal == causal && entry.variant.dtype == dtype &&
                 resources(entry.variant).shared_bytes <= 99 * 1024;
        });
        CHECK_MESSAGE(served, "head_dim " << head_dim << " causal " << causal << " dtype " << dtype);
      }
    }
  }
}

TEST_CASE("two specs that name the same variant get one kernel for the GPUs of both") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "attune_generator_collect_test";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& arch) {
    std::ofstream(folder / name) << "template: prefill_sm80\narch: " << arch << "\n";
    return folder / name;
  };
  const std::vector specs{write("a.yaml", "sm_80"), write("b.yaml", "[sm_80, sm_90]"), write("c.yaml", "any")};
  const auto two = value_of(collect(std::span(specs).first(2))).wanted;
  const auto three = value_of(collect(specs)).wanted;
  std::filesystem::remove_all(folder);
  REQUIRE(two.size() == 1);
  CHECK(two[0].spec == "a");
  CHECK(two[0].variant.arch == (1U << 0U | 1U << 4U));
  REQUIRE(three.size() == 1);
  CHECK(three[0].variant.arch == 0);
}

TEST_CASE("the problems of several specs are reported together") {
  const auto result = collect(std::vector<std::filesystem::path>{"no/a.yaml", "no/b.yaml"});
  CHECK(result.problems.size() == 2);
}

}  // namespace
