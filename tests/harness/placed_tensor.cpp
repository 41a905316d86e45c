#include "tests/harness/placed_tensor.hpp"

#include <algorithm>

namespace attune::testing {

std::string name_of(Layout layout) {
  switch (layout) {
    case Layout::bshd:
      return "BSHD";
    case Layout::bhsd:
      return "BHSD";
    case Layout::packed:
      return "packed QKV";
    case Layout::gaps:
      return "BSHD with gaps";
  }
  return "?";
}

PlacedTensor PlacedTensor::laid_out(Layout layout, int batch, int seqlen, int heads, int head_dim, int gap) {
  const std::int64_t columns = padded_head_dim(head_dim);
  const bool gaps = layout == Layout::gaps;
  PlacedTensor tensor{.batch = batch, .seqlen = seqlen, .heads = heads, .head_dim = head_dim};
  tensor.stride_head = gaps ? columns + gap : columns;
  tensor.stride_seq = tensor.stride_head * heads + (gaps ? 24 : 0);
  tensor.stride_batch = tensor.stride_seq * seqlen + (gaps ? 64 : 0);
  if (layout != Layout::bhsd) return tensor;
  tensor.stride_seq = columns;
  tensor.stride_head = columns * seqlen;
  return tensor;
}

PlacedTensor PlacedTensor::in(Places& places) const {
  PlacedTensor placed = *this;
  placed.first = places.add(static_cast<std::size_t>(stride_batch) * batch * sizeof(std::uint16_t)) / 2;
  return placed;
}

PlacedTensor PlacedTensor::padding() const {
  PlacedTensor padding = *this;
  padding.first += static_cast<std::size_t>(head_dim);
  padding.head_dim = padded_head_dim(head_dim) - head_dim;
  return padding;
}

void PlacedTensor::fill(Memory& memory, const std::vector<std::uint16_t>& values) const {
  for_each([&](std::size_t to, std::size_t i) { memory[to] = values[i]; });
}

void PlacedTensor::poison_rows(Memory& memory, int begin, int end, int sequence) const {
  for (int row = begin; row < end; ++row) {
    for (int head = 0; head < heads; ++head) {
      const auto from = memory.begin() + static_cast<std::ptrdiff_t>(of(sequence, row, head));
      std::fill(from, from + head_dim, poison);
    }
  }
}

std::tuple<PlacedTensor, PlacedTensor, PlacedTensor> place_packed(Places& places, const Problem& problem) {
  const int dim = problem.head_dim;
  const int dim_v = problem.head_dim_of_v();
  const int Q_row = problem.heads_q * padded_head_dim(dim);
  const int K_row = problem.heads_kv * padded_head_dim(dim);
  const int row = Q_row + K_row + problem.heads_kv * padded_head_dim(dim_v);
  PlacedTensor q =
      PlacedTensor::laid_out(Layout::packed, problem.stored_sequences(), problem.stored_rows(), 1, row).in(places);
  q.heads = problem.heads_q;
  q.head_dim = dim;
  q.stride_head = padded_head_dim(dim);
  PlacedTensor k = q;
  k.heads = problem.heads_kv;
  k.first += static_cast<std::size_t>(Q_row);
  PlacedTensor v = k;
  v.first += static_cast<std::size_t>(K_row);
  v.head_dim = dim_v;
  v.stride_head = padded_head_dim(dim_v);
  return {q, k, v};
}

}  // namespace attune::testing
