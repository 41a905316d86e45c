#include "tests/harness/random_expression.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "tests/harness/random_choice.hpp"

namespace attune::testing {
namespace {

using namespace std::string_view_literals;
using expression::Use;

class Writer {
 public:
  explicit Writer(Random& random) : random_(random) {}

  std::string integer(int depth) {
    if (depth == 0 || once_in(random_, 3)) return word();
    const std::string x = integer(depth - 1);
    switch (random_.below(8)) {
      case 0:
        return fmt::format("({} + {})", x, word());
      case 1:
        return fmt::format("({} - {})", x, word());
      case 2:
        return fmt::format("{} // {}", quoted(x), 1 + up_to(random_, 90));
      case 3:
        return fmt::format("{} % {}", quoted(x), one_of(random_, std::array{2, 3, 16, 64, 100}));
      case 4:
        return fmt::format("{}({}, {})", one_of(random_, std::array{"min"sv, "max"sv}), x, word());
      case 5:
        return fmt::format("abs({})", x);
      case 6:
        return fmt::format("-{}", quoted(x));
      default:
        return fmt::format("select({}, {}, {})", boolean(depth - 1), x, word());
    }
  }

  std::string boolean(int depth) {
    if (depth == 0 || once_in(random_, 3)) return comparison();
    const std::string x = boolean(depth - 1);
    switch (random_.below(5)) {
      case 0:
      case 1:
        return fmt::format("({} and {})", x, comparison());
      case 2:
      case 3:
        return fmt::format("({} or {})", x, comparison());
      default:
        return fmt::format("not ({})", x);
    }
  }

  std::string real(int depth) {
    if (depth == 0) return once_in(random_, 3) ? "0.5" : "s";
    const std::string x = real(depth - 1);
    switch (random_.below(11)) {
      case 0:
        return fmt::format("({} + bias[h, max(p - k, 0) // 8])", x);
      case 1:
        return fmt::format("({} + slope[h] * (k - p))", x);
      case 2:
        return fmt::format("({} - 0.02 * {})", x, quoted(integer(1)));
      case 3:
        return fmt::format("{} * 0.75", quoted(x));
      case 4:
        return fmt::format("3 * tanh({} / 3)", quoted(x));
      case 5:
        return fmt::format("min({}, real(k) / 16)", x);
      case 6:
        return fmt::format("max({}, -1.5)", x);
      case 7:
        return fmt::format("select({}, {}, s)", boolean(1), x);
      case 8:
        return fmt::format("exp2(min({}, 1.0))", x);
      case 9:
        return fmt::format("log2(1 + abs({}))", x);
      default:
        return fmt::format("-abs({})", x);
    }
  }

  /// A sum with s in it once.
  std::string additive(int depth) {
    if (depth == 0) return "s";
    const std::string x = additive(depth - 1);
    switch (random_.below(7)) {
      case 0:
        return fmt::format("({} + bias[h, max(p - k, 0) // 8])", x);
      case 1:
        return fmt::format("({} + slope[h] * (k - p))", x);
      case 2:
        return fmt::format("({} - 0.02 * {})", x, quoted(integer(1)));
      case 3:
        return fmt::format("-(slope[h] * abs(p - k) - {})", x);
      case 4:
        return fmt::format("select({}, {}, {})", boolean(1), x, additive(depth - 1));
      case 5:
        return fmt::format("(exp2(min(real(k) / 16, 1.0)) + {})", x);
      default:
        return fmt::format("({} - max(tanh(0.1 * {}), -0.5))", x, quoted(integer(1)));
    }
  }

 private:
  static std::string quoted(const std::string& x) { return fmt::format("({})", x); }

  std::string word() {
    if (once_in(random_, 5)) return std::to_string(up_to(random_, 70));
    return std::string{one_of(random_, std::array{"q"sv, "p"sv, "k"sv, "k"sv, "p"sv, "h"sv, "hk"sv, "b"sv})};
  }

  std::string comparison() {
    if (once_in(random_, 6)) return "document[b, p] == document[b, k]";
    if (once_in(random_, 9)) return "k < prefix[b]";
    const auto sign = one_of(random_, std::array{"<"sv, "<="sv, ">"sv, ">="sv, "<="sv, "!="sv, "=="sv});
    return fmt::format("{} {} {}", integer(1), sign, integer(1));
  }

  Random& random_;
};

constexpr std::array declarations{"slope: fp32[head]"sv, "bias: fp32[head, 9]"sv, "document: int32[batch, position]"sv,
                                  "prefix: int32[batch]"sv};

std::string with_declarations(std::string text) {
  std::string_view separator = " where ";
  for (const std::string_view declaration : declarations) {
    if (text.find(fmt::format("{}[", declaration.substr(0, declaration.find(':')))) == std::string::npos) continue;
    text += fmt::format("{}{}", separator, declaration);
    separator = ", ";
  }
  return text;
}

}  // namespace

std::string random_expression(Random& random, Use use) {
  Writer writer(random);
  return with_declarations(use == Use::score ? writer.real(3) : writer.boolean(3));
}

std::string random_additive_score(Random& random) { return with_declarations(Writer(random).additive(3)); }

int expression_count() {
  const char* const asked = std::getenv("ATTUNE_TEST_EXPRESSIONS");
  return asked == nullptr ? 24 : std::atoi(asked);
}

}  // namespace attune::testing
