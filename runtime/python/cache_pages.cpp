#include "runtime/python/cache_pages.hpp"

#include <fmt/format.h>

#include <array>

#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {

const char* cache_shape(nb::handle pages) {
  return pages.is_none() ? "(batch_cache, seqlen_cache, heads_kv, head_dim)"
                         : "(blocks, page_size, heads_kv, head_dim)";
}

CachePages pages_of(const First& first, const Operand& k_cache, const Sequences& sequences, nb::handle cache_batch_idx,
                    nb::handle block_table) {
  const std::int32_t batch = sequences.count;
  // Pages without tokens are none: kernels divide by a page's.
  const bool holds = k_cache.shape[1] > 0;
  CachePages result{.pages = holds ? count("pages", k_cache.shape[0]) : 0,
                    .page_size = holds ? count("page_size", k_cache.shape[1]) : 1,
                    .table_width = 1,
                    .table = nullptr,
                    .room = count("seqlen_cache", k_cache.shape[1]),
                    .made = {}};
  if (!block_table.is_none()) {
    const bool picks = !cache_batch_idx.is_none();
    const std::int32_t* entries = nullptr;
    Array table =
        read_into(entries, first, "block_table", block_table, std::array<std::int64_t, 2>{picks ? -1 : batch, -1},
                  [&] { return demand_with(sequences, "(batch, blocks)"); });
    if (picks) {
      const std::int32_t* rows = nullptr;
      read_lengths(rows, first, "cache_batch_idx", cache_batch_idx, sequences);
      if (table.shape[0] == 0 && batch > 0) {
        raise(PyExc_ValueError, "block_table has no rows; cache_batch_idx must name one for each sequence");
      }
      const AddressedFramework& framework = *first.framework.addressed();
      const Entered entered(framework.on_device(first.array.device));
      result.made = framework.rows_of(block_table, cache_batch_idx);
      table = framework.read("block_table", result.made);
      entries = pointer<const std::int32_t>(table.address);
    }
    const std::int64_t blocks = table.shape[1];
    if (blocks == 0 || batch == 0 || result.pages == 0) {
      result.room = 0;
      return result;
    }
    // Rows may lie apart, in a slice of a wider table: what comes after a row's own entries is never read.
    const std::int64_t width = batch == 1 ? blocks : table.strides[0];
    if (width < blocks) {
      raise(PyExc_ValueError,
            fmt::format("block_table has rows {} elements apart; its {} columns must not overlap", width, blocks));
    }
    result.table = entries;
    result.table_width = count("table_width", width);
    result.room = count("max_seqlen_k", blocks * k_cache.shape[1]);
  } else if (!cache_batch_idx.is_none()) {
    read_lengths(result.table, first, "cache_batch_idx", cache_batch_idx, sequences);
  } else if (holds && k_cache.shape[0] < batch) {
    raise(PyExc_ValueError,
          fmt::format("{} has {} sequences; without cache_batch_idx or block_table it must have at least the {} of {}",
                      k_cache.name, k_cache.shape[0], batch, sequences.argument));
  }
  return result;
}

void require_caches_fit(const Operand& first, const Operand& k_cache, const Operand& v_cache) {
  if (k_cache.shape[3] != first.shape[3]) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} its head_dim must be {}", k_cache.name,
                                        k_cache.text(), first.name, first.text(), first.shape[3]));
  }
  if (v_cache.shape != k_cache.shape) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; it must be {}, as {} is", v_cache.name, v_cache.text(),
                                        k_cache.text(), k_cache.name));
  }
}

}  // namespace attune::python
