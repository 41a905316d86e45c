// Tables and numbers as people read them.
#pragma once

#include <string>
#include <vector>

namespace attune {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

/// Rows of words that are printed one by one, before all are known: each column is as wide as its title and the widest
/// cell that is expected there. A wider cell moves the rest of its row.
class RowWriter {
 public:
  /// An expected cell for each column.
  RowWriter(std::vector<Column> columns, const std::vector<std::string>& widest);

  // Each ends in a newline.
  [[nodiscard]] std::string title() const;
  [[nodiscard]] std::string row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::size_t> widths_;
};

/// A table of words, each column as wide as its widest cell.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell for each column.
  void add(std::vector<std::string> cells);

  [[nodiscard]] bool empty() const { return rows_.empty(); }

  /// The title line and the rows, each ending in a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "1.5 KB", "12.0 MB", "1.0 GB"; whole bytes below 1 KB (1024).
std::string bytes_text(double bytes);

/// Three digits: "420 us", "1.30 s", "2.10 min".
std::string seconds_text(double seconds);

/// "1 variant", "3 variants"
std::string counted(long long count, const std::string& noun);

}  // namespace attune
