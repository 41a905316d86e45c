// Tables of tuned problems as the generator sees them: their variants for the build, and files that somebody broke.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "generator/collect.hpp"
#include "generator/tuned_file.hpp"
#include "generator/yaml_tree.hpp"
#include "runtime/base/files.hpp"
#include "tests/unit/tuned_tables.hpp"

namespace {

using namespace attune;
using namespace attune::tuned_tests;

/// Whether the place exists in the text; line 0 is the file as a whole.
bool is_inside(const Location& where, const std::string& text) {
  if (where.line == 0) return true;
  if (where.line < 1 || where.column < 1) return false;
  std::size_t start = 0;
  for (int line = 1; line < where.line; ++line) {
    start = text.find('\n', start);
    if (start == std::string::npos) return false;
    ++start;
  }
  const std::size_t end = std::min(text.find('\n', start), text.size());
  return static_cast<std::size_t>(where.column) <= end - start + 1;
}

/// Empty when the text is handled as promised, else what went wrong.
std::string broken_promise(const std::string& text) {
  try {
    const Result<TunedTable> table = parse_tuned(text, "fuzz.yaml");
    for (const Diagnostic& problem : table.problems) {
      if (problem.where.file != "fuzz.yaml" || problem.what.empty()) return "a problem without a file or a text";
      if (!is_inside(problem.where, text)) return "a place outside the file: " + problem.text();
      if (problem.text().find('\n') != std::string::npos) return "a message of several lines: " + problem.text();
    }
    if (!table.ok()) return "";
    const Result<TunedTable> again = parse_tuned(tuned_text(table.value), "again.yaml");
    return again.ok() && again.value == table.value ? "" : "a table that is not read back as it was written";
  } catch (const std::exception& error) {
    return std::string("an exception: ") + error.what();
  }
}

std::string mutated(std::string text, std::mt19937& random) {
  static const std::vector<std::string> pieces{"{",
                                               "}",
                                               "[",
                                               "]",
                                               ":",
                                               ",",
                                               "\"",
                                               "\\",
                                               "- ",
                                               "\n",
                                               "\r",
                                               "#",
                                               "gpu:",
                                               "rows:",
                                               "null",
                                               "true",
                                               "false",
                                               "-1",
                                               "0",
                                               "1e999",
                                               "1e-9",
                                               "4096",
                                               "99999",
                                               "\\u0000",
                                               "\\ud800",
                                               "\xff",
                                               "\0",
                                               "\xc3\xa9",
                                               "128",
                                               "999999999999999999999",
                                               "0.5",
                                               "causal",
                                               "\"paged\"",
                                               ", \"page_size\": 16",
                                               ", \"softcap\": true",
                                               ", \"B_r\": 64",
                                               "prefill",
                                               "decode",
                                               "bf16"};
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const std::size_t edits = 1 + below(3);
  for (std::size_t i = 0; i < edits; ++i) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(below(10), text.size() - at);
    switch (below(5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[below(pieces.size())]);
        break;
      case 2:
        text.replace(at, length, pieces[below(pieces.size())]);
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>('0' + below(10));
        break;
      default:
        text.insert(at, 1, static_cast<char>(below(256)));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutated tables are either right or have problems inside the file") {
  const std::string seed = tuned_text(table_of());
  std::mt19937 random(20);
  int right = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::string text = mutated(seed, random);
    const std::string broken = broken_promise(text);
    if (!broken.empty()) FAIL_CHECK("input " << i << ": " << broken << "\n--- input\n" << text);
    if (parse_tuned(text, "fuzz.yaml").ok()) ++right;
  }
  // A fuzzer whose every input is refused would show nothing.
  CHECK(right > 300);
}

TEST_CASE("hostile tables cost a message") {
  std::string nested = "gpu: ";
  for (int i = 0; i < 500000; ++i) nested += "{\"a\":";
  std::string lists = "gpu: " + std::string(1 << 20, '[');
  for (const std::string& text : {nested, lists, std::string(1 << 20, '\n'), "- " + std::string(1 << 20, '{'),
                                  std::string(1 << 20, '\0'), "gpu: \"" + std::string(1 << 20, 'x')}) {
    CHECK(broken_promise(text) == "");
    CHECK_FALSE(parse_tuned(text, "fuzz.yaml").ok());
  }
}

TEST_CASE("a table is YAML, too") {
  const Result<YamlNode> tree = parse_yaml(tuned_text(table_of()), "h200.yaml", 8);
  REQUIRE(tree.ok());
  REQUIRE(tree.value.children.size() == 4);
  CHECK(tree.value.children[0].text == "gpu");
  CHECK(tree.value.children[1].children.size() == 6);
  CHECK(tree.value.children[2].text == "rows");
  const YamlNode& rows = tree.value.children[3];
  REQUIRE(rows.children.size() == table_of().rows.size());
  for (const YamlNode& row : rows.children) CHECK(row.children.at(0).text == "problem");
}

TEST_CASE("the variants of a table are wanted beside those of specs, once, for the table's architecture") {
  const ScratchFolder folder;
  TunedTable table = table_of();
  table.put({prefill(2, 4096), result_of(sm80(128, 64))});
  const std::vector<std::filesystem::path> tuned{written(folder, "h200.yaml", tuned_text(table))};
  const std::vector<std::filesystem::path> specs{
      written(folder, "s.yaml", "template: prefill_sm80\narch: sm_80\ncausal: true\nB_c: 64\n")};
  const Result<Collection> collected = collect(specs, tuned);
  REQUIRE(collected.ok());
  REQUIRE(collected.value.wanted.size() == 5);
  // The spec's own, now for both.
  CHECK(collected.value.wanted[0].variant.arch == (1U << 0U | 1U << 4U));
  CHECK_FALSE(collected.value.wanted[0].tables_only);
  for (std::size_t i = 1; i < 5; ++i) {
    CHECK(collected.value.wanted[i].variant.arch == 1U << 4U);
    CHECK(collected.value.wanted[i].spec == "tuned/h200");
    CHECK(collected.value.wanted[i].tables_only);
  }
  // A decode kernel for one ratio of heads, and with it that for any.
  Variant for_four = decode_variant(128);
  for_four.gqa_ratio = 4;
  table.put({decode(1, 4096), result_of(for_four)});
  const std::vector<std::filesystem::path> more{written(folder, "more.yaml", tuned_text(table))};
  const auto has = [](const Collection& collection, Variant variant) {
    variant.arch = 1U << 4U;
    return std::ranges::count(collection.wanted, variant, &Wanted::variant) == 1;
  };
  const Result<Collection> both = collect(specs, more);
  CHECK(both.value.wanted.size() == 7);
  CHECK(has(both.value, for_four));
  CHECK(has(both.value, decode_variant(128)));
  const std::vector<std::filesystem::path> broken{written(folder, "x.yaml", "rows: []\n")};
  CHECK_FALSE(collect(specs, broken).ok());
}
