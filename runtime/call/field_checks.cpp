#include "runtime/call/field_checks.hpp"

#include "runtime/base/add_line.hpp"

namespace attune {

void FieldChecks::value(const char* key, const FieldRange& /*range*/, float value) {
  if (value >= 0 && value <= largest_scale) return;
  add_line(found_, "{} is {}; it must be from 0, for none, to {}", key, value, largest_scale);
}

void FieldChecks::value(const char* key, const FieldRange& /*range*/, Dtype value) {
  if (value == Dtype::fp16 || value == Dtype::bf16) return;
  add_line(found_, "{} is {}; it must be 0 (fp16) or 1 (bf16)", key, static_cast<int>(value));
}

void FieldChecks::value(const char* key, const FieldRange& /*range*/, Rotary value) {
  constexpr FieldRange kinds{.minimum = static_cast<int>(Rotary::none), .maximum = static_cast<int>(Rotary::halves)};
  this->value(key, kinds, static_cast<int>(value));
}

[[gnu::cold, gnu::noinline]] void FieldChecks::add_number(const char* key, const FieldRange& range, int value) {
  const std::string range_text = range.maximum == FieldRange().maximum
                                     ? fmt::format("at least {}", range.minimum)
                                     : fmt::format("from {} to {}", range.minimum, range.maximum);
  add(fmt::format("{} is {}; it must be {}{}{}", key, value,
                  range.step == 1 ? "" : fmt::format("a multiple of {} ", range.step), range_text,
                  range.zero == nullptr ? "" : fmt::format(", or 0 where it is {}", range.zero)));
}

bool FieldChecks::heads(int heads_q, int heads_kv) {
  if (heads_q < 1 || heads_kv < 1) return false;
  if (heads_q % heads_kv == 0) return true;
  add_line(found_, "heads_kv is {}; it must divide heads_q, which is {}", heads_kv, heads_q);
  return false;
}

void FieldChecks::rotation(Rotary rotary, int rotary_dim, int head_dim) {
  if (rotary == Rotary::none) return;
  const bool is_step = rotary_dim >= rotary_dim_step && rotary_dim % rotary_dim_step == 0;
  if (is_step && rotary_dim <= head_dim) return;
  add_line(found_, "rotary_dim is {}; it must be a multiple of {}, and at most head_dim, which is {}", rotary_dim,
           rotary_dim_step, head_dim);
}

void FieldChecks::room(const CacheShape& cache, const char* field, int seqlen_k) {
  const long long room = static_cast<long long>(cache.table_width) * cache.page_size;
  if (seqlen_k <= most_rows && room >= 1 && seqlen_k > room) {
    add_line(found_, "{} is {}; it must be at most table_width {} x page_size {}", field, seqlen_k, cache.table_width,
             cache.page_size);
  }
}

}  // namespace attune
