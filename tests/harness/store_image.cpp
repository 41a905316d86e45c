#include "tests/harness/store_image.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference.hpp"

namespace attune::testing {
namespace {

constexpr std::size_t guard = 256;  // elements around each tensor

template <class T, std::size_t count>
T one_of(Random& random, const std::array<T, count>& values) {
  return values[static_cast<std::size_t>(random.below(count))];
}

int up_to(Random& random, int most) { return static_cast<int>(random.below(static_cast<std::uint64_t>(most) + 1)); }

bool once_in(Random& random, int times) { return random.below(static_cast<std::uint64_t>(times)) == 0; }

std::vector<std::int64_t> shuffled(Random& random, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

void fill_with_bits(Random& random, std::vector<std::uint16_t>& memory) {
  std::ranges::generate(memory, [&] { return static_cast<std::uint16_t>(random()); });
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
  const std::vector<std::int64_t> order = shuffled(random, room);
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
  const std::vector<std::int64_t> order = shuffled(random, problem.pages);
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
  problem.head_dim = one_of(random, std::array{8, 16, 40, 64, 80, 96, 128, 192, 256});
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
  Random random(seed);
  // K and V alternate: rows of one buffer, as a projection of both leaves them.
  const std::size_t new_elements =
      std::size_t{2} * problem.batch * problem.tokens * problem.heads_kv * problem.head_dim;
  memory_.fresh.resize(new_elements + 2 * guard);
  fill_with_bits(random, memory_.fresh);
  if (problem.rotates()) {
    const std::vector<std::uint16_t> numbers = random_values(problem.dtype, new_elements, seed);
    std::ranges::copy(numbers, memory_.fresh.begin() + guard);
  }
  const std::size_t angles = static_cast<std::size_t>(problem.rotations) * problem.rotary_dim / 2;
  sin_first_ = guard + angles + guard;
  memory_.angles.resize(sin_first_ + angles + guard);
  fill_with_bits(random, memory_.angles);
  for (std::size_t i = 0; i < angles; ++i) {
    const double angle = random.uniform() * 7;
    memory_.angles[guard + i] = to_storage(problem.dtype, static_cast<float>(std::cos(angle)));
    memory_.angles[sin_first_ + i] = to_storage(problem.dtype, static_cast<float>(std::sin(angle)));
  }
  memory_.slots = case_.slots;
  for (const auto* numbers : {&case_.lengths, &case_.table, &case_.positions}) {
    memory_.ints.insert(memory_.ints.end(), numbers->begin(), numbers->end());
  }
  const std::size_t cache_elements =
      static_cast<std::size_t>(problem.pages) * problem.page_size * problem.heads_kv * problem.head_dim;
  k_first_ = guard;
  v_first_ = k_first_ + cache_elements + guard;
  memory_.cache.resize(v_first_ + cache_elements + guard);
  fill_with_bits(random, memory_.cache);
}

attune_store_kv_args StoreImage::args(void* fresh, void* angles, void* slots, void* ints, void* cache) const {
  const StoreProblem& problem = case_.problem;
  const std::int64_t dim = problem.head_dim;
  const auto tensor = [&](void* memory, std::size_t first, std::int64_t rows, bool heads_outermost,
                          std::int64_t spread) {
    return attune_tensor{static_cast<std::uint16_t*>(memory) + first, spread * rows * problem.heads_kv * dim,
                         spread * (heads_outermost ? dim : dim * problem.heads_kv),
                         spread * (heads_outermost ? dim * rows : dim)};
  };
  const auto numbers = [&](const std::vector<std::int32_t>& values, std::size_t first) {
    return values.empty() ? nullptr : static_cast<const std::int32_t*>(ints) + first;
  };
  attune_store_kv_args args{};
  args.struct_size = sizeof(args);
  args.dtype = problem.dtype == Dtype::fp16 ? ATTUNE_FP16 : ATTUNE_BF16;
  args.k_new = tensor(fresh, new_offset(false, 0, 0, 0), problem.tokens, case_.new_heads_outermost, 2);
  args.v_new = tensor(fresh, new_offset(true, 0, 0, 0), problem.tokens, case_.new_heads_outermost, 2);
  args.k = tensor(cache, k_first_, problem.page_size, case_.k_heads_outermost, 1);
  args.v = tensor(cache, v_first_, problem.page_size, case_.v_heads_outermost, 1);
  args.slot_mapping = case_.slots.empty() ? nullptr : static_cast<const std::int64_t*>(slots);
  args.seqlens_k = numbers(case_.lengths, 0);
  args.block_table = numbers(case_.table, case_.lengths.size());
  args.positions = numbers(case_.positions, case_.lengths.size() + case_.table.size());
  if (problem.rotates()) {
    args.rotary_cos = static_cast<const std::uint16_t*>(angles) + guard;
    args.rotary_sin = static_cast<const std::uint16_t*>(angles) + sin_first_;
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

std::size_t StoreImage::new_offset(bool value, int sequence, int token, int head) const {
  const StoreProblem& problem = case_.problem;
  const std::size_t inside = case_.new_heads_outermost ? static_cast<std::size_t>(head) * problem.tokens + token
                                                       : static_cast<std::size_t>(token) * problem.heads_kv + head;
  const std::size_t row = static_cast<std::size_t>(sequence) * problem.tokens * problem.heads_kv + inside;
  return guard + (2 * row + (value ? 1 : 0)) * problem.head_dim;
}

std::size_t StoreImage::cache_offset(bool value, const Place& place, int head) const {
  const StoreProblem& problem = case_.problem;
  const bool heads_outermost = value ? case_.v_heads_outermost : case_.k_heads_outermost;
  const std::size_t inside = heads_outermost ? static_cast<std::size_t>(head) * problem.page_size + place.token
                                             : static_cast<std::size_t>(place.token) * problem.heads_kv + head;
  const std::size_t row = static_cast<std::size_t>(place.page) * problem.page_size * problem.heads_kv + inside;
  return (value ? v_first_ : k_first_) + row * problem.head_dim;
}

/// Each rotated element within the rounding of its storage type; `expected` takes over those that are.
void StoreImage::check_rotated(std::vector<std::uint16_t>& expected, const std::vector<std::uint16_t>& cache,
                               std::size_t from, std::size_t to, std::int64_t position) const {
  const StoreProblem& problem = case_.problem;
  const double half_ulp = problem.dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
  const int half = problem.rotary_dim / 2;
  const auto number = [&](std::uint16_t bits) { return static_cast<double>(from_storage(problem.dtype, bits)); };
  for (int i = 0; i < half; ++i) {
    const int first = problem.rotary == Rotary::halves ? i : 2 * i;
    const int second = problem.rotary == Rotary::halves ? i + half : 2 * i + 1;
    const std::size_t angle = static_cast<std::size_t>(position) * half + i;
    const double cosine = number(memory_.angles[guard + angle]);
    const double sine = number(memory_.angles[sin_first_ + angle]);
    const double x = number(memory_.fresh[from + first]);
    const double y = number(memory_.fresh[from + second]);
    const auto check_one = [&](int column, double exact) {
      const double tolerance = half_ulp * std::abs(exact) + 0x1p-21 * (std::abs(x) + std::abs(y)) + 0x1p-25;
      const double error = std::abs(number(cache[to + column]) - exact);
      if (error <= tolerance) expected[to + column] = cache[to + column];  // else the bits differ below
    };
    expected[to + first] = static_cast<std::uint16_t>(~cache[to + first]);
    expected[to + second] = static_cast<std::uint16_t>(~cache[to + second]);
    check_one(first, x * cosine - y * sine);
    check_one(second, x * sine + y * cosine);
  }
}

bool StoreImage::agrees(const std::vector<std::uint16_t>& cache) const {
  const StoreProblem& problem = case_.problem;
  std::vector<std::uint16_t> expected = memory_.cache;
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int token = 0; token < problem.tokens; ++token) {
      const Place place = place_of(sequence, token);
      if (place.page < 0) continue;
      const std::int64_t position = position_of(sequence, token);
      const bool rotates = problem.rotates() && position >= 0 && position < problem.rotations;
      for (int head = 0; head < problem.heads_kv; ++head) {
        for (const bool value : {false, true}) {
          std::copy_n(memory_.fresh.begin() + new_offset(value, sequence, token, head), problem.head_dim,
                      expected.begin() + cache_offset(value, place, head));
        }
        if (!rotates) continue;
        check_rotated(expected, cache, new_offset(false, sequence, token, head), cache_offset(false, place, head),
                      position);
      }
    }
  }
  return expected == cache;
}

}  // namespace attune::testing
