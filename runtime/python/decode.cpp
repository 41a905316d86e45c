#include "runtime/python/decode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "runtime/python/errors.hpp"
#include "runtime/python/operands.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// q, which the other arrays must be like.
struct First {
  const Framework& framework;
  Argument argument;
  Array array;
};

Operand read_operand(const First& q, const char* name, nb::handle array, const char* accepted) {
  const Argument argument{name, array, 1};
  const Array read = array.is(q.argument.array) ? q.array : read_alike(q.framework, argument, q.argument, q.array);
  q.framework.require_usable(argument, read);
  Operand operand;
  split(argument, read, accepted, std::span(&operand, 1));
  return operand;
}

/// An int32 array of this rank with a row for each sequence. `accepted` says what its shape must be.
Array read_indices(const First& q, const char* name, nb::handle array, int rank, std::int64_t batch,
                   const char* accepted) {
  const Argument argument{name, array, 1};
  require_framework(q.framework, argument, q.argument);
  const Array read = q.framework.read(name, array);
  if (!read.is_int32) {
    raise(PyExc_TypeError, fmt::format("{} has dtype {}; it must be int32", name, text(array.attr("dtype"))));
  }
  require_device(argument, read, q.argument, q.array);
  q.framework.require_usable(argument, read);
  if (read.rank != rank || read.shape[0] != batch || (rank == 2 && read.shape[1] == 0)) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} sequences in q it must be {}", name,
                                        shape_text(argument), batch, accepted));
  }
  const auto last = static_cast<std::size_t>(rank - 1);
  if (read.shape[last] > 1 && read.strides[last] != 1) {
    raise(PyExc_ValueError, fmt::format("{} has a stride of {} elements in its last dimension; it must be contiguous",
                                        name, read.strides[last]));
  }
  return read;
}

/// That queries and cache fit together.
void require_fit(const Operand& q, const Operand& k, const Operand& v) {
  if (k.shape[3] != q.shape[3]) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} its head_dim must be {}", k.name,
                                        tuple_text(k.shape), q.name, tuple_text(q.shape), q.shape[3]));
  }
  if (v.shape != k.shape) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; it must be {}, as {} is", v.name, tuple_text(v.shape),
                                        tuple_text(k.shape), k.name));
  }
  require_heads_divide(q, k);
}

/// Which pages of the cache belong to each sequence.
void set_pages(attune_decode_args& args, const DecodeArguments& arguments, const First& q, const Operand& k) {
  args.pages = count("pages", k.shape[0]);
  args.page_size = count("page_size", k.shape[1]);
  args.table_width = 1;
  args.max_seqlen_k = args.page_size;
  if (!arguments.block_table.is_none()) {
    if (!arguments.cache_batch_idx.is_none()) {
      raise(PyExc_ValueError, "cache_batch_idx and block_table are both given; a block_table alone names the pages");
    }
    const Array table = read_indices(q, "block_table", arguments.block_table, 2, args.batch, "(batch, blocks)");
    const std::int64_t blocks = table.shape[1];
    // Rows may lie apart, in a slice of a wider table: what is behind a row's own entries is never read.
    const std::int64_t width = args.batch == 1 ? blocks : table.strides[0];
    if (width < blocks) {
      raise(PyExc_ValueError,
            fmt::format("block_table has rows {} elements apart; its {} columns must not overlap", width, blocks));
    }
    args.block_table = pointer<const std::int32_t>(table.address);
    args.table_width = count("table_width", width);
    args.max_seqlen_k = count("max_seqlen_k", blocks * k.shape[1]);
  } else if (!arguments.cache_batch_idx.is_none()) {
    const Array index = read_indices(q, "cache_batch_idx", arguments.cache_batch_idx, 1, args.batch, "(batch,)");
    args.block_table = pointer<const std::int32_t>(index.address);
  } else if (k.shape[0] < args.batch) {
    raise(PyExc_ValueError,
          fmt::format("{} has {} sequences; without cache_batch_idx or block_table it must have at least the {} of q",
                      k.name, k.shape[0], args.batch));
  }
}

std::int32_t integer(const char* name, nb::handle value, const char* accepted) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    raise(PyExc_TypeError, fmt::format("{} is a {}; it must be {}", name, full_type_name(value), accepted));
  }
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) raise(PyExc_ValueError, fmt::format("{} is {}; it must fit 32 bits", name, text(index)));
  return count(name, result);
}

/// How many keys each sequence has.
void set_lengths(attune_decode_args& args, nb::handle cache_seqlens, const First& q) {
  if (cache_seqlens.is_none()) return;
  if (nb::isinstance(cache_seqlens, q.framework.array_type())) {
    const Array lengths = read_indices(q, "cache_seqlens", cache_seqlens, 1, args.batch, "(batch,)");
    args.seqlens_k = pointer<const std::int32_t>(lengths.address);
    return;
  }
  const std::string accepted = fmt::format("an integer, a {} or None", q.framework.type_name());
  const std::int32_t length = integer("cache_seqlens", cache_seqlens, accepted.c_str());
  if (length < 0 || length > args.max_seqlen_k) {
    raise(PyExc_ValueError, fmt::format("cache_seqlens is {}; it must be from 0 to {}, which the cache has room for",
                                        length, args.max_seqlen_k));
  }
  args.max_seqlen_k = length;
}

void set_window(attune_decode_args& args, nb::handle window_size, bool causal) {
  const bool pair = PySequence_Check(window_size.ptr()) == 1 && PySequence_Size(window_size.ptr()) == 2;
  if (!pair) {
    raise(PyExc_TypeError, fmt::format("window_size is {}; it must be (left, right), two integers", text(window_size)));
  }
  const auto side = [&](Py_ssize_t place) {
    const nb::object value = nb::steal(PySequence_GetItem(window_size.ptr(), place));
    if (!value.is_valid()) throw nb::python_error();
    return integer("window_size", value, "(left, right), two integers");
  };
  args.window_left = side(0);
  const std::int32_t right = side(1);
  args.window_right = causal ? 0 : right;
}

void set_output(attune_decode_args& args, nb::handle out, const First& first, const Operand& q) {
  if (out.is_none()) return;
  const Operand written = read_operand(first, "out", out, "(batch, seqlen_q, heads_q, head_dim)");
  if (written.shape != q.shape) {
    raise(PyExc_ValueError,
          fmt::format("out has shape {}; it must be {}, as q is", tuple_text(written.shape), tuple_text(q.shape)));
  }
  first.framework.require_writable({"out", out, 1});
  args.o = written.tensor;
}

}  // namespace

nb::object decode(const DecodeArguments& arguments) {
  const Argument argument{"q", arguments.q, 1};
  const Framework& framework = framework_of(argument.name, argument.array);
  const First first{framework, argument, read_first(framework, argument)};
  const bool paged = !arguments.block_table.is_none();
  const char* const cache =
      paged ? "(blocks, page_size, heads_kv, head_dim)" : "(batch_cache, seqlen_cache, heads_kv, head_dim)";
  const Operand q = read_operand(first, "q", arguments.q, "(batch, seqlen_q, heads_q, head_dim)");
  const Operand k = read_operand(first, "k_cache", arguments.k_cache, cache);
  const Operand v = read_operand(first, "v_cache", arguments.v_cache, cache);
  require_fit(q, k, v);

  DecodeCall call{arguments.q, arguments.out, {}, first.array.device, is_true(arguments.return_lse)};
  attune_decode_args& args = call.args;
  args.struct_size = sizeof(args);
  args.dtype = *first.array.dtype;
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  args.batch = count("batch", q.shape[0]);
  args.seqlen_q = count("seqlen_q", q.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.softmax_scale = static_cast<float>(scale_of(arguments.softmax_scale, q.shape[3]));
  args.splits = integer("num_splits", arguments.num_splits, "an integer");
  set_pages(args, arguments, first, k);
  set_lengths(args, arguments.cache_seqlens, first);
  set_window(args, arguments.window_size, is_true(arguments.causal));
  set_output(args, arguments.out, first, q);
  return framework.run(call);
}

}  // namespace attune::python
