// Mutated and hostile specs: reading and expanding them never crashes, and every problem has a place in the file.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "generator/expand.hpp"

namespace {

using namespace attune;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Whether the place exists in the text; line 0 is the file as a whole.
bool is_inside(const Location& where, const std::string& text) {
  if (where.line == 0) return true;
  const auto lines = std::ranges::count(text, '\n') + (text.empty() || text.back() != '\n' ? 1 : 0);
  if (where.line < 1 || where.line > std::max<std::ptrdiff_t>(lines, 1) || where.column < 1) return false;
  std::size_t start = 0;
  for (int line = 1; line < where.line; ++line) start = text.find('\n', start) + 1;
  const std::size_t end = std::min(text.find('\n', start), text.size());
  return static_cast<std::size_t>(where.column) <= end - start + 1;
}

/// Empty when the text is handled as promised, else what went wrong.
std::string broken_promise(const std::string& text) {
  try {
    std::vector<Diagnostic> problems;
    const Result<Spec> spec = parse_spec(text, "fuzz.yaml");
    problems = spec.problems;
    if (spec.ok()) {
      const Result<Expansion> expansion = expand(spec.value);
      problems = expansion.problems;
      if (expansion.ok() && expansion.value.variants.empty()) return "neither variants nor problems";
    }
    for (const Diagnostic& problem : problems) {
      if (problem.where.file != "fuzz.yaml" || problem.what.empty()) return "a problem without a file or a text";
      if (!is_inside(problem.where, text)) return "a place outside the file: " + problem.text();
      const std::string line = problem.text();
      if (line.find('\n') != std::string::npos) return "a message of several lines: " + line;
    }
    return "";
  } catch (const std::exception& error) {
    return std::string("an exception: ") + error.what();
  }
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string mutate(std::string text) {
    const std::size_t edits = 1 + below(6);
    for (std::size_t i = 0; i < edits; ++i) edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  void edit(std::string& text) {
    static const std::vector<std::string> pieces{"[",           "]",
                                                 "{",           "}",
                                                 ":",           ": ",
                                                 "- ",          ",",
                                                 "\n",          "\n  ",
                                                 "\t",          "#",
                                                 "'",           "\"",
                                                 "&a ",         "*a",
                                                 "!!x",         "---\n",
                                                 "...\n",       "? ",
                                                 "|\n",         ">\n",
                                                 "%",           "@",
                                                 "`",           "~",
                                                 "\\",          "\r",
                                                 "null",        "0128",
                                                 "99999999999", "-1",
                                                 "true",        "[]",
                                                 "{}",          "B_r",
                                                 "any",         "whole",
                                                 "\xff",        "\xef\xbb\xbf",
                                                 "\xc3\xa9",    "head_dim: 64\n",
                                                 "<<",          "exclude",
                                                 "16",          "splits: 2\n",
                                                 "warps: 3\n",  "tune",
                                                 "from: 64",    "{from: 1, to: 4, step: 1}"};
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(below(12), text.size() - at);
    switch (below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[below(pieces.size())]);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size() + 1), below(40)));
        break;
      case 3:
        text.replace(at, length, pieces[below(pieces.size())]);
        break;
      case 4:
        text.insert(at, 1, static_cast<char>(below(256)));
        break;
      default:
        text.resize(at);
        break;
    }
  }

  std::mt19937 random_;
};

TEST_CASE("mutated specs are either right or have problems inside the file") {
  const std::filesystem::path source = ATTUNE_SOURCE_DIR;
  const std::vector<std::string> seeds{read_text(source / "specs/quickstart.yaml"),
                                       read_text(source / "specs/prefill_sm80.yaml"),
                                       read_text(source / "tests/golden/all_wrong.yaml"),
                                       "template: prefill_sm80\nB_r: [64, 128]\nexclude:\n  - {B_r: 64}\n"};
  Mutator mutator(20);
  int right = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = mutator.mutate(seeds[static_cast<std::size_t>(i) % seeds.size()]);
    const std::string broken = broken_promise(text);
    if (!broken.empty()) FAIL_CHECK("input " << i << ": " << broken << "\n--- input\n" << text);
    if (parse_spec(text, "fuzz.yaml").ok()) ++right;
  }
  // A fuzzer whose every input is refused at its first line would show nothing.
  CHECK(right > 300);
}

TEST_CASE("hostile specs cost a message") {
  using namespace std::string_literals;
  std::string aliases = "a: &a [x, x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    aliases += c + ": &"s + c + " [*" + static_cast<char>(c - 1) + ", *" + static_cast<char>(c - 1) + "]\n";
  }
  std::string rows = "template: prefill_sm80\nexclude:\n";
  for (int i = 0; i < 60000; ++i) rows += "- {B_r: 16}\n";
  std::string many_keys = "template: prefill_sm80\n";
  while (many_keys.size() < 500000) many_keys += "k" + std::to_string(many_keys.size()) + ": 1\n";
  std::string closing;
  for (int i = 0; i < 20000; ++i) closing += "[]{}";
  const std::vector<std::string> hostile{
      aliases,
      rows,
      many_keys,
      closing,
      std::string(1 << 20, '['),
      std::string(1 << 20, '-'),
      std::string(1 << 20, '?'),
      std::string(1 << 20, ':'),
      std::string(1 << 20, '!'),
      std::string(1 << 20, '&'),
      std::string(1 << 20, '"'),
      std::string(1 << 20, '\n'),
      std::string(1 << 20, ' '),
      std::string(1 << 20, 'a'),
      std::string(1 << 20, '\xff'),
      std::string(1 << 20, '\0'),
      "template: " + std::string(1000000, 'x') + "\n",
      "\xff\xfe" + "t\0e\0"s,
      "\xfe\xff" + "\x4e\x00\x4e\x01"s,
      "\xef\xbb\xbftemplate: prefill_sm80\n",
      "template: prefill_sm80\nB_r: |\n  64\n",
      "template: prefill_sm80\n? {a: b}\n: c\n",
      "%YAML 9.9\n---\ntemplate: prefill_sm80\n",
      "%TAG ! tag:x,2000:\n---\n!a {}\n",
      "---\n...\n---\n",
      "<<: {B_r: 64}\ntemplate: prefill_sm80\n",
  };
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    CAPTURE(i);
    CHECK(broken_promise(hostile[i]) == "");
  }
}

}  // namespace
