// Expressions of scores and masks: what a spec may say of one query and one key, as a typed tree.
//
//   s  the scaled score, after a soft cap where there is one (of scores alone)
//   q  the query's row in its sequence of this call       p  its position among the keys: q + seqlen_k - seqlen_q
//   k  the key's position in its sequence                 h, hk  the heads of Q and of K and V       b  the sequence
//
// There are three types: boolean, integer (32 bits, and no expression that may leave them) and real (fp32 in kernels,
// float64 on the host). Integers become reals where they meet one.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace attune::expression {

enum class Type { boolean, integer, real };

/// "a boolean", "an integer", "a real"
std::string_view type_text(Type type);

enum class Name { s, q, p, k, h, hk, b };
inline constexpr std::array<std::string_view, 7> name_words{"s", "q", "p", "k", "h", "hk", "b"};

enum class Op {
  number,
  name,
  lookup,   ///< of a parameter, its indices the parts
  convert,  ///< an integer to a real
  negate,
  invert,  ///< not
  add,
  subtract,
  multiply,
  divide,        ///< of reals
  floor_divide,  ///< of integers, rounded down, and ...
  remainder,     ///< ... what it leaves, from 0 up to the divisor
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  unequal,
  both,    ///< and
  either,  ///< or
  minimum,
  maximum,
  absolute,
  exp2,
  log2,
  tanh,
  select,  ///< select(condition, where it holds, where not)
};

/// One operation with its operands.
struct Node {
  Op op = Op::number;
  Type type = Type::integer;
  double number = 0;          ///< of a number, of which a real may be infinite
  int index = 0;              ///< of a name or a parameter
  std::vector<Node> parts{};  ///< the operands

  bool operator==(const Node&) const = default;
};

/// What one dimension of a parameter is counted by.
enum class Per { head, kv_head, batch, query, position, fixed };
inline constexpr std::array<std::string_view, 5> per_words{"head", "kv_head", "batch", "query", "position"};

struct Dimension {
  Per per = Per::fixed;
  int extent = 0;  ///< of a fixed one

  auto operator<=>(const Dimension&) const = default;

  /// "head", "32"
  [[nodiscard]] std::string text() const;
};

/// An array of a call, contiguous.
struct Parameter {
  std::string name;
  Type type = Type::real;  ///< real: fp32, integer: int32
  std::vector<Dimension> per;

  auto operator<=>(const Parameter&) const = default;

  /// "slope: fp32[head]"
  [[nodiscard]] std::string text() const;
};

/// What an expression is for: a score is a number, a mask a boolean without s.
enum class Use { score, mask };

/// A checked expression with the parameters that it reads, in the order in which it first does.
struct Expression {
  Use use = Use::score;
  Node root;
  std::vector<Parameter> parameters;

  bool operator==(const Expression&) const = default;

  /// One spelling for all that mean the same tree: "s + slope[h] * (k - p)".
  [[nodiscard]] std::string formula() const;

  /// The same with its parameters: "s + slope[h] * (k - p) where slope: fp32[head]".
  [[nodiscard]] std::string text() const;

  /// For names of kernels: what it reads, and 8 hex digits of its text's hash: "slope_1f4a90c2".
  [[nodiscard]] std::string slug() const;
};

// Limits of expressions and of the calls that may use them, whose integers then have 32 bits.
inline constexpr std::size_t most_characters = 16384;
inline constexpr int most_depth = 48;    ///< parentheses, calls and indices inside of each other, minus and not
inline constexpr int most_nodes = 2048;  ///< operations, numbers and names
inline constexpr int most_parameters = 8;
inline constexpr int most_dimensions = 4;
inline constexpr int most_positions = 1 << 24;  ///< rows and keys of a sequence
inline constexpr int most_heads = 1 << 16;
inline constexpr int most_sequences = 1 << 20;
inline constexpr int most_extent = 1 << 24;  ///< of a fixed dimension

}  // namespace attune::expression
