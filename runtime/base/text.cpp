#include "runtime/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace attune {

RowWriter::RowWriter(std::vector<Column> columns, const std::vector<std::string>& widest)
    : columns_(std::move(columns)) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths_.push_back(std::max(columns_[i].title.size(), widest.at(i).size()));
  }
}

std::string RowWriter::title() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  return row(titles);
}

std::string RowWriter::row(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) line += "  ";
    const std::string cell = i < cells.size() ? cells[i] : "";
    line += columns_[i].align == Align::right ? fmt::format("{:>{}}", cell, widths_[i])
                                              : fmt::format("{:<{}}", cell, widths_[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::string> widest(columns_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widest.size(); ++i) {
      if (row[i].size() > widest[i].size()) widest[i] = row[i];
    }
  }
  const RowWriter writer(columns_, widest);
  std::string text = writer.title();
  for (const auto& row : rows_) text += writer.row(row);
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
