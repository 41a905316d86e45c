#include "runtime/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace attune {

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].title.size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::right ? fmt::format("{:>{}}", cell(i), widths[i])
                                                : fmt::format("{:<{}}", cell(i), widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) {
    add_line([&](std::size_t i) { return row[i]; });
  }
  return text;
}

std::string bytes_text(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KB", bytes / 1024);
  if (bytes < 1024 * 1024 * 1024) return fmt::format("{:.1f} MB", bytes / (1024 * 1024));
  return fmt::format("{:.1f} GB", bytes / (1024 * 1024 * 1024));
}

std::string seconds_text(double seconds) {
  const auto three_digits = [](double value, const char* unit) {
    return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
  };
  if (seconds < 1e-3) return three_digits(seconds * 1e6, "us");
  if (seconds < 1) return three_digits(seconds * 1e3, "ms");
  if (seconds < 120) return three_digits(seconds, "s");
  return three_digits(seconds / 60, "min");
}

std::string counted(long long count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace attune
