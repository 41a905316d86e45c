#include "runtime/python/rotary.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/python/arrays.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/rotation.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

constexpr const char* either_shape = "(batch, seqlen, heads, head_dim) or (total, heads, head_dim)";

/// Queries or keys, which are read and written.
Operand read_rotated(const First& first, const char* name, nb::handle array, int rank) {
  const Operand rotated = read_operand(first, name, array, rank, either_shape);
  first.framework.require_writable({name, array, 1});
  return rotated;
}

/// Keys of the same positions as the queries.
Operand read_keys(const First& first, nb::handle array, const Operand& q) {
  const Operand k = read_rotated(first, "k", array, q.rank);
  Shape wanted = q.shape;
  wanted[2] = k.shape[2];
  if (k.shape != wanted) {
    raise(PyExc_ValueError,
          fmt::format("k has shape {}; it must be that of q, {}, but for the number of heads", k.text(), q.text()));
  }
  return k;
}

Rotation read_rotation(const First& first, const RotaryArguments& arguments) {
  const Rotation rotation =
      rotation_of(first, arguments.rotary_cos, arguments.rotary_sin, arguments.rotary_interleaved);
  if (rotation.kind == ATTUNE_ROTARY_NONE) {
    raise(PyExc_TypeError,
          fmt::format("rotary_cos and rotary_sin are None; each must be a {}", first.framework.type_name()));
  }
  return rotation;
}

attune_rotary_embedding_args args_of(const RotaryArguments& arguments, const First& first) {
  const Operand q = read_rotated(first, "q", arguments.q, first.array.rank == 3 ? 3 : 4);
  attune_rotary_embedding_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.q = q.tensor;
  args.batch = count("batch", q.shape[0]);
  args.seqlen = count("seqlen", q.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  if (!arguments.k.is_none()) {
    const Operand k = read_keys(first, arguments.k, q);
    args.k = k.tensor;
    args.heads_kv = count("heads_kv", k.shape[2]);
  }

  const Rotation rotation = read_rotation(first, arguments);
  rotation.set(args);

  if (!arguments.positions.is_none() && !arguments.seqlen_offsets.is_none()) {
    raise(PyExc_ValueError, "positions and seqlen_offsets are both given; positions alone name the rows");
  }
  if (!arguments.positions.is_none()) {
    args.positions = pointer<const std::int32_t>(
        read_each_row(first, "positions", arguments.positions, {Element::int32}, q, q.shape[1]).address);
  }
  read_optional_lengths(args.offsets, first, "seqlen_offsets", arguments.seqlen_offsets, {"q", args.batch});
  return args;
}

}  // namespace

void bind_rotary(nb::module_& module) { bind_call<&rotary>(module, "rotary", "Rotates queries and keys in place."); }

void rotary(const RotaryArguments& arguments) {
  const First first = read_first({"q", arguments.q, 1});
  const AddressedFramework& framework = require_addressed(first, "rotating in place");
  const attune_rotary_embedding_args args = args_of(arguments, first);
  const Entered entered(framework.on_device(first.array.device));
  framework.launch(&attune_rotary_embedding, args, first.array.device);
}

}  // namespace attune::python
