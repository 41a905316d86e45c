// Reading specs: what is accepted, and that everything else is reported at its place.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "generator/spec.hpp"

namespace {

using namespace attune;

std::string problems_of(std::string_view text) {
  std::string all;
  for (const Diagnostic& problem : parse_spec(text, "s.yaml").problems) all += problem.text() + "\n";
  return all;
}

Spec parsed(std::string_view text) {
  const Result<Spec> result = parse_spec(text, "specs/some.yaml");
  for (const Diagnostic& problem : result.problems) FAIL_CHECK(problem.text());
  return result.value;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A file that the test removes again.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / "attune_generator_spec_test.yaml") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile(TemporaryFile&&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The names of all families, each as this says.
std::string families_text(const char* pattern, std::string_view between) {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(fmt::format(fmt::runtime(pattern), family.name));
  return fmt::format("{}", fmt::join(names, between));
}

TEST_CASE("a spec keeps its lists, rows and places") {
  const Spec spec = parsed(
      "template: prefill_sm80\n"
      "arch: [sm_80, sm_90]\n"
      "causal: [false, true]\n"
      "gqa_ratio: any\n"
      "Q_fragment_tiles: [whole, 2]\n"
      "variants:\n"
      "  - {head_dim: 64, B_r: [64, 128]}\n"
      "  - head_dim: 128\n"
      "exclude:\n"
      "  - {head_dim: 64, causal: true}\n");
  CHECK(spec.name == "some");
  CHECK(spec.file == "specs/some.yaml");
  CHECK(spec.family == 0);
  CHECK(spec.arch == (1U << 0U | 1U << 4U));
  CHECK(spec.common.keys.at("causal").values == std::vector{0, 1});
  CHECK(spec.common.keys.at("gqa_ratio").values == std::vector{0});
  CHECK(spec.common.keys.at("Q_fragment_tiles").values == std::vector{0, 2});
  CHECK(spec.common.keys.at("causal").where.line == 3);
  CHECK(spec.common.keys.at("causal").where.column == 1);
  REQUIRE(spec.rows.size() == 2);
  CHECK(spec.rows[0].keys.at("B_r").values == std::vector{64, 128});
  CHECK(spec.rows[0].keys.at("B_r").where.column == 20);
  CHECK(spec.rows[1].keys.at("head_dim").where.line == 8);
  REQUIRE(spec.excludes.size() == 1);
  CHECK(spec.excludes[0].where.line == 10);
}

TEST_CASE("arch defaults to any, which is the empty set") {
  CHECK(parsed("template: prefill_sm80\n").arch == 0);
  CHECK(parsed("template: prefill_sm80\narch: any\n").arch == 0);
  CHECK(parsed("template: prefill_sm80\narch: sm_86\n").arch == 2);
}

TEST_CASE("quotes, comments and carriage returns do not matter") {
  const Spec spec = parsed("# c\r\n'template': \"prefill_sm80\" # c\r\nB_r: \"64\"\r\n");
  CHECK(spec.common.keys.at("B_r").values == std::vector{64});
}

TEST_CASE("an unknown word gets the nearest right one") {
  CHECK(problems_of("template: prefil_sm80\n") ==
        "s.yaml:1:11: there is no template 'prefil_sm80'; did you mean prefill_sm80?\n");
  CHECK(problems_of("template: prefill_sm80\nhead_dims: 64\n") ==
        "s.yaml:2:1: unknown key 'head_dims'; did you mean head_dim?\n");
  CHECK(problems_of("template: prefill_sm80\nexcludes: 64\n") ==
        "s.yaml:2:1: unknown key 'excludes'; did you mean exclude?\n");
  CHECK(problems_of("template: prefill_sm80\ntile_list: true\n") ==
        "s.yaml:2:1: unknown key 'tile_list'; prefill_sm80 has none; templates that do: prefill_sm90\n");
  CHECK(problems_of("template: prefill_sm80\nb_c: 64\n") == "s.yaml:2:1: unknown key 'b_c'; did you mean B_c?\n");
  CHECK(problems_of("template: prefill_sm80\ndtype: [fp16, b16]\n") ==
        "s.yaml:2:15: 'b16' is not a value of dtype; did you mean bf16? (fp16 or bf16)\n");
  CHECK(problems_of("template: prefill_sm80\narch: sm90\n") ==
        "s.yaml:2:7: there is no arch 'sm90'; did you mean sm_90?\n");
}

TEST_CASE("an unknown word that is near to nothing gets the list") {
  CHECK(problems_of("template: prefill_sm80\nflavour: 64\n").find("keys are dtype, head_dim, B_r") !=
        std::string::npos);
  CHECK(problems_of("template: decode\n") ==
        fmt::format("s.yaml:1:11: there is no template 'decode'; templates are {}\n", families_text("{}", ", ")));
}

TEST_CASE("a wrong value says what is accepted") {
  const std::string head = "template: prefill_sm80\n";
  CHECK(problems_of(head + "B_r: 100\n") ==
        "s.yaml:2:6: '100' is not a value of B_r; did you mean 128? (a multiple of 16 from 16 to 256)\n");
  CHECK(problems_of(head + "B_r: 512\n") ==
        "s.yaml:2:6: '512' is not a value of B_r; did you mean 128? (a multiple of 16 from 16 to 256)\n");
  CHECK(problems_of(head + "head_dim: -64\n") ==
        "s.yaml:2:11: '-64' is not a value of head_dim; did you mean 16? (a multiple of 16 from 16 to 256)\n");
  CHECK(problems_of(head + "warps: 4.0\n") ==
        "s.yaml:2:8: '4.0' is not a value of warps; a whole number from 1 to 16\n");
  CHECK(problems_of(head + "causal: yes\n") ==
        "s.yaml:2:9: 'yes' is not a value of causal; did you mean true? (false or true)\n");
  CHECK(problems_of(head + "gqa_ratio: 0\n") ==
        "s.yaml:2:12: '0' is not a value of gqa_ratio; did you mean 1? (any or a whole number from 1 to 256)\n");
  CHECK(problems_of(head + "V_fragment_tiles: all\n") ==
        "s.yaml:2:19: 'all' is not a value of V_fragment_tiles; whole or a whole number from 1 to 16\n");
}

TEST_CASE("a hint names what can be built and serves what was asked for") {
  const auto hint = [](const std::string& line) { return problems_of("template: prefill_sm80\n" + line + "\n"); };
  CHECK(hint("head_dim: 72").find("did you mean 80?") != std::string::npos);
  CHECK(hint("head_dim: 100").find("did you mean 112?") != std::string::npos);
  CHECK(hint("head_dim: 300") ==
        "s.yaml:2:11: '300' is not a value of head_dim; a multiple of 16 from 16 to 256\n");  // which none serves
  CHECK(hint("dtype: torch.bfloat16").find("did you mean bf16?") != std::string::npos);
  CHECK(hint("B_r: 100").find("did you mean 128?") != std::string::npos);
  CHECK(hint("dtype: float16").find("did you mean fp16?") != std::string::npos);
  CHECK(hint("dtype: bfloat16").find("did you mean bf16?") != std::string::npos);
  CHECK(hint("arch: 90").find("did you mean sm_90?") != std::string::npos);
  CHECK(hint("arch: '9.0'").find("did you mean sm_90?") != std::string::npos);
  CHECK(problems_of("template: decode_sm80\nB_r: 100\n").find("did you mean 32?") != std::string::npos);
  CHECK(problems_of("template: decode_sm80\nsplits: 4\n") ==
        "s.yaml:2:1: unknown key 'splits'; leave it out: into how many parts keys are split is chosen at run time, for "
        "each call\n");
  CHECK(problems_of("template: prefill_sm90\nQ_stages: 2\n") ==
        "s.yaml:2:1: unknown key 'Q_stages'; leave it out: a tile of Q has one stage\n");
  CHECK(problems_of("template: decode_sm80\nnum_splits: 4\n").find("is chosen at run time") != std::string::npos);
}

TEST_CASE("numbers are decimal, never octal, hexadecimal or too large to hold") {
  for (const char* number : {"0128", "0x80", "+128", "128 ", "1_28", "99999999999999999999", "1e2", "12 8"}) {
    CAPTURE(number);
    const bool accepted = problems_of(std::string("template: prefill_sm80\nB_r: '") + number + "'\n").empty();
    CHECK_FALSE(accepted);
  }
}

TEST_CASE("a wrong type says what stands there") {
  const std::string head = "template: prefill_sm80\n";
  CHECK(problems_of(head + "B_r: {a: 1}\n") ==
        "s.yaml:2:6: B_r is a mapping; a multiple of 16 from 16 to 256, or a list of such values\n");
  CHECK(problems_of(head + "B_r:\n") ==
        "s.yaml:2:1: B_r is nothing; a multiple of 16 from 16 to 256, or a list of such values\n");
  CHECK(problems_of(head + "B_r: [16, [32]]\n") ==
        "s.yaml:2:11: a value of B_r is a list; a multiple of 16 from 16 to 256\n");
  CHECK(problems_of(head + "B_r: [16, ~]\n") ==
        "s.yaml:2:11: a value of B_r is nothing; a multiple of 16 from 16 to 256\n");
  CHECK(problems_of(head + "[1, 2]: 3\n") == "s.yaml:2:1: a key is a list; a key is a single word\n");
  CHECK(problems_of("template: [prefill_sm80]\n") ==
        fmt::format("s.yaml:1:11: template is a list; one template per spec: {}\n", families_text("{}", " or ")));
  CHECK(problems_of(head + "arch: {a: b}\n") ==
        "s.yaml:2:7: arch is a mapping; any, a name as sm_90, or a list of names\n");
  CHECK(problems_of(head + "arch: [[sm_80]]\n") == "s.yaml:2:8: a value of arch is a list; a name as sm_90\n");
  CHECK(problems_of("- 1\n- 2\n") == "s.yaml:1:1: the spec is a list; a mapping that begins with `template: <name>`\n");
  CHECK(problems_of("just words\n") ==
        "s.yaml:1:1: the spec is a single value; a mapping that begins with `template: <name>`\n");
}

TEST_CASE("empty and repeated things are refused") {
  const std::string head = "template: prefill_sm80\n";
  CHECK(problems_of(head + "B_r: []\n") ==
        "s.yaml:2:6: B_r is an empty list; a multiple of 16 from 16 to 256, or a list of such values\n");
  CHECK(problems_of(head + "B_r: [64, 128, 64]\n") == "s.yaml:2:16: 64 stands twice in B_r; name it once\n");
  CHECK(problems_of(head + "B_r: 64\nB_c: 64\nB_r: 128\n") ==
        "s.yaml:4:1: 'B_r' is given again, first on line 2; keep one, or one list of values\n");
  CHECK(problems_of(head + head) ==
        "s.yaml:2:1: 'template' is given again, first on line 1; keep one, or one list of values\n");
  CHECK(problems_of(head + "arch: []\n") ==
        "s.yaml:2:7: arch is an empty list; any, a name as sm_90, or a list of names\n");
  CHECK(problems_of(head + "arch: [sm_80, sm_80]\n") == "s.yaml:2:15: sm_80 stands twice in arch; name it once\n");
  CHECK(problems_of(head + "arch: [any, sm_80]\n") ==
        "s.yaml:2:8: 'any' stands among the names of arch; any alone, or names alone\n");
}

TEST_CASE("variants and exclude take a list of rows of field keys") {
  const std::string head = "template: prefill_sm80\n";
  const std::string rows = "a list of rows as `- {head_dim: 64, B_r: 128}`\n";
  CHECK(problems_of(head + "variants: 5\n") == "s.yaml:2:11: variants is a single value; " + rows);
  CHECK(problems_of(head + "exclude: []\n") == "s.yaml:2:10: exclude is an empty list; " + rows);
  CHECK(problems_of(head + "exclude: {B_r: 64}\n") == "s.yaml:2:10: exclude is a mapping; " + rows);
  const std::string row = "a mapping of keys to values as `{head_dim: 64, B_r: 128}`\n";
  CHECK(problems_of(head + "variants: [5]\n") == "s.yaml:2:12: a row of variants is a single value; " + row);
  CHECK(problems_of(head + "variants: [{}]\n") == "s.yaml:2:12: a row of variants is an empty mapping; " + row);
  CHECK(problems_of(head + "variants:\n  - {arch: sm_80, B_r: 64}\n") ==
        "s.yaml:3:6: arch stands in a row of variants; it belongs to the top level\n");
  CHECK(problems_of(head + "exclude:\n  - {b_r: 64}\n  - {B_r: 64, B_r: 64}\n") ==
        "s.yaml:3:6: unknown key 'b_r'; did you mean B_r?\n"
        "s.yaml:4:15: 'B_r' is given again, first on line 4; keep one, or one list of values\n");
}

TEST_CASE("a missing template is a problem of the whole spec") {
  CHECK(problems_of("B_r: 64\n") ==
        fmt::format("s.yaml:1:1: the key template is missing; add {}\n", families_text("`template: {}`", " or ")));
  CHECK(problems_of("") == "s.yaml:1:1: the file holds no YAML document; begin with `template: <name>`\n");
  CHECK(problems_of("# nothing\n") == "s.yaml:1:1: the file holds no YAML document; begin with `template: <name>`\n");
}

TEST_CASE("who gives a window's width, or its key to a template that needs none, is told who says it") {
  CHECK(problems_of("template: prefill_sm90\nwindow: 1024\n")
            .find("'1024' is not a value of window; false or true; how large it is each call says") !=
        std::string::npos);
  CHECK(problems_of("template: decode_sm80\nwindow: true\n")
            .find("decode_sm80 has none, as all its kernels serve it or none (attune features); templates that do: ") !=
        std::string::npos);
}

TEST_CASE("text that is not YAML is reported at its place") {
  CHECK(problems_of("template: prefill_sm80\nB_r: [64\n").starts_with("s.yaml:2:9: this is not YAML: "));
  CHECK(problems_of("template: prefill_sm80\n\tB_r: 64\n").starts_with("s.yaml:2:"));
  CHECK(problems_of("template: \"prefill\n").starts_with("s.yaml:1:"));
  CHECK(problems_of("a: b: c\n").starts_with("s.yaml:1:5: this is not YAML: "));
}

TEST_CASE("anchors, aliases, tags and second documents are refused") {
  const std::string head = "template: prefill_sm80\n";
  CHECK(problems_of(head + "B_r: &x 64\n") == "s.yaml:2:6: an anchor (&name) stands here; write the value out\n");
  CHECK(problems_of(head + "B_r: *x\n").starts_with("s.yaml:2:6: this is not YAML: "));
  CHECK(problems_of(head + "B_r: &x [64]\nB_c: *x\n") ==
        "s.yaml:2:6: an anchor (&name) stands here; write the value out\n");
  CHECK(problems_of(head + "B_r: !!int 64\n") == "s.yaml:2:6: a YAML tag (!name) stands here; write the plain value\n");
  CHECK(problems_of(head + "---\n" + head) == "s.yaml:2:1: a second YAML document begins here; one spec per file\n");
}

TEST_CASE("deep nesting is refused before it is followed") {
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "- ";
  std::string keys;
  for (int i = 0; i < 1000; ++i) keys += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  const std::string what =
      "nesting is deeper than 16 levels; a spec needs no more than a list in a mapping in a list\n";
  CHECK(problems_of(blocks) == "s.yaml:1:33: " + what);
  CHECK(problems_of(keys) == "s.yaml:17:17: " + what);
  // How many levels an unclosed bracket opens is up to yaml-cpp.
  for (const std::string& brackets : {"B_r: " + std::string(500000, '['), std::string(100000, '{')}) {
    CHECK(problems_of(brackets).starts_with("s.yaml:1:"));
    CHECK(problems_of(brackets).ends_with(what));
  }
}

TEST_CASE("binary and oversized files are refused") {
  using namespace std::string_literals;
  CHECK(problems_of("template: x\nB\0r: 64\n"s) ==
        "s.yaml:2:2: byte 0x00 does not belong into a text file; a spec is UTF-8 text\n");
  CHECK(problems_of(std::string(max_spec_bytes + 1, '#')) ==
        "s.yaml: the file is larger than 1048576 bytes; a spec is a page of text; is this one?\n");
}

TEST_CASE("a flood of problems is cut off") {
  std::string text = "template: prefill_sm80\n";
  for (int i = 0; i < 5000; ++i) text += "key" + std::to_string(i) + ": 1\n";
  const Result<Spec> result = parse_spec(text, "s.yaml");
  CHECK(result.problems.size() == 201);
  CHECK(result.problems.back().what == "there are more than 200 problems");
}

TEST_CASE("a hostile word in a message stays short and on its line") {
  const std::string text = problems_of("template: prefill_sm80\n\"a\\nb" + std::string(5000, 'x') + "\": 1\n");
  CHECK(text.size() < 500);
  CHECK(text.find('\n') == text.size() - 1);
}

TEST_CASE("all problems of a file are reported together") {
  const std::filesystem::path folder = std::filesystem::path(ATTUNE_SOURCE_DIR) / "tests/golden";
  std::string all;
  for (const Diagnostic& problem : parse_spec(read_text(folder / "all_wrong.yaml"), "all_wrong.yaml").problems) {
    all += problem.text() + "\n";
  }
  CHECK(all == read_text(folder / "all_wrong.txt"));
}

TEST_CASE("a file that cannot be read is a problem of the file") {
  CHECK(read_spec("no/such.yaml").problems.at(0).text() ==
        "no/such.yaml: there is no such file; a path to a .yaml spec");
  CHECK(read_spec(ATTUNE_SOURCE_DIR).problems.at(0).what == "this is a folder");
  const TemporaryFile large(std::string(max_spec_bytes + 1, '\n'));
  CHECK(read_spec(large.path()).problems.at(0).what == "the file is larger than 1048576 bytes");
  CHECK(read_spec("/dev/zero").problems.at(0).what == "the file is larger than 1048576 bytes");
}

TEST_CASE("a file is read as its text is") {
  const TemporaryFile file("template: prefill_sm80\nB_r: 64\n");
  const Result<Spec> spec = read_spec(file.path());
  REQUIRE(spec.ok());
  CHECK(spec.value.name == "attune_generator_spec_test");
  CHECK(spec.value.common.keys.at("B_r").values == std::vector{64});
}

}  // namespace
