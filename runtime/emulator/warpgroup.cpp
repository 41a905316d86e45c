#include "runtime/emulator/warpgroup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "runtime/emulator/matrix_descriptor.hpp"

namespace attune::emulator {
namespace {

constexpr std::uint32_t poison_bits = 0x7fc0dead;  // a NaN that no arithmetic makes
constexpr std::uint64_t longest_flight = 100;      // ticks
constexpr unsigned chunk = 8;                      // elements

/// Where D's i-th register of a thread is in the matrix 64 x columns.
std::size_t place_of(unsigned thread, unsigned i, unsigned columns) {
  const unsigned lane = thread % warp_size;
  const unsigned row = thread / warp_size * 16 + lane / 4 + i % 4 / 2 * 8;
  return static_cast<std::size_t>(row) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2;
}

bool is_poison(const float* registers, unsigned count) {
  bool all = true;
  for (unsigned i = 0; i < count; ++i) all = all && std::bit_cast<std::uint32_t>(registers[i]) == poison_bits;
  return all;
}

/// What four registers hold now; they may be those of a scope that is over.
std::array<std::uint32_t, 4> words_at(const std::uint32_t* registers) {
  std::array<std::uint32_t, 4> words{};
  std::memcpy(words.data(), registers, sizeof(words));
  return words;
}

bool overlap(const float* a, unsigned a_count, const float* b, unsigned b_count) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b);
  return begin_a < begin_b + b_count * sizeof(float) && begin_b < begin_a + a_count * sizeof(float);
}

/// A K-major operand is rows x 16, an MN-major one 16 x rows.
void read_operand(Dtype dtype, std::uint64_t descriptor, Major major, unsigned rows, SharedMemory& shared, float* to) {
  for (const unsigned address : chunk_addresses(descriptor, major, rows)) {
    to_floats(dtype, shared.at(address), chunk, to);
    to += chunk;
  }
}

/// From rows x columns to columns x rows.
void transpose(const float* from, unsigned rows, unsigned columns, float* to) {
  for (unsigned i = 0; i < rows; ++i) {
    for (unsigned j = 0; j < columns; ++j) to[std::size_t{j} * rows + i] = from[std::size_t{i} * columns + j];
  }
}

}  // namespace

void Warpgroup::reset(std::uint64_t seed) {
  random_ = Random(seed);
  now_ = 0;
  warps_ = {};
  accumulators_.clear();
  fragments_.clear();
  pending_.clear();
}

/// Whether every warp has waited for this group of its own.
bool Warpgroup::is_over(const std::array<std::uint32_t, warpgroup_warps>& group) const {
  for (unsigned w = 0; w < warpgroup_warps; ++w) {
    if (warps_[w].finished < group[w]) return false;
  }
  return true;
}

/// The accumulator of these registers, an older one or a new one. Others that have some of them are over, or this is a
/// mistake.
std::optional<Warpgroup::Problem> Warpgroup::find_accumulator(const Product& product, Accumulator*& found) {
  found = nullptr;
  for (const auto& one : accumulators_) {
    if (one->registers == product.D && one->columns == product.columns) found = one.get();
  }
  if (found != nullptr) return std::nullopt;
  for (const auto& one : accumulators_) {
    for (unsigned t = 0; t < warpgroup_threads; ++t) {
      if (!is_over(one->group) && overlap(one->registers[t], one->columns / 2, product.D[t], product.columns / 2)) {
        return Problem{t, fmt::format("the product of line {} still has some of these registers", one->line)};
      }
    }
  }
  std::erase_if(accumulators_, [&](const auto& one) {
    return overlap(one->registers[0], one->columns / 2, product.D[0], product.columns / 2);
  });
  found = accumulators_.emplace_back(std::make_unique<Accumulator>()).get();
  found->registers = product.D;
  found->columns = product.columns;
  found->values.resize(std::size_t{product_rows} * product.columns);
  return std::nullopt;
}

/// From now until it settles them, the registers of D are out of each thread's hands.
std::optional<Warpgroup::Problem> Warpgroup::lend(const Product& product, Accumulator& accumulator) {
  const unsigned count = product.columns / 2;
  for (unsigned t = 0; t < warpgroup_threads; ++t) {
    float* const registers = product.D[t];
    if (accumulator.lent[t]) {
      if (is_poison(registers, count)) continue;
      if (product.accumulate || !is_over(accumulator.group)) {
        return Problem{
            t, fmt::format("registers of D were written while the product of line {} has them", accumulator.line)};
      }
    }
    if (warps_[t / warp_size].fences <= accumulator.settled_after[t]) {
      return Problem{t, "no wgmma_fence since other instructions used the registers of D"};
    }
    if (product.accumulate) {
      const std::vector<float>& settled = accumulator.settled[t];
      if (!settled.empty() && std::memcmp(settled.data(), registers, count * sizeof(float)) != 0) {
        return Problem{t, "registers of D were written since they were settled: a fence orders only what is"};
      }
      for (unsigned i = 0; i < count; ++i) accumulator.values[place_of(t, i, product.columns)] = registers[i];
    }
    std::fill_n(registers, count, std::bit_cast<float>(poison_bits));
    accumulator.lent[t] = true;
  }
  return std::nullopt;
}

std::optional<Warpgroup::Problem> Warpgroup::read_fragment(const Product& product, Pending& pending) {
  auto fragment = std::ranges::find(fragments_, product.A_words, &Fragment::registers);
  const bool is_new = fragment == fragments_.end();
  if (is_new) {
    std::erase_if(fragments_, [&](const Fragment& one) { return one.registers[0] == product.A_words[0]; });
    fragment = fragments_.insert(fragments_.end(), {.registers = product.A_words, .at_fence = {}});
  }
  for (unsigned t = 0; t < warpgroup_threads; ++t) {
    pending.A_words[t] = words_at(product.A_words[t]);
    if (is_new) fragment->at_fence[t] = pending.A_words[t];
    if (warps_[t / warp_size].fences == 0 || fragment->at_fence[t] != pending.A_words[t]) {
      return Problem{t, "no wgmma_fence since other instructions wrote the registers of A"};
    }
  }
  return std::nullopt;
}

std::optional<Warpgroup::Problem> Warpgroup::issue(const Product& product) {
  Pending pending{.product = product, .A_words = {}, .group = {}, .due = std::numeric_limits<std::uint64_t>::max()};
  if (auto problem = find_accumulator(product, pending.accumulator)) return problem;
  if (auto problem = lend(product, *pending.accumulator)) return problem;
  if (product.A_in_registers) {
    if (auto problem = read_fragment(product, pending)) return problem;
  }
  for (unsigned w = 0; w < warpgroup_warps; ++w) pending.group[w] = group(w);
  pending.accumulator->group = pending.group;
  pending.accumulator->line = product.line;
  if (random_.below(2) == 0) pending.due = now_ + 1 + random_.below(longest_flight);
  pending_.push_back(pending);
  return std::nullopt;
}

void Warpgroup::fence(unsigned warp) {
  ++warps_[warp].fences;
  for (Fragment& fragment : fragments_) {
    for (unsigned t = warp * warp_size; t < (warp + 1) * warp_size; ++t) {
      fragment.at_fence[t] = words_at(fragment.registers[t]);
    }
  }
}

std::optional<Warpgroup::Problem> Warpgroup::wait(unsigned warp, unsigned pending, SharedMemory& shared) {
  Warp& self = warps_[warp];
  if (self.committed <= pending) return std::nullopt;
  const std::uint32_t finished = self.committed - pending;
  for (Pending& one : pending_) {
    if (one.group[warp] > finished) break;
    if (one.group[warp] <= self.finished) continue;
    if (!one.done) carry_out(one, shared);
    for (unsigned t = warp * warp_size; one.product.A_in_registers && t < (warp + 1) * warp_size; ++t) {
      if (words_at(one.product.A_words[t]) != one.A_words[t]) {
        return Problem{
            t, fmt::format("registers of A were written while the product of line {} reads them", one.product.line)};
      }
    }
  }
  self.finished = std::max(self.finished, finished);
  std::erase_if(pending_, [&](const Pending& one) { return is_over(one.group); });
  return std::nullopt;
}

std::optional<Warpgroup::Problem> Warpgroup::settle(unsigned thread, float* D, unsigned count) {
  const auto found = std::ranges::find_if(accumulators_, [&](const auto& one) { return one->registers[thread] == D; });
  if (found == accumulators_.end()) return std::nullopt;
  Accumulator& accumulator = **found;
  const unsigned warp = thread / warp_size;
  accumulator.settled_after[thread] = warps_[warp].fences;
  std::vector<float>& settled = accumulator.settled[thread];
  if (!accumulator.lent[thread]) {
    settled.assign(D, D + accumulator.columns / 2);
    return std::nullopt;
  }
  if (accumulator.group[warp] > warps_[warp].finished) {
    return Problem{thread, fmt::format("uses registers of D that the product of line {} still has: no wgmma_wait "
                                       "covers it",
                                       accumulator.line)};
  }
  if (count != accumulator.columns / 2 || !is_poison(D, count)) {
    return Problem{thread,
                   fmt::format("registers of D were written while the product of line {} has them", accumulator.line)};
  }
  for (unsigned i = 0; i < count; ++i) D[i] = accumulator.values[place_of(thread, i, accumulator.columns)];
  settled.assign(D, D + count);
  accumulator.lent[thread] = false;
  return std::nullopt;
}

void Warpgroup::tick(SharedMemory& shared) {
  ++now_;
  for (Pending& one : pending_) {
    if (one.done) continue;
    if (one.due > now_) break;
    carry_out(one, shared);
  }
}

void Warpgroup::carry_out(Pending& pending, SharedMemory& shared) {
  const Product& product = pending.product;
  const unsigned columns = product.columns;
  std::array<float, product_rows * product_depth> A{};
  if (product.A_in_registers) {
    for (unsigned t = 0; t < warpgroup_threads; ++t) {
      for (unsigned w = 0; w < 4; ++w) {
        const unsigned row = t / warp_size * 16 + t % warp_size / 4 + w % 2 * 8;
        to_floats(product.dtype, &pending.A_words[t][w], 2, &A[row * product_depth + t % 4 * 2 + w / 2 * 8]);
      }
    }
  } else if (product.A_major == Major::k) {
    read_operand(product.dtype, product.A, Major::k, product_rows, shared, A.data());
  } else {
    std::array<float, product_rows * product_depth> columns_of_A{};
    read_operand(product.dtype, product.A, Major::mn, product_rows, shared, columns_of_A.data());
    transpose(columns_of_A.data(), product_depth, product_rows, A.data());
  }
  std::vector<float> B(std::size_t{product_depth} * columns);
  if (product.B_major == Major::mn) {
    read_operand(product.dtype, product.B, Major::mn, columns, shared, B.data());
  } else {
    std::vector<float> rows(B.size());
    read_operand(product.dtype, product.B, Major::k, columns, shared, rows.data());
    transpose(rows.data(), columns, product_depth, B.data());
  }
  std::vector<float> sums(columns);
  for (unsigned i = 0; i < product_rows; ++i) {
    std::ranges::fill(sums, 0.0F);
    for (unsigned k = 0; k < product_depth; ++k) {
      const float a = A[i * product_depth + k];
      const float* const row = &B[std::size_t{k} * columns];
      for (unsigned j = 0; j < columns; ++j) sums[j] += a * row[j];
    }
    float* const values = &pending.accumulator->values[std::size_t{i} * columns];
    for (unsigned j = 0; j < columns; ++j) values[j] = product.accumulate ? values[j] + sums[j] : sums[j];
  }
  pending.done = true;
}

}  // namespace attune::emulator
