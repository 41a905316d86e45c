#include "tests/harness/far_calls.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/base/random.hpp"
#include "runtime/lab/reference.hpp"

namespace attune::testing {
namespace {

using Elements = std::vector<std::uint16_t>;

constexpr int head_dim = 64;
constexpr Dtype dtype = Dtype::fp16;
constexpr std::int64_t beyond = (std::int64_t{1} << 32) + 4096;  // elements, which 32 bits count without a sign
constexpr std::size_t element_bytes = sizeof(std::uint16_t);
constexpr float scale = 0.125F;

Elements random_elements(Random& random, std::size_t count) {
  Elements result(count);
  for (std::uint16_t& one : result) one = to_storage(dtype, static_cast<float>(2 * random.uniform() - 1));
  return result;
}

struct Extents {
  int batch;
  int seqlen;
  int heads;

  [[nodiscard]] std::size_t elements() const {
    return static_cast<std::size_t>(batch) * static_cast<std::size_t>(seqlen) * static_cast<std::size_t>(heads) *
           head_dim;
  }
};

/// batch x seqlen x heads x head_dim, contiguous.
HostTensor contiguous(const Elements& elements, const Extents& extents) {
  const long long row = static_cast<long long>(extents.heads) * head_dim;
  return {elements.data(), row * extents.seqlen, row, head_dim};
}

/// Where a tensor is in a memory.
struct Place {
  std::size_t first = 0;   ///< bytes
  attune_tensor tensor{};  ///< its strides
};

/// Places one thing after the other, each at a multiple of 256 bytes.
class Layout {
 public:
  std::size_t take(std::size_t bytes) {
    const std::size_t first = used_;
    used_ = (used_ + bytes + 255) / 256 * 256;
    return first;
  }

  Place tensor(const Extents& extents, attune_tensor strides) {
    const std::int64_t last = (extents.batch - 1) * strides.stride_batch + (extents.seqlen - 1) * strides.stride_seq +
                              (extents.heads - 1) * strides.stride_head + head_dim;
    return {take(static_cast<std::size_t>(last) * element_bytes), strides};
  }

  /// One of whose strides is far, the others as if it were contiguous.
  Place far_tensor(const Extents& extents, Far far) {
    const auto step = [](int extent) { return (beyond / std::max(1, extent - 1) + 7) / 8 * 8; };
    switch (far) {
      case Far::batch:
        return tensor(extents, {nullptr, step(extents.batch), std::int64_t{extents.heads} * head_dim, head_dim});
      case Far::seqlen:
        return tensor(extents, {nullptr, std::int64_t{extents.heads} * head_dim, step(extents.seqlen), head_dim});
      case Far::head:
        return tensor(extents, {nullptr, std::int64_t{extents.seqlen} * head_dim, head_dim, step(extents.heads)});
    }
    return {};
  }

  [[nodiscard]] std::size_t bytes() const { return used_; }

 private:
  std::size_t used_ = 0;
};

/// A memory with what lies in it.
class Memory {
 public:
  Memory(const MakeFarMemory& make, const Layout& layout) : memory_(make(layout.bytes())) {}

  [[nodiscard]] void* at(std::size_t offset) const { return memory_->data() + offset; }
  [[nodiscard]] attune_tensor tensor(const Place& place) const {
    attune_tensor result = place.tensor;
    result.data = at(place.first);
    return result;
  }

  /// Rows of one batch element from `row` on.
  void put(const Place& place, std::int64_t batch, std::int64_t row, int rows, int heads,
           std::span<const std::uint16_t> from) {
    for_rows(place, batch, row, rows, heads, [&](std::size_t offset, std::size_t at) {
      memory_->write(offset, from.data() + at, head_dim * element_bytes);
    });
  }
  [[nodiscard]] Elements get(const Place& place, std::int64_t batch, std::int64_t row, int rows, int heads) const {
    Elements result(static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads) * head_dim);
    for_rows(place, batch, row, rows, heads, [&](std::size_t offset, std::size_t at) {
      memory_->read(result.data() + at, offset, head_dim * element_bytes);
    });
    return result;
  }

  void put_all(const Place& place, const Extents& extents, const Elements& from) {
    const std::size_t one = from.size() / static_cast<std::size_t>(extents.batch);
    for (int b = 0; b < extents.batch; ++b) {
      put(place, b, 0, extents.seqlen, extents.heads, std::span(from).subspan(static_cast<std::size_t>(b) * one, one));
    }
  }
  [[nodiscard]] Elements get_all(const Place& place, const Extents& extents) const {
    Elements result;
    for (int b = 0; b < extents.batch; ++b) {
      const Elements one = get(place, b, 0, extents.seqlen, extents.heads);
      result.insert(result.end(), one.begin(), one.end());
    }
    return result;
  }

  template <class T>
  const T* put_values(std::size_t offset, const std::vector<T>& values) {
    memory_->write(offset, values.data(), values.size() * sizeof(T));
    return static_cast<const T*>(at(offset));
  }
  [[nodiscard]] std::vector<float> floats(std::size_t offset, std::size_t count) const {
    std::vector<float> result(count);
    memory_->read(result.data(), offset, count * sizeof(float));
    return result;
  }

 private:
  template <class Visit>
  static void for_rows(const Place& place, std::int64_t batch, std::int64_t row, int rows, int heads,
                       const Visit& visit) {
    std::size_t at = 0;
    for (int r = 0; r < rows; ++r) {
      for (int h = 0; h < heads; ++h, at += head_dim) {
        const std::int64_t offset =
            batch * place.tensor.stride_batch + (row + r) * place.tensor.stride_seq + h * place.tensor.stride_head;
        visit(place.first + static_cast<std::size_t>(offset) * element_bytes, at);
      }
    }
  }

  std::unique_ptr<FarMemory> memory_;
};

/// Q, K and V of a dense problem, contiguous.
struct Inputs {
  Inputs(const Problem& problem, Random& random)
      : q(random_elements(random, extents_of(problem.batch, problem.seqlen_q, problem.heads_q).elements())),
        k(random_elements(random, extents_of(problem.batch, problem.seqlen_k, problem.heads_kv).elements())),
        v(random_elements(random, k.size())) {}

  static Extents extents_of(int batch, int seqlen, int heads) { return {batch, seqlen, heads}; }

  Elements q;
  Elements k;
  Elements v;
};

void check_output(const Problem& problem, const Inputs& inputs, const Elements& o, const std::vector<float>& lse) {
  const Extents queries{problem.batch, problem.seqlen_q, problem.heads_q};
  const Extents keys{problem.batch, problem.seqlen_k, problem.heads_kv};
  const HostTensor q = contiguous(inputs.q, queries);
  const HostTensor k = contiguous(inputs.k, keys);
  const HostTensor v = contiguous(inputs.v, keys);
  const Comparison comparison =
      compare(problem, o.data(), lse.empty() ? nullptr : lse.data(), reference_attention(problem, q, k, v, scale),
              naive_attention(problem, q, k, v, scale));
  CHECK_MESSAGE(comparison.agrees, comparison.max_error << " of " << comparison.tolerance);
}

/// The same keys in each head of a group, as a stride of 0 has it; which no tensor map describes.
void share_heads(Elements& elements, int heads) {
  const std::size_t row = static_cast<std::size_t>(heads) * head_dim;
  for (std::size_t at = 0; at < elements.size(); at += row) {
    for (std::size_t h = 1; h < static_cast<std::size_t>(heads); ++h) {
      std::copy_n(elements.begin() + static_cast<std::ptrdiff_t>(at), head_dim,
                  elements.begin() + static_cast<std::ptrdiff_t>(at + h * head_dim));
    }
  }
}

constexpr int page_tokens = 16;
constexpr int far_pages = (1 << 22) + 64;  // of 1,024 elements

/// A cache of pages of one head, contiguous.
Place paged_cache(Layout& layout, int page_size, int pages) {
  return layout.tensor({pages, page_size, 1}, {nullptr, std::int64_t{page_size} * head_dim, head_dim, head_dim});
}

/// Pages of a sequence, the last of the cache among them, in any order.
std::vector<std::int32_t> far_table(int pages) { return {pages - 1, 5, pages - 7, pages - 40}; }

/// A sequence's keys into the pages that a table names.
void put_paged(Memory& memory, const Place& cache, const std::vector<std::int32_t>& table, int page_size,
               const Elements& keys) {
  const auto count = static_cast<int>(keys.size() / head_dim);
  for (int key = 0; key < count; ++key) {
    memory.put(cache, table.at(static_cast<std::size_t>(key / page_size)), key % page_size, 1, 1,
               std::span(keys).subspan(static_cast<std::size_t>(key) * head_dim, head_dim));
  }
}

}  // namespace

void check_far_prefill(Registry& registry, const MakeFarMemory& make, Far far, const std::string& family) {
  CAPTURE(static_cast<int>(far));
  const bool mapped = family == "prefill_sm90";
  const Problem problem{.dtype = dtype,
                        .batch = 2,
                        .heads_q = 4,
                        .heads_kv = 2,
                        .seqlen_q = 20,
                        .seqlen_k = 45,
                        .head_dim = head_dim,
                        .causal = true};
  const Extents queries{2, 20, 4};
  const Extents keys{2, 45, 2};
  Layout layout;
  const Place q = layout.far_tensor(queries, far);
  Place k = layout.far_tensor(keys, far);
  const Place v = layout.far_tensor(keys, far);
  const Place o = layout.far_tensor(queries, far);
  const std::size_t lse_count = std::size_t{2} * 4 * 20;
  const std::size_t lse = layout.take(lse_count * sizeof(float));
  Memory memory(make, layout);
  Random random(1);
  Inputs inputs(problem, random);
  if (!mapped) {
    k.tensor.stride_head = 0;
    share_heads(inputs.k, 2);
  }
  memory.put_all(q, queries, inputs.q);
  memory.put_all(k, keys, inputs.k);
  memory.put_all(v, keys, inputs.v);
  const api::Prefill call{.shape = {.dtype = api::Dtype::fp16,
                                    .batch = 2,
                                    .seqlen_q = 20,
                                    .seqlen_k = 45,
                                    .heads_q = 4,
                                    .heads_kv = 2,
                                    .head_dim = head_dim,
                                    .causal = true},
                          .q = memory.tensor(q),
                          .k = memory.tensor(k),
                          .v = memory.tensor(v),
                          .o = memory.tensor(o),
                          .lse = static_cast<float*>(memory.at(lse)),
                          .softmax_scale = scale};
  registry.run(call.args(), nullptr);
  const std::string served = registry.serving(call.args()).now;
  CHECK_MESSAGE(served.starts_with(family), served);
  check_output(problem, inputs, memory.get_all(o, queries), memory.floats(lse, lse_count));
}

void check_far_ragged_prefill(Registry& registry, const MakeFarMemory& make, const std::string& family) {
  const bool mapped = family == "prefill_sm90";
  constexpr int total = (1 << 20) + 4096;
  constexpr int heads = 2;
  constexpr std::int64_t row = 4096;  // elements, of which the heads have a few
  const Problem one{.dtype = dtype,
                    .heads_q = heads,
                    .heads_kv = heads,
                    .seqlen_q = 20,
                    .seqlen_k = 45,
                    .head_dim = head_dim,
                    .causal = true};
  const Extents rows{1, total, heads};
  Layout layout;
  std::array<Place, 4> places{};  // of Q, K, V and O
  for (Place& place : places) place = layout.tensor(rows, {nullptr, 0, row, head_dim});
  auto& [q, k, v, o] = places;
  const std::size_t lse = layout.take(std::size_t{total} * heads * sizeof(float));
  const std::size_t cu_q = layout.take(4 * sizeof(std::int32_t));
  const std::size_t cu_k = layout.take(4 * sizeof(std::int32_t));
  Memory memory(make, layout);
  // A sequence has no more rows than the longest, wherever the next one begins.
  const std::vector<std::int32_t> starts_q{0, 20, total - 20, total};
  const std::vector<std::int32_t> starts_k{0, 45, total - 45, total};
  Random random(2);
  if (!mapped) k.tensor.stride_head = 0;
  std::vector<Inputs> inputs;
  for (std::size_t i = 0; i < 3; ++i) {
    inputs.emplace_back(one, random);
    if (!mapped) share_heads(inputs[i].k, heads);
    memory.put(q, 0, starts_q[i], 20, heads, inputs[i].q);
    memory.put(k, 0, starts_k[i], 45, heads, inputs[i].k);
    memory.put(v, 0, starts_k[i], 45, heads, inputs[i].v);
  }
  const api::Prefill call{.shape = {.dtype = api::Dtype::fp16,
                                    .batch = 3,
                                    .seqlen_q = 20,
                                    .seqlen_k = 45,
                                    .heads_q = heads,
                                    .heads_kv = heads,
                                    .head_dim = head_dim,
                                    .causal = true},
                          .q = memory.tensor(q),
                          .k = memory.tensor(k),
                          .v = memory.tensor(v),
                          .o = memory.tensor(o),
                          .lse = static_cast<float*>(memory.at(lse)),
                          .softmax_scale = scale,
                          .ragged = api::Ragged{.cu_seqlens_q = memory.put_values(cu_q, starts_q),
                                                .cu_seqlens_k = memory.put_values(cu_k, starts_k),
                                                .total_q = total,
                                                .total_k = total}};
  registry.run(call.args(), nullptr);
  const std::string served = registry.serving(call.args()).now;
  CHECK_MESSAGE(served.starts_with(family), served);
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    std::vector<float> own_lse;
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t first = h * total + static_cast<std::size_t>(starts_q[i]);
      const std::vector<float> of_head = memory.floats(lse + first * sizeof(float), 20);
      own_lse.insert(own_lse.end(), of_head.begin(), of_head.end());
    }
    check_output(one, inputs[i], memory.get(o, 0, starts_q[i], 20, heads), own_lse);
  }
}

void check_far_paged_prefill(Registry& registry, const MakeFarMemory& make) {
  const Problem one{.dtype = dtype, .seqlen_q = 20, .seqlen_k = 60, .head_dim = head_dim, .causal = true};
  const Extents queries{1, 20, 1};
  Layout layout;
  const Place q = layout.far_tensor(queries, Far::seqlen);
  const Place o = layout.far_tensor(queries, Far::seqlen);
  const Place k = paged_cache(layout, page_tokens, far_pages);
  const Place v = paged_cache(layout, page_tokens, far_pages);
  const std::vector<std::int32_t> table = far_table(far_pages);
  const std::size_t block_table = layout.take(table.size() * sizeof(std::int32_t));
  const std::size_t used = layout.take(sizeof(std::int32_t));
  Memory memory(make, layout);
  Random random(3);
  const Inputs inputs(one, random);
  memory.put_all(q, queries, inputs.q);
  put_paged(memory, k, table, page_tokens, inputs.k);
  put_paged(memory, v, table, page_tokens, inputs.v);
  const api::Prefill call{
      .shape = {.dtype = api::Dtype::fp16, .seqlen_q = 20, .seqlen_k = 60, .head_dim = head_dim, .causal = true},
      .q = memory.tensor(q),
      .k = memory.tensor(k),
      .v = memory.tensor(v),
      .o = memory.tensor(o),
      .softmax_scale = scale,
      .pages = api::Pages{.block_table = memory.put_values(block_table, table),
                          .seqused_k = memory.put_values(used, std::vector<std::int32_t>{60}),
                          .table_width = static_cast<std::int32_t>(table.size()),
                          .pages = far_pages,
                          .page_size = page_tokens}};
  registry.run(call.args(), nullptr);
  check_output(one, inputs, memory.get_all(o, queries), {});
}

void check_far_paged_decode(Registry& registry, const MakeFarMemory& make, int page_size) {
  CAPTURE(page_size);
  const int pages = static_cast<int>((std::int64_t{far_pages} * page_tokens + page_size - 1) / page_size);
  const int length = 3 * page_size + 2;
  const Problem one{.dtype = dtype, .seqlen_q = 1, .seqlen_k = length, .head_dim = head_dim};
  const Extents query{1, 1, 1};
  Layout layout;
  const Place q = layout.far_tensor(query, Far::head);
  const Place o = layout.far_tensor(query, Far::head);
  const Place k = paged_cache(layout, page_size, pages);
  const Place v = paged_cache(layout, page_size, pages);
  const std::vector<std::int32_t> table = far_table(pages);
  const std::size_t block_table = layout.take(table.size() * sizeof(std::int32_t));
  const std::size_t lengths = layout.take(sizeof(std::int32_t));
  Memory memory(make, layout);
  Random random(4);
  const Inputs inputs(one, random);
  memory.put_all(q, query, inputs.q);
  put_paged(memory, k, table, page_size, inputs.k);
  put_paged(memory, v, table, page_size, inputs.v);
  const api::Decode call{.shape = {.dtype = api::Dtype::fp16,
                                   .head_dim = head_dim,
                                   .max_seqlen_k = length,
                                   .page_size = page_size,
                                   .pages = pages,
                                   .table_width = static_cast<std::int32_t>(table.size()),
                                   .splits = 1},
                         .q = memory.tensor(q),
                         .k = memory.tensor(k),
                         .v = memory.tensor(v),
                         .o = memory.tensor(o),
                         .seqlens_k = memory.put_values(lengths, std::vector<std::int32_t>{length}),
                         .block_table = memory.put_values(block_table, table),
                         .softmax_scale = scale,
                         .check_tables = true};
  registry.run(call.args(), nullptr);
  check_output(one, inputs, memory.get_all(o, query), {});
}

void check_far_decode(Registry& registry, const MakeFarMemory& make, Far far) {
  CAPTURE(static_cast<int>(far));
  constexpr int length = 300;
  const Problem problem{.dtype = dtype,
                        .batch = 2,
                        .heads_q = 4,
                        .heads_kv = 2,
                        .seqlen_q = 2,
                        .seqlen_k = length,
                        .head_dim = head_dim,
                        .causal = true};
  const Extents queries{2, 2, 4};
  const Extents keys{2, length, 2};
  Layout layout;
  const Place q = layout.far_tensor(queries, far);
  const Place k = layout.far_tensor(keys, far);
  const Place v = layout.far_tensor(keys, far);
  const Place o = layout.far_tensor(queries, far);
  const std::size_t lse_count = std::size_t{2} * 4 * 2;
  const std::size_t lse = layout.take(lse_count * sizeof(float));
  api::Decode call{.shape = {.dtype = api::Dtype::fp16,
                             .batch = 2,
                             .seqlen_q = 2,
                             .heads_q = 4,
                             .heads_kv = 2,
                             .head_dim = head_dim,
                             .max_seqlen_k = length,
                             .page_size = length,
                             .pages = 2,
                             .splits = 2},
                   .softmax_scale = scale};
  call.workspace_bytes = registry.workspace_bytes(call.args());
  CHECK(call.workspace_bytes > 0);  // of parts, which combine merges
  const std::size_t workspace = layout.take(call.workspace_bytes);
  Memory memory(make, layout);
  Random random(5);
  const Inputs inputs(problem, random);
  memory.put_all(q, queries, inputs.q);
  memory.put_all(k, keys, inputs.k);
  memory.put_all(v, keys, inputs.v);
  call.q = memory.tensor(q);
  call.k = memory.tensor(k);
  call.v = memory.tensor(v);
  call.o = memory.tensor(o);
  call.lse = static_cast<float*>(memory.at(lse));
  call.workspace = memory.at(workspace);
  registry.run(call.args(), nullptr);
  check_output(problem, inputs, memory.get_all(o, queries), memory.floats(lse, lse_count));
}

void check_long_decode(Registry& registry, const MakeFarMemory& make) {
  constexpr int length = (1 << 20) + 77;
  constexpr int seen = 100;
  constexpr std::int64_t row = 4096;  // elements, of which the head has a few
  const Problem one{.dtype = dtype, .seqlen_q = 1, .seqlen_k = seen, .head_dim = head_dim};
  const Extents query{1, 1, 1};
  Layout layout;
  const Place q = layout.far_tensor(query, Far::head);
  const Place o = layout.far_tensor(query, Far::head);
  const Place k = layout.tensor({1, length, 1}, {nullptr, row * length, row, head_dim});
  const Place v = layout.tensor({1, length, 1}, {nullptr, row * length, row, head_dim});
  Memory memory(make, layout);
  Random random(6);
  const Inputs inputs(one, random);
  memory.put_all(q, query, inputs.q);
  memory.put(k, 0, length - seen, seen, 1, inputs.k);
  memory.put(v, 0, length - seen, seen, 1, inputs.v);
  const api::Decode call{.shape = {.dtype = api::Dtype::fp16,
                                   .head_dim = head_dim,
                                   .max_seqlen_k = length,
                                   .page_size = length,
                                   .window_left = seen - 1,
                                   .splits = 1},
                         .q = memory.tensor(q),
                         .k = memory.tensor(k),
                         .v = memory.tensor(v),
                         .o = memory.tensor(o),
                         .softmax_scale = scale};
  registry.run(call.args(), nullptr);
  check_output(one, inputs, memory.get_all(o, query), {});
}

void check_far_store(Registry& registry, const MakeFarMemory& make, bool by_slots) {
  CAPTURE(by_slots);
  constexpr int tokens = 6;
  constexpr int before = 3 * page_tokens - 2;  // the new keys begin in one page and end in the next
  const Extents fresh{1, tokens, 1};
  Layout layout;
  const Place k_new = layout.far_tensor(fresh, Far::seqlen);
  const Place v_new = layout.far_tensor(fresh, Far::seqlen);
  const Place k = paged_cache(layout, page_tokens, far_pages);
  const Place v = paged_cache(layout, page_tokens, far_pages);
  const std::vector<std::int32_t> table = {1, 2, far_pages - 7, far_pages - 1};
  const std::size_t block_table = layout.take(table.size() * sizeof(std::int32_t));
  const std::size_t lengths = layout.take(sizeof(std::int32_t));
  const std::size_t slots = layout.take(tokens * sizeof(std::int64_t));
  Memory memory(make, layout);
  Random random(7);
  const Elements new_keys = random_elements(random, fresh.elements());
  const Elements new_values = random_elements(random, fresh.elements());
  memory.put_all(k_new, fresh, new_keys);
  memory.put_all(v_new, fresh, new_values);
  std::vector<std::int64_t> places;
  for (int key = before; key < before + tokens; ++key) {
    places.push_back(std::int64_t{table.at(static_cast<std::size_t>(key / page_tokens))} * page_tokens +
                     key % page_tokens);
  }
  api::Store call{.shape = {.dtype = api::Dtype::fp16,
                            .tokens = tokens,
                            .head_dim = head_dim,
                            .page_size = page_tokens,
                            .pages = far_pages},
                  .k_new = memory.tensor(k_new),
                  .v_new = memory.tensor(v_new),
                  .k = memory.tensor(k),
                  .v = memory.tensor(v),
                  .check_tables = true};
  if (by_slots) {
    call.slot_mapping = memory.put_values(slots, places);
  } else {
    call.shape.table_width = static_cast<std::int32_t>(table.size());
    call.seqlens_k = memory.put_values(lengths, std::vector<std::int32_t>{before});
    call.block_table = memory.put_values(block_table, table);
  }
  registry.run(call.args(), nullptr);
  for (std::size_t i = 0; i < tokens; ++i) {
    CAPTURE(i);
    const std::int64_t page = places[i] / page_tokens;
    const std::int64_t token = places[i] % page_tokens;
    const auto expected = [&](const Elements& all) {
      return Elements(all.begin() + static_cast<std::ptrdiff_t>(i * head_dim),
                      all.begin() + static_cast<std::ptrdiff_t>((i + 1) * head_dim));
    };
    CHECK(memory.get(k, page, token, 1, 1) == expected(new_keys));
    CHECK(memory.get(v, page, token, 1, 1) == expected(new_values));
  }
}

void check_far_merge(Registry& registry, const MakeFarMemory& make, Far far) {
  CAPTURE(static_cast<int>(far));
  const Extents extents{2, 5, 3};
  Layout layout;
  const Place o1 = layout.far_tensor(extents, far);
  const Place o2 = layout.far_tensor(extents, far);
  const Place o = layout.far_tensor(extents, far);
  constexpr std::size_t rows = 2 * 5 * 3;
  const std::size_t lse1 = layout.take(rows * sizeof(float));
  const std::size_t lse2 = layout.take(rows * sizeof(float));
  Memory memory(make, layout);
  Random random(8);
  const Elements first = random_elements(random, extents.elements());
  const Elements second = random_elements(random, extents.elements());
  memory.put_all(o1, extents, first);
  memory.put_all(o2, extents, second);
  const api::Merge call{.shape = {.dtype = api::Dtype::fp16, .batch = 2, .seqlen = 5, .heads = 3, .head_dim = head_dim},
                        .o1 = memory.tensor(o1),
                        .o2 = memory.tensor(o2),
                        .o = memory.tensor(o),
                        .lse1 = memory.put_values(lse1, std::vector<float>(rows, 1.0F)),
                        .lse2 = memory.put_values(lse2, std::vector<float>(rows, 1.0F))};
  registry.run(call.args(), nullptr);
  // Both have the same weight.
  const Elements merged = memory.get_all(o, extents);
  float worst = 0;
  for (std::size_t i = 0; i < merged.size(); ++i) {
    const float expected = (from_storage(dtype, first[i]) + from_storage(dtype, second[i])) / 2;
    worst = std::max(worst, std::abs(from_storage(dtype, merged[i]) - expected));
  }
  CHECK(worst < 1e-3F);
}

}  // namespace attune::testing
