#include "tests/emulator/mutate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "tests/emulator/wrong_arguments.hpp"

namespace attune::mutation_tests {
namespace {

using std::string_view;
constexpr auto npos = string_view::npos;

// The trick: `a < site < b` reads as `(a < site) < b`, and likewise for every binary operator that associates to the
// left, so an operator can be replaced where it stands without knowing where its operands begin and end.
constexpr string_view prelude = R"(
#include <stdexcept>
extern "C" {{
__attribute__((visibility("default"))) int attune_mutant = 0;
__attribute__((visibility("default"))) unsigned char attune_reached[{0}] = {{}};
__attribute__((visibility("default"))) long long attune_steps = 0;
}}
struct AttuneSite {{
  int chosen;  // which of the site's mutations is to be; negative: none
  bool flag(bool value) const {{ return chosen < 0 ? value : chosen == 0; }}
}};
inline AttuneSite attune_site(int first, int mutations) {{
  if (++attune_steps > 100'000'000) throw std::runtime_error("endless loop");
  attune_reached[first] = 1;
  const int chosen = attune_mutant - first;
  return {{chosen < mutations ? chosen : -1}};
}}
template <class T>
struct AttuneLeft {{
  T value;
  int chosen;
}};
// A wrong divisor must not end the process.
template <class T>
T attune_divisor(T value) {{
  if (T(1) / T(2) == T(0) && value == T(0)) throw std::runtime_error("division by zero");
  return value;
}}
#define ATTUNE_OPERATOR(OP, RESULT, ...)                                        \
  template <class T>                                                            \
  AttuneLeft<T> operator OP(T left, AttuneSite site) {{                         \
    return {{left, site.chosen}};                                               \
  }}                                                                            \
  template <class T, class U>                                                   \
  RESULT operator OP(AttuneLeft<T> left, U b) {{                                \
    const T a = left.value;                                                     \
    using Both [[maybe_unused]] = decltype(a OP b);                             \
    switch (left.chosen) {{                                                     \
      __VA_ARGS__                                                               \
    }}                                                                          \
    return a OP b;                                                              \
  }}
#define ATTUNE_RELATION(OP, NEIGHBOUR) \
  ATTUNE_OPERATOR(OP, bool, case 0 : return true; case 1 : return false; case 2 : return a NEIGHBOUR b;)
ATTUNE_RELATION(<, <=)
ATTUNE_RELATION(<=, <)
ATTUNE_RELATION(>, >=)
ATTUNE_RELATION(>=, >)
ATTUNE_RELATION(==, ==)
ATTUNE_RELATION(!=, !=)
ATTUNE_OPERATOR(&&, bool, case 0 : return a; case 1 : return b;)
ATTUNE_OPERATOR(||, bool, case 0 : return a; case 1 : return b;)
ATTUNE_OPERATOR(+, auto, case 0 : return Both(a);)
ATTUNE_OPERATOR(-, auto, case 0 : return Both(a);)
ATTUNE_OPERATOR(*, auto, case 0 : return Both(a);)
ATTUNE_OPERATOR(/, auto, case 0 : return Both(a); default : return a / attune_divisor(b);)
ATTUNE_OPERATOR(%, auto, case 0 : return Both(a); default : return a % attune_divisor(b);)
ATTUNE_OPERATOR(^, auto, case 0 : return Both(a); case 1 : return Both(a + b);)
#undef ATTUNE_RELATION
#undef ATTUNE_OPERATOR
#line 1
)";

enum class Kind { relation, logic, arithmetic };

struct Operator {
  string_view token;
  Kind kind;
  string_view neighbour;  ///< what a comparison becomes that is off by one
};

constexpr std::array<Operator, 14> operators{{{"<", Kind::relation, "<="},
                                              {"<=", Kind::relation, "<"},
                                              {">", Kind::relation, ">="},
                                              {">=", Kind::relation, ">"},
                                              {"==", Kind::relation, ""},
                                              {"!=", Kind::relation, ""},
                                              {"&&", Kind::logic, ""},
                                              {"||", Kind::logic, ""},
                                              {"+", Kind::arithmetic, ""},
                                              {"-", Kind::arithmetic, ""},
                                              {"*", Kind::arithmetic, ""},
                                              {"/", Kind::arithmetic, ""},
                                              {"%", Kind::arithmetic, ""},
                                              {"^", Kind::arithmetic, ""}}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

string_view trimmed(string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == npos ? string_view{} : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// Where the bracket that opens at `at` closes; `<` closes at a `>` without a space before it.
std::size_t closing(string_view text, std::size_t at) {
  const char open = text[at];
  const char close = open == '(' ? ')' : '>';
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const bool spaced = open == '<' && i != at && text[i - 1] == ' ';
    if (text[i] == open && !spaced) ++depth;
    if (text[i] == close && !spaced && --depth == 0) return i;
  }
  return text.size() - 1;
}

/// What is put in the place of a piece of the text.
struct Edit {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<std::string> mutations;
  std::string before;  ///< the replacement up to the site's number and count, ...
  std::string after;   ///< ... and from there on
};

class Reader {
 public:
  explicit Reader(string_view text) : text_(text), open_(text.size(), true), section_of_(text.size(), -1) {
    split();
    find_constants();
    close_constant_expressions();
  }

  Instrumented instrument() {
    find_statements();
    find_arguments();
    find_flags();
    find_operators();
    std::ranges::sort(edits_, {}, &Edit::begin);
    Instrumented result;
    std::string body;
    std::size_t done = 0;
    int next = 1;
    for (const Edit& edit : edits_) {
      const int count = static_cast<int>(edit.mutations.size());
      body += text_.substr(done, edit.begin - done);
      body += fmt::format("{}attune_site({}, {}){}", edit.before, count > 0 ? next : 0, count, edit.after);
      done = edit.end;
      if (count == 0) continue;
      result.sites.push_back({.section = std::string(section(edit.begin)),
                              .text = line_name(edit.begin),
                              .line = 1 + static_cast<int>(std::ranges::count(text_.substr(0, edit.begin), '\n')),
                              .first = next,
                              .mutations = edit.mutations});
      next += count;
    }
    body += text_.substr(done);
    result.mutants = next - 1;
    result.text = fmt::format(prelude, next) + body;
    return result;
  }

 private:
  [[nodiscard]] string_view section(std::size_t at) const {
    return section_of_[at] < 0 ? string_view{} : string_view(sections_[static_cast<std::size_t>(section_of_[at])]);
  }

  [[nodiscard]] std::size_t line_begin(std::size_t at) const {
    const std::size_t before = at == 0 ? npos : text_.rfind('\n', at - 1);
    return before == npos ? 0 : before + 1;
  }

  [[nodiscard]] string_view line_at(std::size_t at) const {
    return text_.substr(line_begin(at), text_.find('\n', at) - line_begin(at));
  }

  /// The line, and which of its section it is among equal ones.
  [[nodiscard]] std::string line_name(std::size_t at) const {
    const std::size_t here = line_begin(at);
    const string_view name = trimmed(line_at(at));
    int count = 1;
    for (std::size_t i = text_.rfind('\n', here - 1); i != npos && i > 0 && section_of_[i] == section_of_[here];
         i = text_.rfind('\n', i - 1)) {
      if (trimmed(line_at(i)) == name) ++count;
    }
    return count == 1 ? std::string(name) : fmt::format("{} @{}", name, count);
  }

  void close(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, text_.size()); ++i) open_[i] = false;
  }

  /// Finds the sections; closes comments, preprocessor lines and what the emulator replaces.
  void split() {
    bool replaced = false;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size() - 1);
      const string_view line = text_.substr(begin, end - begin);
      constexpr string_view rule = "// --- ";
      if (line.starts_with(rule)) sections_.emplace_back(line.substr(rule.size(), line.find(" ---", 7) - rule.size()));
      for (std::size_t i = begin; i <= end; ++i) section_of_[i] = static_cast<int>(sections_.size()) - 1;
      if (line.starts_with("#ifndef ATTUNE_EMULATOR")) replaced = true;
      const bool code = !replaced && section(begin).find(".cu") != npos && !line.starts_with('#');
      close(code ? begin + std::min(line.find("//"), line.size()) : begin, end);
      if (line == "#endif  // ATTUNE_EMULATOR") replaced = false;
      begin = end + 1;
    }
  }

  /// Every name that some template parameter or constant has: the last word before a comma, or before the end.
  void find_constants() {
    for (const string_view keyword : {"constexpr ", "template <"}) {
      for (std::size_t at = text_.find(keyword); at != npos; at = text_.find(keyword, at + 1)) {
        const std::size_t begin = at + keyword.size();
        const std::size_t end = keyword.back() == '<' ? closing(text_, begin - 1) : text_.find_first_of("=(;{", begin);
        for (std::size_t i = begin; i < end; ++i) {
          const string_view rest = text_.substr(i + 1, end - i - 1);
          const bool last = trimmed(rest).empty() || rest.front() == ',';
          if (!is_word(text_[i]) || !last) continue;
          std::size_t first = i;
          while (is_word(text_[first - 1])) --first;
          constants_.emplace(text_.substr(first, i + 1 - first));
        }
      }
    }
  }

  void close_constant_expressions() {
    for (std::size_t i = 0; i + 1 < text_.size(); ++i) {
      if (!open_[i]) continue;
      const string_view rest = text_.substr(i);
      const bool starts = i == 0 || !is_word(text_[i - 1]);
      if (starts && (rest.starts_with("for (") || rest.starts_with("if constexpr ("))) {
        close(i, closing(text_, i + rest.find('(')) + 1);
      } else if (starts &&
                 (rest.starts_with("constexpr ") || rest.starts_with("static_assert(") || rest.starts_with("using "))) {
        close(i, text_.find(';', i));
      } else if (text_[i + 1] == '<' && is_word(text_[i]) && text_[i + 2] != ' ') {
        close(i + 1, closing(text_, i + 1) + 1);
      }
    }
  }

  void add(std::size_t begin, std::size_t end, std::vector<std::string> mutations, std::string before,
           std::string after) {
    edits_.push_back({begin, end, std::move(mutations), std::move(before), std::move(after)});
    close(begin, end);
  }

  /// A statement in several versions: the one of the chosen mutation, else as it was.
  void add_statement(std::size_t begin, std::size_t end,
                     const std::vector<std::pair<std::string, std::string>>& wrong) {
    std::vector<std::string> names;
    std::string after = ".chosen) {";
    for (const auto& [name, statement] : wrong) {
      after += fmt::format(" case {}: {} break;", names.size(), statement);
      names.push_back(name);
    }
    after += fmt::format(" default: {} }}", text_.substr(begin, end - begin));
    add(begin, end, std::move(names), "switch (", std::move(after));
  }

  /// Calls that order or close something, and early returns.
  void find_statements() {
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (!open_[i] || !is_word(text_[i]) || is_word(text_[i - 1])) continue;
      std::size_t name_end = i;
      while (is_word(text_[name_end])) ++name_end;
      std::size_t begin = i;  // of the statement: objects and namespaces before the name belong to it
      while (text_[begin - 1] == '.' || text_[begin - 1] == ':' || is_word(text_[begin - 1])) --begin;
      const string_view before = trimmed(text_.substr(line_begin(i), begin - line_begin(i)));
      if (!before.empty() && before.back() != ')') continue;

      const string_view name = text_.substr(i, name_end - i);
      if (name == "return" && text_[name_end] == ';' && section(i) != multiply && before.find(' ', 4) == npos) {
        add_statement(begin, name_end + 1, {{"deleted", ""}});
        continue;
      }
      constexpr std::array<string_view, 11> words{"barrier", "wait",    "fence", "commit", "close_group", "mask",
                                                  "settle",  "shared.", "turns", "load_",  "registers"};
      const string_view path = text_.substr(begin, name_end - begin);
      if (path.front() == '.') continue;  // the object stands in the line before
      if (std::ranges::none_of(words, [&](string_view word) { return path.find(word) != npos; })) continue;
      const bool has_list = text_[name_end] == '<';
      const std::size_t list_end = has_list ? closing(text_, name_end) + 1 : name_end;
      if (text_[list_end] != '(') continue;
      const std::size_t end = closing(text_, list_end) + 1;
      if (text_[end] != ';') continue;

      const std::string call = on_one_line(text_.substr(begin, end + 1 - begin));
      std::vector<std::pair<std::string, std::string>> wrong{{"deleted", ""}};
      if (has_list && name.find("wait") != npos) {
        const string_view list = text_.substr(name_end + 1, list_end - name_end - 2);
        wrong.emplace_back("one more group may be pending",
                           fmt::format("{}<({}) + 1>{}", text_.substr(begin, name_end - begin), list,
                                       text_.substr(list_end, end + 1 - list_end)));
      }
      if (name == "block_barrier") {
        wrong.emplace_back("without thread 0", fmt::format("if (thread_index() != 0) {}", call));
      }
      if (name == "warp_barrier" || name.starts_with("named_barrier")) {
        wrong.emplace_back("without lane 0", fmt::format("if (lane_index() != 0) {}", call));
      }
      if (name == "block_barrier") wrong.emplace_back("of the warp only", "warp_barrier();");
      const auto arguments = arguments_from(list_end);
      for (const WrongArgument& rule : wrong_arguments) {
        if (rule.call != name || rule.argument >= arguments.size()) continue;
        const auto [first, last] = arguments[rule.argument];
        const std::string argument = fmt::format(fmt::runtime(rule.wrong), text_.substr(first, last - first));
        wrong.emplace_back(rule.mutation, on_one_line(fmt::format("{}{}{}", text_.substr(begin, first - begin),
                                                                  argument, text_.substr(last, end + 1 - last))));
      }
      add_statement(begin, end + 1, wrong);
    }
  }

  /// Lines keep their numbers: what is added to the text has no line ends.
  static std::string on_one_line(string_view text) {
    std::string result(text);
    std::ranges::replace(result, '\n', ' ');
    return result;
  }

  /// Begin and end of each argument of the call whose bracket opens at `open`.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> arguments_from(std::size_t open) const {
    std::vector<std::pair<std::size_t, std::size_t>> arguments;
    const std::size_t end = closing(text_, open);
    std::size_t begin = open + 1;
    for (std::size_t i = begin; i <= end; ++i) {
      if (text_[i] == '(' && i < end) i = closing(text_, i);
      if (text_[i] != ',' && i != end) continue;
      arguments.emplace_back(text_.find_first_not_of(" \n", begin), i);
      begin = i + 1;
    }
    return arguments;
  }

  /// Arguments of calls that are no statements to delete.
  void find_arguments() {
    for (std::size_t i = 1; i < text_.size(); ++i) {
      if (!open_[i] || !is_word(text_[i]) || is_word(text_[i - 1])) continue;
      const string_view name = word_at(i);
      const bool known = std::ranges::find(wrong_arguments, name, &WrongArgument::call) != wrong_arguments.end();
      const std::size_t name_end = i + name.size();
      const std::size_t open = known && text_[name_end] == '<' ? closing(text_, name_end) + 1 : name_end;
      if (!known || text_[open] != '(') continue;
      const auto arguments = arguments_from(open);
      for (std::size_t a = 0; a < arguments.size(); ++a) {
        const auto [first, last] = arguments[a];
        const string_view argument = text_.substr(first, last - first);
        std::vector<std::string> mutations;
        std::string choice;
        for (const WrongArgument& rule : wrong_arguments) {
          if (rule.call != name || rule.argument != a) continue;
          choice += fmt::format("site.chosen == {} ? {} : ", mutations.size(),
                                on_one_line(fmt::format(fmt::runtime(rule.wrong), argument)));
          mutations.emplace_back(rule.mutation);
        }
        if (mutations.empty()) continue;
        add(first, last, std::move(mutations),
            fmt::format("[&](AttuneSite site) {{ return {}{}; }}(", choice, argument), ")");
      }
    }
  }

  /// `if (flag)`, the flag that a copy obeys, the vote about a row, and the promise that no row is missing.
  void find_flags() {
    for_each_of("if (", [&](std::size_t at) { find_flag(at + 4); });
    for_each_of("cp_async(", [&](std::size_t at) { find_flag(text_.rfind(' ', closing(text_, at + 8)) + 1); });
    constexpr string_view vote = "if (!needs_rescale[";
    for_each_of(vote, [&](std::size_t at) {
      const std::size_t begin = at + vote.size();
      const std::size_t end = text_.find(']', begin);
      add(begin, end, {"of the first row"},
          "([&](AttuneSite site) { return site.chosen == 0 ? 0 : " + std::string(text_.substr(begin, end - begin)) +
              "; }(",
          "))");
    });
    for (const string_view call : {"request<false>(", "copy<false>("}) {
      for_each_of(call, [&](std::size_t at) {
        const std::size_t begin = text_.find_first_not_of(' ', line_begin(at));
        const std::size_t end = text_.find(';', at) + 1;
        std::string wrong(text_.substr(begin, end - begin));
        wrong.replace(at - begin + call.find("false"), 5, "true");
        add_statement(begin, end, {{"no row is missing", wrong}});
      });
    }
  }

  template <class Function>
  void for_each_of(string_view piece, const Function& found) {
    for (std::size_t at = text_.find(piece); at != npos; at = text_.find(piece, at + 1)) {
      if (open_[at]) found(at);
    }
  }

  void find_flag(std::size_t begin) {
    std::size_t end = begin;
    while (is_word(text_[end])) ++end;
    if (text_[end] != ')' || constants_.contains(text_.substr(begin, end - begin))) return;
    add(begin, end, {"flag always true", "flag always false"}, "",
        fmt::format(".flag({})", text_.substr(begin, end - begin)));
  }

  /// The operator that stands at `at`, spaces around it.
  [[nodiscard]] std::optional<Operator> operator_at(std::size_t at) const {
    if (at == 0 || text_[at - 1] != ' ') return std::nullopt;
    const std::size_t end = std::min(text_.find_first_of(" \n", at), text_.size());
    const auto* const found = std::ranges::find(operators, text_.substr(at, end - at), &Operator::token);
    return found == operators.end() ? std::nullopt : std::optional(*found);
  }

  /// Whether the operand that ends or begins at `at` is made of constants alone. Operators that bind weaker than
  /// `kind` end it.
  [[nodiscard]] bool constant_operand(std::size_t at, int direction, Kind kind) const {
    int depth = 0;
    bool constant = true;
    for (std::size_t i = at; i > 0 && i < text_.size(); i += static_cast<std::size_t>(direction)) {
      const char c = text_[i];
      if (c == (direction > 0 ? '(' : ')')) ++depth;
      if (c == (direction > 0 ? ')' : '(') && --depth < 0) break;
      if (depth == 0 && (string_view(",;?={}").find(c) != npos) && !operator_at(i) && !operator_at(i - 1)) break;
      if (depth == 0 && c == ':' && text_[i - 1] == ' ') break;
      if (const auto found = operator_at(i); found && depth == 0) {
        if (found->kind == Kind::logic || (kind == Kind::arithmetic && found->kind == Kind::relation)) break;
      }
      if (!is_word(c) || (direction > 0 ? is_word(text_[i - 1]) : is_word(text_[i + 1]))) continue;
      if (word_at(i) == "return") break;
      constant = constant && constant_word(i);
    }
    return constant;
  }

  [[nodiscard]] string_view word_at(std::size_t inside) const {
    std::size_t begin = inside;
    std::size_t end = inside;
    while (is_word(text_[begin - 1])) --begin;
    while (is_word(text_[end])) ++end;
    return text_.substr(begin, end - begin);
  }

  [[nodiscard]] bool constant_word(std::size_t inside) const {
    const string_view word = word_at(inside);
    const auto begin = static_cast<std::size_t>(word.data() - text_.data());
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 || text_[begin + word.size()] == ':') return true;
    return text_[begin - 1] != '.' && constants_.contains(word);
  }

  /// Whether the arithmetic of this line decides about a mask or a bound.
  [[nodiscard]] bool bounds_arithmetic(std::size_t at) const {
    const string_view here = section(at);
    if (here == "blocks/mask.cuh" || here == "blocks/schedule.cuh") return true;
    const string_view line = line_at(at);
    for (const string_view sign : {"limit(", "mask", "rows_left = ", "columns_left = "}) {
      if (line.find(sign) != npos) return true;
    }
    for (std::size_t i = line_begin(at); i < line_begin(at) + line.size(); ++i) {
      const auto found = open_[i] ? operator_at(i) : std::nullopt;
      if (found && found->kind == Kind::relation && !constant(i, *found)) return true;
    }
    return false;
  }

  [[nodiscard]] bool constant(std::size_t at, const Operator& op) const {
    const bool left = constant_operand(at - 1, -1, op.kind);
    const bool right = constant_operand(at + op.token.size(), 1, op.kind);
    return op.kind == Kind::logic ? left || right : left && right;
  }

  [[nodiscard]] bool wanted(std::size_t at, const Operator& op) const {
    if (section(at) == multiply) return false;
    if (section(at) == "blocks/tile.cuh") return op.token == "^" || op.token == "/" || op.token == "%";
    // When O is rescaled is a choice of speed.
    for (const string_view sign : {"rescale", "grew", "m + bound"}) {
      if (line_at(at).find(sign) != npos) return false;
    }
    if (constant(at, op)) return false;
    return op.kind != Kind::arithmetic || bounds_arithmetic(at);
  }

  /// Whether what the comparison at `at` decides is the same for equal operands, so that it cannot be off by one: the
  /// smaller or larger of two, or their difference where that is positive.
  [[nodiscard]] bool same_for_equals(std::size_t at) const {
    // "a < b ? a : b", "a > b ? a - b : 0", "if (a < b) b = a;"
    static const std::regex choice(
        R"(([\w.]+) [<>]=? ([\w.]+)(?: \? (?:\1 : \2|\2 : \1|\1 - \2 : 0|\2 - \1 : 0)(?![\w.(]| [<>])|\) (?:\1 = \2|\2 = \1);).*)");
    std::size_t begin = at - 1;
    while (begin > line_begin(at) && (is_word(text_[begin - 1]) || text_[begin - 1] == '.')) --begin;
    const string_view line = line_at(at);
    return std::regex_match(line.begin() + (begin - line_begin(at)), line.end(), choice);
  }

  void find_operators() {
    std::vector<std::pair<std::size_t, Operator>> found;  // all of them before any edit closes a piece of the text
    std::vector<std::size_t> divisions;                   // that are only checked
    for (std::size_t i = 1; i < text_.size(); ++i) {
      const auto op = open_[i] ? operator_at(i) : std::nullopt;
      if (op && wanted(i, *op)) {
        found.emplace_back(i, *op);
      } else if (op && (op->token == "/" || op->token == "%") && !constant_operand(i + 1, 1, op->kind)) {
        divisions.push_back(i);
      }
    }
    for (const std::size_t at : divisions) {
      const char token = text_[at];
      add(at, at + 1, {}, fmt::format("{} ", token), fmt::format(" {}", token));
    }
    std::map<std::pair<std::size_t, string_view>, int> occurrences;  // of an operator in a line
    for (const auto& [at, op] : found) {
      const int occurrence = ++occurrences[{line_begin(at), op.token}];
      const std::string name =
          occurrence == 1 ? fmt::format("'{}'", op.token) : fmt::format("'{}' #{}", op.token, occurrence);
      std::vector<std::string> mutations;
      if (op.kind == Kind::relation) {
        mutations = {name + " always true", name + " always false"};
        const bool tells_equals = !op.neighbour.empty() && !same_for_equals(at);
        if (tells_equals) mutations.push_back(fmt::format("{} becomes '{}'", name, op.neighbour));
      } else {
        mutations = {name + " left operand only"};
        if (op.kind == Kind::logic) mutations.push_back(name + " right operand only");
        if (op.token == "^") mutations.push_back(name + " becomes '+'");
      }
      add(at, at + op.token.size(), mutations, fmt::format("{} ", op.token), fmt::format(" {}", op.token));
    }
  }

  static constexpr string_view multiply = "blocks/multiply.cuh";  // neither masks nor bounds nor order: products

  string_view text_;
  std::vector<bool> open_;  ///< which characters may be part of a site
  std::vector<int> section_of_;
  std::vector<std::string> sections_;
  std::set<std::string, std::less<>> constants_;
  std::vector<Edit> edits_;
};

}  // namespace

Instrumented instrument(string_view text) { return Reader(text).instrument(); }

}  // namespace attune::mutation_tests
