#include "runtime/lab/trial.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/lab/random_values.hpp"

namespace attune {
namespace {

std::size_t key_rows(const Problem& problem) {
  return static_cast<std::size_t>(problem.stored_key_sequences()) * problem.stored_keys() * problem.heads_kv;
}

/// Elements of so many rows as they lie in memory.
std::size_t stored(std::size_t rows, int head_dim) { return rows * padded_head_dim(head_dim); }

std::size_t query_elements(const Problem& problem) { return stored(query_rows(problem), problem.head_dim); }
std::size_t key_elements(const Problem& problem) { return stored(key_rows(problem), problem.head_dim); }
std::size_t value_elements(const Problem& problem) { return stored(key_rows(problem), problem.head_dim_of_v()); }
std::size_t stored_output_elements(const Problem& problem) {
  return stored(query_rows(problem), problem.head_dim_of_v());
}

constexpr std::size_t word_bytes = sizeof(std::uint16_t);
constexpr std::size_t guard_words = Places::guard / word_bytes;

/// Words from a place on.
template <class Words>
auto* words(Words& memory, std::size_t place) {
  const std::size_t first = place / word_bytes;
  return memory.data() + first;
}

}  // namespace

Trial::Trial(const Problem& attention, Sequences sequences, std::uint64_t seed, int appended)
    : attention_(attention), sequences_(std::move(sequences)), seed_(seed), appended_(appended) {
  const auto tensor = [&](std::size_t elements) { return inputs_.add(elements * sizeof(std::uint16_t)); };
  in_ = {.q = tensor(query_elements(attention_)),
         .k = tensor(key_elements(attention_)),
         .v = tensor(value_elements(attention_)),
         .cu_seqlens_q = inputs_.add(sequences_.cu_seqlens_q),
         .cu_seqlens_k = inputs_.add(sequences_.cu_seqlens_k),
         .lengths = inputs_.add(sequences_.seqused_k),
         .block_table = inputs_.add(sequences_.block_table)};
  add_parameters();
  o_ = results_.add(stored_output_elements(attention_) * sizeof(std::uint16_t));
  lse_ = results_.add(query_rows(attention_) * sizeof(float));
}

void Trial::add_parameters() {
  values_ = random_values(seed_, attention_);
  each_parameter([&](const expression::Parameter& parameter, const expression::Array& array) {
    attune_named_array named{.name = parameter.name.c_str(),
                             .data = nullptr,
                             .element = parameter.type == expression::Type::real ? ATTUNE_FP32 : ATTUNE_INT32,
                             .rank = static_cast<std::int32_t>(array.extents.size()),
                             .extents = {}};
    std::ranges::copy(array.extents, named.extents);
    arrays_.push_back(named);
    array_places_.push_back(inputs_.add(stored(parameter, array)));
  });
  if (!values_.sink.empty()) sink_ = inputs_.add(values_.sink);
}

void Trial::each_parameter(
    const std::function<void(const expression::Parameter&, const expression::Array&)>& visit) const {
  const auto of = [&](int number, const std::vector<expression::Array>& arrays) {
    for (std::size_t i = 0; i < arrays.size(); ++i) visit(expression::expression_of(number).parameters[i], arrays[i]);
  };
  of(attention_.expressions.score, values_.of_score);
  of(attention_.expressions.mask, values_.of_mask);
}

Memory Trial::inputs() const {
  Memory memory = inputs_.memory();
  const auto draw = [&](std::size_t place, std::size_t elements, std::uint64_t seed) {
    draw_values(attention_.dtype, seed, std::span(words(memory, place), elements));
  };
  draw(in_.q, query_elements(attention_), 3 * seed_);
  draw(in_.k, key_elements(attention_), 3 * seed_ + 1);
  draw(in_.v, value_elements(attention_), 3 * seed_ + 2);
  const int head_dim_v = attention_.head_dim_of_v();
  fill_padding(words(memory, in_.q), query_rows(attention_), attention_.head_dim, 0);
  fill_padding(words(memory, in_.k), key_rows(attention_), attention_.head_dim, poison);
  fill_padding(words(memory, in_.v), key_rows(attention_), head_dim_v, poison);
  std::vector<std::int32_t> lengths = sequences_.seqused_k;
  for (std::int32_t& length : lengths) length -= appended_;
  put(memory, in_.cu_seqlens_q, sequences_.cu_seqlens_q);
  put(memory, in_.cu_seqlens_k, sequences_.cu_seqlens_k);
  put(memory, in_.lengths, lengths);
  put(memory, in_.block_table, sequences_.block_table);
  std::size_t i = 0;
  each_parameter([&](const expression::Parameter& parameter, const expression::Array& array) {
    put(memory, array_places_[i++], stored(parameter, array));
  });
  put(memory, sink_, values_.sink);
  complete(memory);
  return memory;
}

Memory Trial::poisoned_results(std::size_t workspace_bytes) const {
  Places places = results_;
  (void)places.add(workspace_bytes);
  return places.memory();
}

Outputs Trial::outputs(Memory results) const {
  Outputs outputs{.o = without_padding(take<std::uint16_t>(results, o_, stored_output_elements(attention_)),
                                       attention_.head_dim_of_v()),
                  .lse = take<float>(results, lse_, query_rows(attention_))};
  outputs.guards_intact = is_untouched(std::move(results));
  return outputs;
}

bool Trial::is_untouched(Memory results) const {
  std::fill(words(results, results_.end()), results.data() + results.size() - guard_words, poison);
  return std::ranges::all_of(results, [](std::uint16_t word) { return word == poison; });
}

Comparison Trial::compare(const Outputs& outputs, const Expected& expected) const {
  return attune::compare(attention_, outputs.o.data(), outputs.lse.data(), expected.reference, expected.naive);
}

bool Outputs::operator==(const Outputs& other) const {
  return o == other.o && lse.size() == other.lse.size() && guards_intact == other.guards_intact &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

Expected Trial::expected(const Memory& inputs) const {
  std::vector<std::uint16_t> q(words(inputs, in_.q), words(inputs, in_.q) + query_elements(attention_));
  rotate(q, inputs);
  const int keys = attention_.stored_keys();
  const int columns = padded_head_dim(attention_.head_dim);
  const int columns_of_v = padded_head_dim(attention_.head_dim_of_v());
  if (attention_.expressions.any()) {
    const HostOperands operands{.q = contiguous(q.data(), attention_.stored_rows(), attention_.heads_q, columns),
                                .k = contiguous(words(inputs, in_.k), keys, attention_.heads_kv, columns),
                                .v = contiguous(words(inputs, in_.v), keys, attention_.heads_kv, columns_of_v)};
    ExpressedOutput output =
        expressed_attention(attention_, sequences_, values_, operands, usual_scale(attention_.head_dim));
    return {.reference = std::move(output.reference), .naive = std::move(output.naive)};
  }
  const auto by = [&](AttentionFunction& attention) {
    return attention_of(
        attention, attention_, sequences_, contiguous(q.data(), attention_.stored_rows(), attention_.heads_q, columns),
        contiguous(words(inputs, in_.k), keys, attention_.heads_kv, columns),
        contiguous(words(inputs, in_.v), keys, attention_.heads_kv, columns_of_v), usual_scale(attention_.head_dim));
  };
  return {.reference = by(reference_attention), .naive = by(naive_attention)};
}

Trials small_trials(const Variant& variant, std::uint64_t seed) {
  if (is_backward(variant)) return small_backward_trials(variant, seed);
  return family_of(variant).operation == Operation::decode ? small_decode_trials(variant, seed)
                                                           : small_prefill_trials(variant, seed);
}

bool is_backward(const Variant& variant) {
  switch (family_of(variant).operation) {
    case Operation::backward:
    case Operation::backward_rows:
    case Operation::backward_queries:
    case Operation::backward_convert:
      return true;
    default:
      return false;
  }
}

std::size_t query_rows(const Problem& problem) {
  return static_cast<std::size_t>(problem.stored_sequences()) * problem.heads_q * problem.stored_rows();
}

std::size_t output_elements(const Problem& problem) { return query_rows(problem) * problem.head_dim_of_v(); }

HostTensor contiguous(const std::uint16_t* values, int seqlen, int heads, int head_dim) {
  const long long dim = head_dim;
  return {.data = values, .stride_batch = dim * heads * seqlen, .stride_seq = dim * heads, .stride_head = dim};
}

}  // namespace attune
