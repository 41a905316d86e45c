#include "runtime/call/field_checks.hpp"

#include "runtime/base/add_line.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {
namespace {

constexpr int head_dim_limit = 256;
constexpr int rotary_dim_step = 16;  // 16 bytes of each half

}  // namespace

void FieldChecks::at_least(const char* field, int value, int minimum) {
  if (value < minimum) add_line(found_, "{} is {}; it must be at least {}", field, value, minimum);
}

void FieldChecks::in_range(const char* field, int value, int minimum, int maximum) {
  if (value < minimum || value > maximum) {
    add_line(found_, "{} is {}; it must be from {} to {}", field, value, minimum, maximum);
  }
}

void FieldChecks::dtype(Dtype value) {
  if (value != Dtype::fp16 && value != Dtype::bf16) {
    add_line(found_, "dtype is {}; it must be 0 (fp16) or 1 (bf16)", static_cast<int>(value));
  }
}

void FieldChecks::heads(int heads_q, int heads_kv) {
  at_least("heads_q", heads_q, 1);
  at_least("heads_kv", heads_kv, 1);
  if (heads_q >= 1 && heads_kv >= 1 && heads_q % heads_kv != 0) {
    add_line(found_, "heads_kv is {}; it must divide heads_q, which is {}", heads_kv, heads_q);
  }
}

void FieldChecks::softcap(float value) {
  if (value >= 0 && value <= largest_scale) return;
  add_line(found_, "softcap is {}; it must be from 0, for none, to {}", value, largest_scale);
}

void FieldChecks::rotation(Rotary rotary, int rotary_dim, int rotations, int head_dim) {
  in_range("rotary", static_cast<int>(rotary), static_cast<int>(Rotary::none), static_cast<int>(Rotary::halves));
  if (rotary == Rotary::none) return;
  const bool is_step = rotary_dim >= rotary_dim_step && rotary_dim % rotary_dim_step == 0;
  if (!is_step || rotary_dim > head_dim) {
    add_line(found_, "rotary_dim is {}; it must be a multiple of {}, and at most head_dim, which is {}", rotary_dim,
             rotary_dim_step, head_dim);
  }
  in_range("rotations", rotations, 1, most_rows);
}

void FieldChecks::cache(const CacheShape& cache, const char* field, int seqlen_k) {
  in_range("page_size", cache.page_size, 1, most_rows);
  in_range("pages", cache.pages, 0, most_rows);
  in_range("table_width", cache.table_width, 1, most_rows);
  const long long room = static_cast<long long>(cache.table_width) * cache.page_size;
  if (seqlen_k <= most_rows && room >= 1 && seqlen_k > room) {
    add_line(found_, "{} is {}; it must be at most table_width {} x page_size {}", field, seqlen_k, cache.table_width,
             cache.page_size);
  }
}

void FieldChecks::head_dim(const char* field, int value, const char* otherwise) {
  if (value >= head_dim_step && value <= head_dim_limit && value % head_dim_step == 0) return;
  add_line(found_, "{} is {}; it must be a multiple of {} from {} to {}{}", field, value, head_dim_step, head_dim_step,
           head_dim_limit, otherwise);
}

}  // namespace attune
