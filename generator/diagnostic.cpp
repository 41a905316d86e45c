#include "generator/diagnostic.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

namespace attune {
namespace {

// Longer words are never typos of a key, and the cost below is the product of both lengths.
constexpr std::size_t max_word = 64;

// Edit distance in which swapping two neighbours is one edit and upper and lower case count as equal.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const auto same = [&](std::size_t i, std::size_t j) { return lower(a[i]) == lower(b[j]); };
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (same(i, j) ? 0 : 1), last[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && same(i, j - 1) && same(i - 1, j)) row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last.back();
}

}  // namespace

std::string Diagnostic::text() const {
  std::string place = where.file;
  if (where.line > 0) place += fmt::format(":{}:{}", where.line, where.column);
  return fix.empty() ? fmt::format("{}: {}", place, what) : fmt::format("{}: {}; {}", place, what, fix);
}

std::string alternatives_text(const std::vector<std::string>& words) {
  std::string text = words.front();
  for (std::size_t i = 1; i < words.size(); ++i) text += (i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > max_word) return "";
  std::string best;
  std::size_t best_distance = max_word;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    // A third of the letters may differ; of a short word, one.
    const std::size_t near = std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance <= near && distance < std::min(best_distance, candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace attune
