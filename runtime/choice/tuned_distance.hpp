// Which row of a table of tuned problems answers for a problem that has no row of its own.
//
// A row is for the same operation, element type, head dimensions, mask (none, causal, window) and features (softcap,
// ragged, dropout, pages, rotation, automatic parts or so many, sums in any order): with another of these other kernels
// come into question (kind_of()). Sizes may differ. The distance adds up by how many powers of two each is off,
// weighted by what it decides:
//
//   1    seqlen_q            how many rows a tile has to fill: B_r
//   1    heads_q / heads_kv  the same where heads are packed, else what shares keys and values in L2
//   0.5  seqlen_k            steps of a tile, of which any tile soon has enough: B_c and stages
//   0.5  batch x heads_kv    rounds of thread blocks, which matter less the more there are
//   0.25 page_size           how keys are fetched
//
// Gradients have their tiles of keys, whose steps are queries: there seqlen_k has the place of seqlen_q and the
// reverse. With a window the steps are what a row sees; of a ragged batch lengths are its means, as the host knows no
// others. Beyond a distance of 3 (eight times the queries, four times both lengths) the heuristic knows better. Of rows
// equally far the first counts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/choice/tuned.hpp"

namespace attune {

inline constexpr float tuned_limit = 3;

/// Whether tables may have rows for an operation's problems.
constexpr bool has_tuned_rows(Operation operation) {
  return []<class... Ps>(Operation one, const std::variant<Ps...>* /*list*/) {
    return ((one == Ps::operation) || ...);
  }(operation, static_cast<const TunedProblem*>(nullptr));
}

/// A problem as rows are compared with it.
struct TunedShape {
  std::uint64_t kind = 0;        ///< equal where a row can answer at all
  std::array<float, 5> sizes{};  ///< log2, in the order above
};

TunedShape tuned_shape(const TunedProblem& problem);

/// Between two of the same kind.
float tuned_distance(const TunedShape& a, const TunedShape& b);

/// What a table says about one problem: the row that decides, or why none does.
struct TunedVerdict {
  std::optional<TunedRow> row;  ///< the one that applies, else the nearest; nothing where none is of the problem's kind
  double distance = 0;
  bool applies = false;  ///< nothing stands against the row
  std::string reason;    ///< why its variant does not serve; empty where it does
  std::string gpu;       ///< that the table was measured on

  /// A line of explanation for a person; empty where nobody asked.
  [[nodiscard]] std::string text() const;
};

/// The rows of one table on one GPU, ready to be searched.
class TunedRows {
 public:
  /// Of a table measured on this device; it outlives the rows.
  TunedRows(const TunedTable& table, Device device);

  /// The nearest row that applies: 1 for the table's first; 0 where none does. Quick for what the calling thread asked
  /// about last; takes no lock.
  [[nodiscard]] unsigned number(const ProblemView& problem) const;

  /// The row of that number; null for 0.
  [[nodiscard]] const TunedRow* row(unsigned number) const { return number == 0 ? nullptr : &table_->rows[number - 1]; }

  /// The nearest row that applies or, where none does, the nearest, with what stands against it.
  [[nodiscard]] TunedVerdict match(const ProblemView& problem) const;

 private:
  template <class P>
  [[nodiscard]] unsigned remembered(const P& problem) const;
  template <class P>
  [[nodiscard]] unsigned nearest(const P& problem) const;
  template <class P>
  [[nodiscard]] TunedVerdict explain(const P& problem) const;

  const TunedTable* table_;
  Device device_;
  std::vector<TunedShape> shapes_;           ///< of the rows
  std::array<bool, operation_count> has_{};  ///< rows of that operation
  std::uint64_t id_ = 0;                     ///< rows that answer alike have the same; never 0
};

}  // namespace attune
