#include "tests/harness/table_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace attune::testing {

AttuneTableFault first_fault(const AttuneCheckParams& params) {
  for (int batch = 0; batch < params.batch; ++batch) {
    int queries = params.seqlen_q;
    bool uses_rows = true;
    int most = params.max_seqlen_k - params.seqlen_new;
    for (const int kind : {1, 2}) {
      const int* cu_seqlens = kind == 1 ? params.cu_seqlens_q : params.cu_seqlens_k;
      const int total = kind == 1 ? params.total_q : params.total_k;
      if (cu_seqlens == nullptr) continue;
      for (int position = 0; position < 2; ++position) {
        const int least = position == 0 ? 0 : cu_seqlens[batch];
        const int row = cu_seqlens[batch + position];
        if (row < least || row > total) return {.kind = kind, .batch = batch, .position = position, .reserved = 0};
      }
      const int rows = cu_seqlens[batch + 1] - cu_seqlens[batch];
      if (kind == 1) {
        const int used = params.seqused_q != nullptr ? params.seqused_q[batch] : rows;
        uses_rows = used >= 0 && used <= rows;
        queries = std::clamp(used, 0, std::min(queries, rows));
      } else {
        most = rows;
      }
    }
    const int before = params.seqlens_k != nullptr ? params.seqlens_k[batch] : most;
    if (before < 0 || before > most) return {.kind = 3, .batch = batch, .position = 0, .reserved = 0};
    const int missing = params.leftpad_k != nullptr ? params.leftpad_k[batch] : 0;
    if (missing < 0 || missing > before) return {.kind = 4, .batch = batch, .position = 0, .reserved = 0};
    for (int key = missing; params.block_table != nullptr && key < before + params.seqlen_new; ++key) {
      const bool is_new = key >= before;
      const int first_position = before + params.seqlen_new - queries;
      const bool is_seen = queries > 0 && (params.window_left < 0 || key >= first_position - params.window_left);
      const int entry = key / params.page_size;
      if ((!is_new && !is_seen) || entry >= params.table_width) continue;
      const int page = params.block_table[static_cast<std::ptrdiff_t>(batch) * params.table_width + entry];
      if (page < 0 || page >= params.pages) return {.kind = 5, .batch = batch, .position = entry, .reserved = 0};
    }
    for (int token = 0; params.slots != nullptr && token < params.seqlen_new; ++token) {
      const long long slot = params.slots[static_cast<std::ptrdiff_t>(batch) * params.seqlen_new + token];
      const long long places = static_cast<long long>(params.pages) * params.page_size;
      if (slot < -1 || slot >= places) return {.kind = 6, .batch = batch, .position = token, .reserved = 0};
    }
    if (!uses_rows) return {.kind = 7, .batch = batch, .position = 0, .reserved = 0};
  }
  return {};
}

std::string fault_text(const AttuneCheckParams& params, const AttuneTableFault& fault) {
  const auto text = [&](const char* table, long long value) {
    return fmt::format("{}: batch {}, position {} is {}; it must be ", table, fault.batch, fault.position, value);
  };
  const auto at = [&](long long width) { return fault.batch * width + fault.position; };
  switch (fault.kind) {
    case 1:
      return text("cu_seqlens_q", params.cu_seqlens_q[fault.batch + fault.position]);
    case 2:
      return text("cu_seqlens_k", params.cu_seqlens_k[fault.batch + fault.position]);
    case 3:
      return text("seqlens_k", params.seqlens_k[fault.batch]);
    case 4:
      return text("leftpad_k", params.leftpad_k[fault.batch]);
    case 5:
      return text("block_table", params.block_table[at(params.table_width)]);
    case 6:
      return text("slot_mapping", params.slots[at(params.seqlen_new)]);
    case 7:
      return text("seqused_q", params.seqused_q[fault.batch]);
    default:
      return "";
  }
}

}  // namespace attune::testing
