#include "generator/expression/pool.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "generator/expression/parse.hpp"

namespace attune::expression {
namespace {

class Pool {
 public:
  int number_of(const Expression& expression) {
    std::pair<Use, std::string> key{expression.use, expression.text()};
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = numbers_.emplace(std::move(key), static_cast<int>(numbers_.size()) + 1);
    if (is_new) entries_.push_back({expression, entry->first.second});
    return entry->second;
  }

  struct Entry {
    Expression expression;
    std::string text;
  };

  bool has(int number, Use use) {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<std::size_t>(number) - 1;
    return number > 0 && at < entries_.size() && entries_[at].expression.use == use;
  }

  const Entry& entry(int number) {
    const std::lock_guard lock(mutex_);
    return entries_.at(static_cast<std::size_t>(number) - 1);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Use, std::string>, int> numbers_;
  std::deque<Entry> entries_;  ///< whose places do not move
};

Pool& pool() {
  static Pool only;
  return only;
}

constexpr std::string_view none = "none";

}  // namespace

int number_of(const Expression& expression) { return pool().number_of(expression); }

bool is_number(int number, Use use) { return pool().has(number, use); }

const Expression& expression_of(int number) { return pool().entry(number).expression; }

std::optional<int> number_of_text(std::string_view text, Use use) {
  if (text == none) return 0;
  const Result<Expression> parsed = parse(text, use);
  return parsed.ok() ? std::optional(number_of(parsed.value)) : std::nullopt;
}

std::string_view text_of_number(int number) { return number == 0 ? none : std::string_view{pool().entry(number).text}; }

}  // namespace attune::expression
