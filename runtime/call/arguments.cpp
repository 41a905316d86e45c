#include "runtime/call/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/add_line.hpp"
#include "runtime/base/error.hpp"
#include "runtime/call/field_checks.hpp"

namespace attune {
namespace {

// A scale of 0 would turn a masked score's -inf into NaN; with this one every finite score still becomes 0.
constexpr float smallest_scale = 1e-30F;

// An infinite factor would turn a score of 0 into NaN.
constexpr float largest_cap_scale = 1e30F;

}  // namespace

void check_table(std::vector<std::string>& found, const std::int32_t* block_table, int batch, int pages,
                 int table_width) {
  if (block_table != nullptr) return;
  if (table_width > 1) {
    add_line(found, "block_table is null; it must name the pages where table_width is {}", table_width);
  } else if (pages < batch) {
    add_line(found, "pages is {}; without a block_table it must be at least batch, which is {}", pages, batch);
  }
}

void check_struct_size(const char* type, std::size_t given, std::size_t needed) {
  if (given >= needed) return;
  throw Error(ATTUNE_INVALID_ARGUMENT,
              fmt::format("{}.struct_size is {}; it must be sizeof({}), at least {}", type, given, type, needed));
}

void throw_if_any(const std::vector<std::string>& found) {
  if (!found.empty()) throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}", fmt::join(found, "\n")));
}

void check_flag(std::vector<std::string>& found, const char* name, int flag) {
  if (flag != 0 && flag != 1) add_line(found, "{} is {}; it must be 0 or 1", name, flag);
}

void check_softmax_scale(std::vector<std::string>& found, float softmax_scale) {
  if (softmax_scale >= 0 && softmax_scale <= largest_scale) return;
  add_line(found, "softmax_scale is {}; it must be from 0 to {}", softmax_scale, largest_scale);
}

void check_both_starts(std::vector<std::string>& found, const std::int32_t* cu_seqlens_q,
                       const std::int32_t* cu_seqlens_k) {
  if ((cu_seqlens_q == nullptr) == (cu_seqlens_k == nullptr)) return;
  const bool q = cu_seqlens_q == nullptr;
  add_line(found, "cu_seqlens_{} is null, and cu_seqlens_{} is not; a ragged batch needs both", q ? "q" : "k",
           q ? "k" : "q");
}

void check_workspace(std::vector<std::string>& found, const void* workspace, std::size_t bytes, std::size_t needed,
                     const char* function) {
  if (workspace == nullptr) {
    add_line(found, "workspace is null; it must point to {} bytes of device memory, as {} says", needed, function);
  } else if (bytes < needed) {
    add_line(found, "workspace_bytes is {}; it must be at least {}, as {} says", bytes, needed, function);
  }
}

ScoreScales scales_of(float softmax_scale, float softcap, bool expressed) {
  const auto log2_of = [](float scale) { return std::max(scale * std::numbers::log2e_v<float>, smallest_scale); };
  const bool capped = softcap > 0;
  const float score_scale = capped ? softcap : softmax_scale;
  return {.scale_log2 = expressed ? std::numbers::log2e_v<float> : log2_of(score_scale),
          .cap_scale = capped ? std::min(2 * log2_of(softmax_scale) / softcap, largest_cap_scale) : 0,
          .score_scale = std::max(score_scale, smallest_scale)};  // kernels divide by it
}

AttuneTensor kernel_tensor(const attune_tensor& tensor, const Extents& extents) {
  const auto used = [](std::int64_t stride, std::int64_t extent) { return extent > 1 ? stride : 0; };
  return {.data = tensor.data,
          .stride_batch = used(tensor.stride_batch, extents.batch),
          .stride_seq = used(tensor.stride_seq, extents.seq),
          .stride_head = used(tensor.stride_head, extents.heads)};
}

}  // namespace attune
