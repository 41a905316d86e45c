// Which pages of a K/V cache belong to each sequence, as callers say it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "runtime/python/arrays.hpp"

namespace attune::python {

/// A contiguous cache is a page for each sequence, of its length.
struct CachePages {
  std::int32_t pages;
  std::int32_t page_size;
  std::int32_t table_width;
  const std::int32_t* table;  ///< null: sequence i has page i
  std::int32_t room;          ///< keys that a sequence has room for
  nanobind::object made;      ///< the table's memory where it is no array of the caller's: kept until the launch

  /// Enters them into the arguments of a call that reads them.
  template <class Args>
  void set(Args& args) const {
    args.pages = pages;
    args.page_size = page_size;
    args.table_width = table_width;
    args.block_table = table;
  }
};

/// What the shape of k_cache and v_cache must be, for messages. `pages`: what names them, or None.
const char* cache_shape(nanobind::handle pages);

/// The table's array is not kept. Throws where it and the cache do not fit the sequences.
CachePages pages_of(const First& first, const Operand& k_cache, const Sequences& sequences,
                    nanobind::handle cache_batch_idx, nanobind::handle block_table);

/// Throws unless keys and values of the cache have one shape and the head_dim of the first array.
void require_caches_fit(const Operand& first, const Operand& k_cache, const Operand& v_cache);

}  // namespace attune::python
