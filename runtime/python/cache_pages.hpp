// Which pages of a K/V cache belong to each sequence, as callers say it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "runtime/python/operands.hpp"

namespace attune::python {

/// A contiguous cache is a page for each sequence, of its length.
struct CachePages {
  std::int32_t pages;
  std::int32_t page_size;
  std::int32_t table_width;
  const std::int32_t* table;  ///< null: sequence i has page i
  std::int32_t room;          ///< keys that a sequence has room for
  nanobind::object made;      ///< the table's memory where it is no array of the caller's: kept until the launch
};

/// What the shape of k_cache and v_cache must be, for messages. `pages`: what names them, or None.
const char* cache_shape(nanobind::handle pages);

/// The table's array is not kept. Throws where it and the cache do not fit `batch` sequences.
CachePages pages_of(const First& first, const Operand& k_cache, std::int32_t batch, nanobind::handle cache_batch_idx,
                    nanobind::handle block_table);

/// An int32 array with an element for each sequence.
const std::int32_t* read_lengths(const First& first, const char* name, nanobind::handle array, std::int32_t batch);

/// Throws unless keys and values of the cache have one shape and the head_dim of the first array.
void require_caches_fit(const Operand& first, const Operand& k_cache, const Operand& v_cache);

}  // namespace attune::python
