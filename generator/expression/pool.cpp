#include "generator/expression/pool.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "generator/expression/limits.hpp"
#include "generator/expression/parse.hpp"

namespace attune::expression {
namespace {

class Pool {
 public:
  int number_of(const Expression& expression) {
    std::pair<Use, std::string> key{expression.use, expression.text()};
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = numbers_.emplace(std::move(key), static_cast<int>(numbers_.size()) + 1);
    if (is_new) entries_.push_back({.expression = expression, .text = entry->first.second});
    return entry->second;
  }

  struct Entry {
    Expression expression;
    std::string text;
    std::optional<NumberedLimits> limits = {};  ///< of a mask, once it was asked for
    std::optional<float> softcap = {};          ///< of a score, likewise
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

  /// What `member` has of an entry, from `find` where it has nothing yet.
  template <class Value, class Find>
  Value known(int number, std::optional<Value> Entry::*member, const Find& find) {
    const Expression* expression = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const Entry& own = entries_.at(static_cast<std::size_t>(number) - 1);
      if (own.*member) return *(own.*member);
      expression = &own.expression;
    }
    const Value value = find(*expression);  // which may add entries
    const std::lock_guard lock(mutex_);
    entries_.at(static_cast<std::size_t>(number) - 1).*member = value;
    return value;
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

NumberedLimits limits_of_number(int mask) {
  return pool().known(mask, &Pool::Entry::limits, [](const Expression& expression) {
    const MaskLimits limits = limits_of(expression);
    return NumberedLimits{
        .left = limits.left, .right = limits.right, .rest = limits.rest ? number_of(*limits.rest) : 0};
  });
}

float softcap_of_number(int score) { return pool().known(score, &Pool::Entry::softcap, softcap_of); }

std::optional<int> number_of_text(std::string_view text, Use use) {
  if (text == none) return 0;
  const Result<Expression> parsed = parse(text, use);
  return parsed.ok() ? std::optional(number_of(parsed.value)) : std::nullopt;
}

std::string_view text_of_number(int number) { return number == 0 ? none : std::string_view{pool().entry(number).text}; }

}  // namespace attune::expression
