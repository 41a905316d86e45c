// The tensors of a call in host memory, in any layout, and the arrays that say where its sequences are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "attune/attune.h"
#include "runtime/lab/memory.hpp"
#include "runtime/lab/reference.hpp"

namespace attune::testing {

/// How a tensor batch x seqlen x heads x head_dim lies in memory.
enum class Layout {
  bshd,    ///< batch, seqlen, heads, head_dim
  bhsd,    ///< batch, heads, seqlen, head_dim
  packed,  ///< Q, K and V side by side in one buffer, the heads of each position one after the other
  gaps,    ///< BSHD with unused memory after every row, every position and every sequence, more in V than in K
};

std::string name_of(Layout layout);

/// BHSD, or BSHD.
constexpr Layout layout_of(bool heads_outermost) { return heads_outermost ? Layout::bhsd : Layout::bshd; }

/// batch x seqlen x heads x head_dim; strides in elements.
struct PlacedTensor {
  int batch = 0;
  int seqlen = 0;
  int heads = 0;
  int head_dim = 0;
  std::int64_t stride_batch = 0;
  std::int64_t stride_seq = 0;
  std::int64_t stride_head = 0;
  std::size_t first = 0;  ///< element of the memory

  /// With strides, but no place. `gap`: elements that are unused after a row, where there are any.
  static PlacedTensor laid_out(Layout layout, int batch, int seqlen, int heads, int head_dim, int gap = 8);
  [[nodiscard]] PlacedTensor in(Places& places) const;

  /// The first element of a row.
  [[nodiscard]] std::size_t of(std::int64_t sequence, std::int64_t row, int head) const {
    return first + static_cast<std::size_t>(sequence * stride_batch + row * stride_seq + head * stride_head);
  }
  [[nodiscard]] std::size_t elements() const { return std::size_t{1} * batch * seqlen * heads * head_dim; }

  [[nodiscard]] attune_tensor at(void* memory) const {
    return {static_cast<std::uint16_t*>(memory) + first, stride_batch, stride_seq, stride_head};
  }
  [[nodiscard]] HostTensor at(const Memory& memory) const {
    return {memory.data() + first, stride_batch, stride_seq, stride_head};
  }

  /// What rows have beyond their columns where head_dim is no multiple of 8.
  [[nodiscard]] PlacedTensor padding() const;

  /// `visit(element of the memory, element of the tensor as if it were contiguous)`
  void for_each(const auto& visit) const {
    std::size_t index = 0;
    for (int b = 0; b < batch; ++b) {
      for (int s = 0; s < seqlen; ++s) {
        for (int h = 0; h < heads; ++h) {
          for (int d = 0; d < head_dim; ++d) visit(of(b, s, h) + static_cast<std::size_t>(d), index++);
        }
      }
    }
  }

  void fill(Memory& memory, const std::vector<std::uint16_t>& values) const;

  /// All heads of rows from `begin` up to `end`.
  void poison_rows(Memory& memory, int begin, int end, int sequence = 0) const;
};

/// Q, K and V side by side in one buffer.
std::tuple<PlacedTensor, PlacedTensor, PlacedTensor> place_packed(Places& places, const Problem& problem);

/// The arrays of a batch's sequences, each with a place.
class PlacedSequences {
 public:
  PlacedSequences() = default;
  PlacedSequences(const Sequences& sequences, Places& places) {
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i] = places.add(sequences.*arrays[i]);
  }

  void put(Memory& memory, const Sequences& sequences) const {
    for (std::size_t i = 0; i < places_.size(); ++i) attune::put(memory, places_[i], sequences.*arrays[i]);
  }

  /// Says them to a call of prefill or of its gradients; those that are empty are null.
  template <class Args>
  void say(Args& args, void* memory, const Sequences& sequences) const {
    const auto array = [&](std::size_t i) { return array_at(memory, places_[i], sequences.*arrays[i]); };
    args.cu_seqlens_q = array(0);
    args.cu_seqlens_k = array(1);
    args.seqused_q = array(2);
    if constexpr (requires { args.seqused_k; }) args.seqused_k = array(3);
    if constexpr (requires { args.seqlens_k; }) args.seqlens_k = array(3);
    if constexpr (requires { args.block_table; }) args.block_table = array(4);
  }

 private:
  static constexpr std::array arrays{&Sequences::cu_seqlens_q, &Sequences::cu_seqlens_k, &Sequences::seqused_q,
                                     &Sequences::seqused_k, &Sequences::block_table};
  std::array<std::size_t, arrays.size()> places_{};  ///< in bytes
};

}  // namespace attune::testing
