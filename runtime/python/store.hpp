// One call from Python that writes into a cache: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

namespace attune::python {

/// Each as the caller passed it.
struct StoreArguments {
  nanobind::handle k;
  nanobind::handle v;
  nanobind::handle k_cache;
  nanobind::handle v_cache;
  nanobind::handle slot_mapping;  ///< this and what follows: an array or None
  nanobind::handle cache_seqlens;
  nanobind::handle cache_batch_idx;
  nanobind::handle block_table;
  nanobind::handle positions;
  nanobind::handle rotary_cos;
  nanobind::handle rotary_sin;
  nanobind::handle rotary_interleaved;
  nanobind::handle check_tables;

  static constexpr std::array names{
      "k",           "v",         "k_cache",    "v_cache",    "slot_mapping",       "cache_seqlens", "cache_batch_idx",
      "block_table", "positions", "rotary_cos", "rotary_sin", "rotary_interleaved", "check_tables"};
};

/// Writes new keys and values into a cache. Throws a Python exception or Error; then nothing was launched.
void store(const StoreArguments& arguments);

/// Adds store to the module.
void bind_store(nanobind::module_& module);

}  // namespace attune::python
