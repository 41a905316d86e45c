#include "runtime/python/store.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "runtime/python/arrays.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/cache_pages.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/rotation.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// Tokens that have a slot: of rows of all sequences, those beyond the slots are padding.
std::int64_t tokens_with_slots(const First& first, nb::handle slot_mapping, const Operand& k) {
  if (k.rank != 3) return k.shape[1];
  const std::int64_t tokens =
      read_plain(first, "slot_mapping", slot_mapping, {Element::int64, Element::int32}, std::array<std::int64_t, 1>{-1},
                 [&] { return fmt::format("with k of {} it must be (tokens,)", k.text()); })
          .shape[0];
  if (tokens > k.shape[1]) {
    raise(PyExc_ValueError,
          fmt::format("slot_mapping has {} tokens; it must have at most the {} of k", tokens, k.shape[1]));
  }
  return tokens;
}

void set_rotation(attune_store_kv_args& args, const StoreArguments& arguments, const First& first, const Operand& k) {
  const Rotation rotation =
      rotation_of(first, arguments.rotary_cos, arguments.rotary_sin, arguments.rotary_interleaved);
  rotation.set(args);
  if (arguments.positions.is_none()) return;
  if (rotation.kind == ATTUNE_ROTARY_NONE) {
    raise(PyExc_ValueError, "positions is given without rotary_cos and rotary_sin");
  }
  args.positions = pointer<const std::int32_t>(
      read_each_row(first, "positions", arguments.positions, {Element::int32}, k, args.tokens).address);
}

/// By slots, or after the keys that each sequence has. What was made of the caller's arrays is returned, to be kept
/// until the launch.
nb::object set_places(attune_store_kv_args& args, const StoreArguments& arguments, const First& first, const Operand& k,
                      const Operand& k_cache) {
  const Sequences sequences{"k", args.batch};
  read_optional_lengths(args.seqlens_k, first, "cache_seqlens", arguments.cache_seqlens, sequences);
  if (arguments.slot_mapping.is_none()) {
    const CachePages pages = pages_of(first, k_cache, sequences, arguments.cache_batch_idx, arguments.block_table);
    args.block_table = pages.table;
    args.table_width = pages.table_width;
    if (pages.room == 0) args.pages = 0;  // a table without columns names none
    return pages.made;
  }
  if (!arguments.cache_batch_idx.is_none() || !arguments.block_table.is_none()) {
    raise(PyExc_ValueError, fmt::format("slot_mapping and {} are both given; slot_mapping alone names the places",
                                        arguments.block_table.is_none() ? "cache_batch_idx" : "block_table"));
  }
  const Array slots =
      read_each_row(first, "slot_mapping", arguments.slot_mapping, {Element::int64, Element::int32}, k, args.tokens);
  args.slot_mapping = pointer<const std::int64_t>(slots.address);
  if (slots.element == Element::int64) return {};
  const AddressedFramework& framework = *first.framework.addressed();
  const Entered entered(framework.on_device(first.array.device));
  nb::object wide = framework.as_int64(arguments.slot_mapping);
  args.slot_mapping = pointer<const std::int64_t>(framework.read("slot_mapping", wide).address);
  return wide;
}

Operand read_cache(const First& first, const char* name, nb::handle array, nb::handle pages) {
  const Operand cache = read_operand(first, name, array, 4, cache_shape(pages));
  first.framework.require_writable({name, array, 1});
  return cache;
}

/// On the device of k.
attune_store_kv_args args_of(const StoreArguments& arguments, const First& first, Kept& kept) {
  const bool slots = !arguments.slot_mapping.is_none();
  const bool rows = slots && first.array.rank == 3;
  const char* const accepted = slots ? "(batch, tokens, heads_kv, head_dim) or (tokens, heads_kv, head_dim)"
                                     : "(batch, tokens, heads_kv, head_dim), without slot_mapping";
  const Operand k = read_operand(first, "k", arguments.k, rows ? 3 : 4, accepted);
  const Operand v = read_operand(first, "v", arguments.v, k.rank, accepted);
  if (v.shape != k.shape) {
    raise(PyExc_ValueError, fmt::format("v has shape {}; it must be {}, as k is", v.text(), k.text()));
  }
  const nb::handle pages = slots ? arguments.slot_mapping : arguments.block_table;
  const Operand k_cache = read_cache(first, "k_cache", arguments.k_cache, pages);
  const Operand v_cache = read_cache(first, "v_cache", arguments.v_cache, pages);
  require_caches_fit(k, k_cache, v_cache);
  require_rows_in_place(k_cache);
  require_rows_in_place(v_cache);
  if (k_cache.shape[2] != k.shape[2]) {
    raise(PyExc_ValueError,
          fmt::format("k_cache has {} heads; it must have the {} of k", k_cache.shape[2], k.shape[2]));
  }

  attune_store_kv_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.k_new = padded_rows(first, arguments.k, k, kept);
  args.v_new = padded_rows(first, arguments.v, v, kept);
  args.k = k_cache.tensor;
  args.v = v_cache.tensor;
  args.batch = count("batch", k.shape[0]);
  args.tokens = count("tokens", slots ? tokens_with_slots(first, arguments.slot_mapping, k) : k.shape[1]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", k.shape[3]);
  const bool holds = k_cache.shape[1] > 0;
  args.pages = holds ? count("pages", k_cache.shape[0]) : 0;
  args.page_size = holds ? count("page_size", k_cache.shape[1]) : 1;
  keep(kept, set_places(args, arguments, first, k, k_cache));
  set_rotation(args, arguments, first, k);
  args.check_tables = is_true(arguments.check_tables) ? 1 : 0;
  return args;
}

}  // namespace

void bind_store(nb::module_& module) { bind_call<&store>(module, "store", "Writes new keys and values into a cache."); }

void store(const StoreArguments& arguments) {
  const First first = read_first({"k", arguments.k, 1});
  const AddressedFramework& framework = require_addressed(first, "writing into a cache");
  const Entered entered(framework.on_device(first.array.device));
  Kept kept;
  const attune_store_kv_args args = args_of(arguments, first, kept);
  framework.launch(&attune_store_kv, args, first.array.device);
}

}  // namespace attune::python
