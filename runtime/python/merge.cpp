#include "runtime/python/merge.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/python/arrays.hpp"
#include "runtime/python/attention.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

constexpr const char* either_shape = "(batch, seqlen, heads, head_dim) or (total, heads, head_dim)";

attune_merge_states_args args_of(const MergeArguments& arguments, const First& first) {
  const Operand o1 = read_operand(first, "o1", arguments.o1, first.array.rank == 3 ? 3 : 4, either_shape);
  const Operand o2 = read_operand(first, "o2", arguments.o2, o1.rank, either_shape);
  if (o2.shape != o1.shape) {
    raise(PyExc_ValueError, fmt::format("o2 has shape {}; it must be {}, as o1 is", o2.text(), o1.text()));
  }
  attune_merge_states_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.o1 = o1.tensor;
  args.o2 = o2.tensor;
  read_lse(args.lse1, first, "lse1", arguments.lse1, o1);
  read_lse(args.lse2, first, "lse2", arguments.lse2, o2);
  args.batch = count("batch", o1.shape[0]);
  args.seqlen = count("seqlen", o1.shape[1]);
  args.heads = count("heads", o1.shape[2]);
  args.head_dim = count("head_dim", o1.shape[3]);
  if (!arguments.out.is_none()) args.o = read_output(first, "out", arguments.out, o1, either_shape).tensor;
  return args;
}

/// The same of outputs that are padded with zeros: its result without their columns.
nb::object merge_padded(const MergeArguments& arguments, const First& first, std::int64_t head_dim) {
  if (!arguments.out.is_none()) {
    raise(PyExc_ValueError,
          fmt::format("out is given, and o1 has head_dim {}; out is written where that is a multiple of 8", head_dim));
  }
  const Entered entered(first.framework.on_device(first.array.device));
  const std::int64_t extent = padded_head_dim(head_dim);
  const nb::object o1 = first.framework.padded(arguments.o1, extent);
  const nb::object o2 = first.framework.padded(arguments.o2, extent);
  MergeArguments same = arguments;
  same.o1 = o1;
  same.o2 = o2;
  return without_padding(merge(same), head_dim);
}

}  // namespace

void bind_merge(nb::module_& module) { bind_call<&merge>(module, "merge", "The output, or (output, LSE)."); }

nb::object merge(const MergeArguments& arguments) {
  const First first = read_first({"o1", arguments.o1, 1});
  const AddressedFramework& framework = require_addressed(first, "merging attention states");
  attune_merge_states_args args = args_of(arguments, first);
  if (args.head_dim != padded_head_dim(args.head_dim)) return merge_padded(arguments, first, args.head_dim);
  const bool return_lse = is_true(arguments.return_lse);

  const Entered entered(framework.on_device(first.array.device));
  nb::object out = nb::borrow(arguments.out);
  if (out.is_none()) out = framework.result_like(arguments.o1, first.array.rank, args.o);
  nb::object lse;
  if (return_lse) {
    lse = framework.result_lse(first.array.rank == 3 ? nb::make_tuple(args.heads, args.seqlen)
                                                     : nb::make_tuple(args.batch, args.heads, args.seqlen),
                               arguments.o1, args.lse);
  }
  framework.launch(&attune_merge_states, args, first.array.device);
  return return_lse ? nb::make_tuple(out, lse) : out;
}

}  // namespace attune::python
