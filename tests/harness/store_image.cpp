#include "tests/harness/store_image.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference_rotation.hpp"
#include "tests/harness/random_choice.hpp"

namespace attune::testing {
namespace {

std::vector<std::int64_t> shuffled_numbers(Random& random, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return shuffled(std::move(order), random);
}

constexpr auto least_int = std::numeric_limits<std::int32_t>::min();
constexpr auto most_int = std::numeric_limits<std::int32_t>::max();

/// Each token somewhere in the cache, some nowhere.
void add_slots(Random& random, StoreCase& one) {
  StoreProblem& problem = one.problem;
  problem.page_size = one_of(random, std::array{1, 2, 16, 64, 256});
  problem.pages = 1 + up_to(random, 5);
  const std::int64_t room = static_cast<std::int64_t>(problem.pages) * problem.page_size;
  const std::array nowhere{std::int64_t{-1},
                           std::int64_t{-2},
                           room,
                           room + problem.page_size,
                           std::int64_t{1} << 32U,
                           std::numeric_limits<std::int64_t>::max(),
                           std::numeric_limits<std::int64_t>::min()};
  const std::vector<std::int64_t> order = shuffled_numbers(random, room);
  for (int i = 0; i < problem.batch * problem.tokens; ++i) {
    const bool somewhere = i < room && !once_in(random, 4);
    one.slots.push_back(somewhere ? order[static_cast<std::size_t>(i)] : one_of(random, nowhere));
  }
}

/// Behind the keys that are there; some sequences have no room left.
void append(Random& random, StoreCase& one) {
  StoreProblem& problem = one.problem;
  const bool paged = !once_in(random, 3);
  problem.page_size = paged ? one_of(random, std::array{1, 2, 16, 64, 256}) : problem.tokens + up_to(random, 40);
  problem.table_width = paged ? 1 + up_to(random, 5) : 1;
  problem.pages = problem.batch * problem.table_width + up_to(random, 2);
  const int room = problem.table_width * problem.page_size;
  if (!once_in(random, 6)) {
    const std::array edges{0, room, std::max(0, room - problem.tokens), room - 1, -1, -3, most_int, least_int};
    for (int i = 0; i < problem.batch; ++i) {
      one.lengths.push_back(once_in(random, 3) ? one_of(random, edges) : up_to(random, room));
    }
  }
  if (problem.table_width == 1 && once_in(random, 2)) return;
  const std::array nowhere{-1, problem.pages, most_int, least_int};
  const std::vector<std::int64_t> order = shuffled_numbers(random, problem.pages);
  for (int i = 0; i < problem.batch * problem.table_width; ++i) {
    const bool somewhere = !once_in(random, 5);
    one.table.push_back(somewhere ? static_cast<std::int32_t>(order[static_cast<std::size_t>(i)])
                                  : one_of(random, nowhere));
  }
}

void add_rotation(Random& random, StoreCase& one) {
  StoreProblem& problem = one.problem;
  problem.rotary = static_cast<Rotary>(random.below(3));
  if (problem.head_dim < 16) problem.rotary = Rotary::none;
  if (!problem.rotates()) return;
  problem.rotary_dim = 16 * (1 + up_to(random, problem.head_dim / 16 - 1));
  problem.rotations = 1 + up_to(random, 400);
  if (once_in(random, 2)) return;
  for (int i = 0; i < problem.batch * problem.tokens; ++i) {
    const std::array outside{-1, problem.rotations, most_int, least_int};
    one.positions.push_back(once_in(random, 6) ? one_of(random, outside) : up_to(random, problem.rotations - 1));
  }
}

}  // namespace

std::string StoreCase::text() const {
  return fmt::format("{} width {} slots {} lengths {} table {} positions {} rotations {}{}{}{}", problem.text(),
                     problem.table_width, fmt::join(slots, ","), fmt::join(lengths, ","), fmt::join(table, ","),
                     fmt::join(positions, ","), problem.rotations, new_heads_outermost ? " new heads outermost" : "",
                     k_heads_outermost ? " K heads outermost" : "", v_heads_outermost ? " V heads outermost" : "");
}

StoreCase random_store_case(Random& random) {
  StoreCase one;
  StoreProblem& problem = one.problem;
  problem.dtype = once_in(random, 2) ? Dtype::bf16 : Dtype::fp16;
  problem.batch = 1 + up_to(random, 3);
  problem.tokens = once_in(random, 3) ? 1 : 1 + up_to(random, 30);
  problem.heads_kv = 1 + up_to(random, 3);
  problem.head_dim = one_of(random, std::array{1, 8, 16, 40, 59, 64, 80, 111, 128, 192, 256});
  if (once_in(random, 2)) {
    add_slots(random, one);
    if (once_in(random, 2)) {  // for positions alone
      for (int i = 0; i < problem.batch; ++i) one.lengths.push_back(up_to(random, 300));
    }
  } else {
    append(random, one);
  }
  add_rotation(random, one);
  one.new_heads_outermost = once_in(random, 2);
  one.k_heads_outermost = once_in(random, 2);
  one.v_heads_outermost = once_in(random, 2);
  return one;
}

StoreImage::StoreImage(StoreCase one, std::uint64_t seed) : case_(std::move(one)) {
  const StoreProblem& problem = case_.problem;
  const auto cache = [&](bool heads_outermost) {
    return PlacedTensor::laid_out(layout_of(heads_outermost), problem.pages, problem.page_size, problem.heads_kv,
                                  problem.head_dim);
  };
  const Angles angles =
      random_angles(problem.dtype, static_cast<std::size_t>(problem.rotations) * problem.rotary_dim / 2, seed + 1000);
  Places places;
  // K and V alternate: rows of one buffer, as a projection of both leaves them.
  const PlacedTensor both = PlacedTensor::laid_out(layout_of(case_.new_heads_outermost), problem.batch, problem.tokens,
                                                   problem.heads_kv, 2 * padded_head_dim(problem.head_dim))
                                .in(places);
  new_k_ = new_v_ = both;
  new_k_.head_dim = new_v_.head_dim = problem.head_dim;
  new_v_.first += static_cast<std::size_t>(both.head_dim / 2);
  cos_ = places.add(angles.cos);
  sin_ = places.add(angles.sin);
  slots_ = places.add(case_.slots);
  lengths_ = places.add(case_.lengths);
  table_ = places.add(case_.table);
  positions_ = places.add(case_.positions);
  k_ = cache(case_.k_heads_outermost).in(places);
  v_ = cache(case_.v_heads_outermost).in(places);
  memory_ = places.memory();
  Random random(seed);
  std::ranges::generate(memory_, [&] { return static_cast<std::uint16_t>(random()); });
  if (problem.rotates()) both.fill(memory_, random_values(problem.dtype, both.elements(), seed));
  put(memory_, cos_, angles.cos);
  put(memory_, sin_, angles.sin);
  put(memory_, slots_, case_.slots);
  put(memory_, lengths_, case_.lengths);
  put(memory_, table_, case_.table);
  put(memory_, positions_, case_.positions);
}

attune_store_kv_args StoreImage::args(void* memory) const {
  const StoreProblem& problem = case_.problem;
  attune_store_kv_args args{};
  args.struct_size = sizeof(args);
  args.dtype = problem.dtype == Dtype::fp16 ? ATTUNE_FP16 : ATTUNE_BF16;
  args.k_new = new_k_.at(memory);
  args.v_new = new_v_.at(memory);
  args.k = k_.at(memory);
  args.v = v_.at(memory);
  args.slot_mapping = array_at(memory, slots_, case_.slots);
  args.seqlens_k = array_at(memory, lengths_, case_.lengths);
  args.block_table = array_at(memory, table_, case_.table);
  args.positions = array_at(memory, positions_, case_.positions);
  if (problem.rotates()) {
    args.rotary_cos = at<const void>(memory, cos_);
    args.rotary_sin = at<const void>(memory, sin_);
  }
  args.batch = problem.batch;
  args.tokens = problem.tokens;
  args.heads_kv = problem.heads_kv;
  args.head_dim = problem.head_dim;
  args.page_size = problem.page_size;
  args.pages = problem.pages;
  args.table_width = problem.table_width;
  args.rotary = static_cast<attune_rotary>(problem.rotary);
  args.rotary_dim = problem.rotary_dim;
  args.rotations = problem.rotations;
  return args;
}

StoreImage::Place StoreImage::place_of(int sequence, int token) const {
  const StoreProblem& problem = case_.problem;
  constexpr Place nowhere{-1, 0};
  if (!case_.slots.empty()) {
    const std::int64_t slot = case_.slots[static_cast<std::size_t>(sequence) * problem.tokens + token];
    const std::int64_t room = static_cast<std::int64_t>(problem.pages) * problem.page_size;
    return slot < 0 || slot >= room ? nowhere : Place{slot / problem.page_size, slot % problem.page_size};
  }
  const std::int64_t before = case_.lengths.empty() ? 0 : case_.lengths[static_cast<std::size_t>(sequence)];
  const std::int64_t key = before + token;
  if (key < 0 || key >= static_cast<std::int64_t>(problem.table_width) * problem.page_size) return nowhere;
  const std::size_t entry = static_cast<std::size_t>(sequence) * problem.table_width + key / problem.page_size;
  const std::int64_t page = case_.table.empty() ? sequence : case_.table[entry];
  return page < 0 || page >= problem.pages ? nowhere : Place{page, key % problem.page_size};
}

std::int64_t StoreImage::position_of(int sequence, int token) const {
  if (!case_.positions.empty()) {
    return case_.positions[static_cast<std::size_t>(sequence) * case_.problem.tokens + token];
  }
  return (case_.lengths.empty() ? 0 : std::int64_t{case_.lengths[static_cast<std::size_t>(sequence)]}) + token;
}

Memory StoreImage::with_new_rows() const {
  const StoreProblem& problem = case_.problem;
  const HostRotation rotation{problem.dtype,
                              problem.rotary,
                              problem.rotary_dim,
                              problem.rotations,
                              memory_.data() + cos_ / 2,
                              memory_.data() + sin_ / 2};
  Memory expected = memory_;
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int token = 0; token < problem.tokens; ++token) {
      const Place place = place_of(sequence, token);
      if (place.page < 0) continue;
      for (int head = 0; head < problem.heads_kv; ++head) {
        for (const bool value : {false, true}) {
          const std::size_t from = (value ? new_v_ : new_k_).of(sequence, token, head);
          const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(from);
          std::vector<std::uint16_t> row(first, first + problem.head_dim);
          if (!value) row = rotated_row(rotation, std::move(row), position_of(sequence, token));
          std::ranges::copy(
              row, expected.begin() + static_cast<std::ptrdiff_t>((value ? v_ : k_).of(place.page, place.token, head)));
        }
      }
    }
  }
  return expected;
}

}  // namespace attune::testing
