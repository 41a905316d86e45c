#include "runtime/python/cache_prefill.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/operations/decode/problem.hpp"
#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// The same attention as arguments of prefill; Keys sets where its keys are.
attune_prefill_args attention_of(const attune_decode_args& args) {
  attune_prefill_args result{};
  result.struct_size = sizeof(result);
  copy_attention(result, args);
  result.seqlen_k = args.max_seqlen_k;
  result.head_dim_v = args.head_dim;
  result.window = 1;
  return result;
}

/// Where the keys of a call are, from what the caller said of its cache. Arrays that are made for it are kept.
class Keys {
 public:
  Keys(const AddressedFramework& framework, const First& first, const attune_decode_args& args,
       const DecodeArguments& arguments, Kept& kept)
      : framework_(framework),
        like_(first.argument.array),
        args_(args),
        arguments_(arguments),
        one_length_(!nb::isinstance(arguments.cache_seqlens, framework.array_type())),
        kept_(kept) {}

  /// Sequences of one length that the host knows, each at its own place, are a dense batch. Any others lie in pages, as
  /// in a cache without a table each in one.
  void set(attune_prefill_args& prefill) const {
    if (args_.leftpad_k != nullptr && args_.max_seqlen_k > 0) return set_padded(prefill);
    if (one_length_ && args_.block_table == nullptr && args_.cu_seqlens_q == nullptr) return;
    prefill.page_size = args_.page_size;
    prefill.pages = args_.pages;
    prefill.table_width = args_.table_width;
    prefill.block_table =
        args_.block_table != nullptr ? args_.block_table : made(framework_.counted_int32(args_.batch, like_));
    prefill.seqused_k = one_length_ || args_.seqlen_new > 0 ? made(lengths()) : args_.seqlens_k;
  }

 private:
  /// How many keys each sequence has with its new ones.
  [[nodiscard]] nb::object lengths() const {
    if (one_length_) return framework_.full_int32(args_.batch, args_.max_seqlen_k, like_);
    // As decode clips them, so that no sum leaves 32 bits.
    return nb::object(nb::borrow(arguments_.cache_seqlens).attr("clip")(-args_.seqlen_new, args_.max_seqlen_k)) +
           nb::int_(args_.seqlen_new);
  }

  /// Sequences that begin anywhere in a page: each row of the cache is a page, and a table names those of their keys.
  void set_padded(attune_prefill_args& prefill) const {
    const std::int64_t rows = rows_of_page("k_cache", args_.k);
    const std::int64_t rows_of_v = rows_of_page("v_cache", args_.v);
    if (rows_of_v != rows) {
      refuse_pad(fmt::format("the pages of k_cache are {} rows apart and those of v_cache {}; they must be as far",
                             rows, rows_of_v));
    }
    if (args_.page_size > 1) {
      prefill.k.stride_batch = prefill.k.stride_seq;
      prefill.v.stride_batch = prefill.v.stride_seq;
    }
    prefill.page_size = 1;
    prefill.pages = args_.pages == 0 ? 0 : count("pages", (args_.pages - 1) * rows + args_.page_size);
    prefill.table_width = args_.max_seqlen_k;
    prefill.block_table = made(table_of_rows(rows));
    prefill.seqused_k = made(lengths().attr("clip")(0, args_.max_seqlen_k) - pads());
  }

  /// How many keys of each sequence do not exist.
  [[nodiscard]] nb::object pads() const {
    return nb::borrow(arguments_.cache_leftpad).attr("clip")(0, args_.max_seqlen_k);
  }

  /// From the beginning of a page to that of the next.
  [[nodiscard]] std::int64_t rows_of_page(const char* name, const attune_tensor& tensor) const {
    if (args_.page_size == 1) return 1;
    if (args_.pages <= 1) return args_.page_size;
    if (tensor.stride_seq <= 0 || tensor.stride_batch % tensor.stride_seq != 0) {
      refuse_pad(fmt::format("the pages of {} are {} elements apart and its rows {}; pages must be whole rows apart",
                             name, tensor.stride_batch, tensor.stride_seq));
    }
    return tensor.stride_batch / tensor.stride_seq;
  }

  [[noreturn]] void refuse_pad(const std::string& reason) const {
    raise(PyExc_NotImplementedError,
          fmt::format("cache_leftpad is given with {} queries a sequence, and {}", args_.seqlen_q, reason));
  }

  /// (batch, max_seqlen_k): the row of each key of a sequence, from the first one after its pad on.
  [[nodiscard]] nb::object table_of_rows(std::int64_t rows) const {
    const auto column = [](const nb::object& array) {
      return nb::object(array[nb::make_tuple(nb::slice(nb::none(), nb::none(), nb::none()), nb::none())]);
    };
    const nb::object sequences = column(framework_.counted_int32(args_.batch, like_));
    const nb::object numbers = framework_.counted_int32(args_.max_seqlen_k, like_);
    const nb::object places = nb::object(column(pads()) + numbers).attr("clip")(0, args_.max_seqlen_k - 1);
    const nb::object blocks = places.floor_div(nb::int_(args_.page_size));
    nb::object pages = sequences;
    if (!arguments_.block_table.is_none()) {
      const nb::object table = arguments_.cache_batch_idx.is_none()
                                   ? nb::borrow(arguments_.block_table)
                                   : framework_.rows_of(arguments_.block_table, arguments_.cache_batch_idx);
      pages = table[nb::make_tuple(framework_.as_int64(sequences), framework_.as_int64(blocks))];
    } else if (!arguments_.cache_batch_idx.is_none()) {
      pages = column(nb::borrow(arguments_.cache_batch_idx));
    }
    // What is no page has no row: its number, multiplied, might wrap around to another page's.
    return nb::object(pages.attr("clip")(-1, args_.pages)) * nb::int_(rows) +
           nb::object(places - blocks * nb::int_(args_.page_size));
  }

  /// The address of such an array, which is kept.
  [[nodiscard]] const std::int32_t* made(nb::object array) const {
    const Array read = framework_.read("block_table", array);
    require_contiguous("block_table", read);
    kept_.push_back(std::move(array));
    return pointer<const std::int32_t>(read.address);
  }

  const AddressedFramework& framework_;
  nb::handle like_;
  const attune_decode_args& args_;
  const DecodeArguments& arguments_;
  bool one_length_;
  Kept& kept_;
};

attune_store_kv_args store_of(const attune_decode_args& args) {
  attune_store_kv_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.k_new = args.k_new;
  result.v_new = args.v_new;
  result.k = args.k;
  result.v = args.v;
  result.seqlens_k = args.seqlens_k;
  result.block_table = args.block_table;
  result.batch = args.batch;
  result.tokens = args.seqlen_new;
  result.heads_kv = args.heads_kv;
  result.head_dim = args.head_dim;
  result.page_size = args.page_size;
  result.pages = args.pages;
  result.table_width = args.table_width;
  result.rotary = args.rotary;
  result.rotary_cos = args.rotary_cos;
  result.rotary_sin = args.rotary_sin;
  result.rotary_dim = args.rotary_dim;
  result.rotations = args.rotations;
  return result;
}

/// A contiguous copy of the queries, which becomes those of the call.
attune_tensor copy_queries(const AddressedFramework& framework, nb::handle q, const attune_decode_args& args,
                           Kept& kept) {
  nb::object copy =
      framework.empty(nb::make_tuple(args.batch, args.seqlen_q, args.heads_q, padded_head_dim(args.head_dim)), q);
  copy[nb::ellipsis()] = q;
  kept.push_back(copy);
  return tensor_of(framework.read("q", copy), 4);
}

/// Rotates that copy by decode's positions (blocks/query_rotation.cuh): with a causal mask or a window query i has
/// cache_seqlens + i; else all have cache_seqlens, so that the queries of a sequence are passed as heads of one row.
attune_rotary_embedding_args rotation_of_queries(const attune_decode_args& args, const attune_tensor& copy) {
  const bool one_position = args.window_left < 0 && args.window_right < 0;
  attune_rotary_embedding_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.q = copy;
  result.offsets = args.seqlens_k;
  result.rotary_cos = args.rotary_cos;
  result.rotary_sin = args.rotary_sin;
  result.batch = args.batch;
  result.seqlen = one_position ? 1 : args.seqlen_q;
  result.heads_q =
      one_position ? count("seqlen_q * heads_q", std::int64_t{args.seqlen_q} * args.heads_q) : args.heads_q;
  result.head_dim = padded_head_dim(args.head_dim);
  result.rotary = args.rotary;
  result.rotary_dim = args.rotary_dim;
  result.rotations = args.rotations;
  return result;
}

/// Throws what is wrong with a call of prefill; launches nothing.
void check_prefill(const AddressedFramework& framework, const attune_prefill_args& prefill) {
  attune_serving serving{};
  serving.struct_size = sizeof(serving);
  framework.call(
      [&](attune_registry* registry) { return attune_registry_serving(registry, ATTUNE_PREFILL, &prefill, &serving); });
}

/// Has decode check the arguments that prefill lacks (num_splits, cache_leftpad); a call without queries launches
/// nothing.
void check_decode(const AddressedFramework& framework, const First& first, attune_decode_args args) {
  args.seqlen_q = 0;
  if (args.seqlen_new > 0) args.rotary = ATTUNE_ROTARY_NONE;  // decode refuses one without new keys
  args.seqlen_new = 0;
  framework.launch(&attune_decode, args, first.array.device);
}

void refuse_check(const attune_decode_args& args) {
  if (args.check_tables == 0) return;
  raise(PyExc_NotImplementedError,
        fmt::format("check_tables is given with {} queries a sequence; with more than {} it must be false",
                    args.seqlen_q, most_decode_queries));
}

}  // namespace

bool has_many_queries(const attune_decode_args& args) { return args.seqlen_q > most_decode_queries; }

void launch_prefill(const AddressedFramework& framework, const First& first, const attune_decode_args& args,
                    const DecodeArguments& arguments, nb::handle q) {
  refuse_check(args);
  check_decode(framework, first, args);
  Kept kept;
  attune_prefill_args prefill = attention_of(args);
  Keys(framework, first, args, arguments, kept).set(prefill);
  const bool rotates = args.rotary != ATTUNE_ROTARY_NONE;
  if (rotates) prefill.q = copy_queries(framework, q, args, kept);
  // Kernels are found, and mistakes named, before the cache is written.
  const nb::object workspace = framework.workspace(&attune_prefill_workspace, prefill, first.argument.array);
  if (args.seqlen_new > 0) check_prefill(framework, prefill);
  if (rotates) framework.launch(&attune_rotary_embedding, rotation_of_queries(args, prefill.q), first.array.device);
  if (args.seqlen_new > 0) framework.launch(&attune_store_kv, store_of(args), first.array.device);
  framework.launch(&attune_prefill, prefill, first.array.device);
}

}  // namespace attune::python
