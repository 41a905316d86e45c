#include "runtime/python/framework.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/python/errors.hpp"
#include "runtime/python/registries.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

struct Known {
  const char* module;
  const char* array_type;
  std::unique_ptr<const Framework> (*make)(nb::handle module);
  const Framework* made = nullptr;
};

/// Of the frameworks that have been imported; null where the array is of none of them.
const Framework* find_framework(nb::handle array) {
  // Guarded by the GIL. They hold Python objects, so that they must outlive the interpreter's end.
  static std::array<Known, 4> known{{{"torch", "Tensor", &make_torch},
                                     {"cupy", "ndarray", &make_cupy},
                                     {"jax", "Array", &make_jax},
                                     {"numpy", "ndarray", &make_numpy}}};
  for (const Known& one : known) {
    if (one.made != nullptr && array.type().is(one.made->array_type())) return one.made;
  }
  for (Known& one : known) {
    if (one.made == nullptr) {
      const nb::object module = nb::steal(PyImport_GetModule(nb::str(one.module).ptr()));
      if (!module.is_valid()) continue;
      const nb::object type = nb::getattr(module, one.array_type, nb::none());  // none while it is being imported
      if (type.is_none() || !nb::isinstance(array, type)) continue;
      one.made = one.make(module).release();
    }
    if (nb::isinstance(array, one.made->array_type())) return one.made;
  }
  return nullptr;
}

}  // namespace

attune_tensor tensor_of(const Array& array) {
  return {pointer<void>(array.address), array.strides[0], array.strides[1], array.strides[2]};
}

attune_tensor rows_tensor_of(const Array& array) {
  return {pointer<void>(array.address), 0, array.strides[0], array.strides[1]};
}

Entered::Entered(nb::object manager) : manager_(std::move(manager)) {
  if (!manager_.is_none()) manager_.attr("__enter__")();
}

Entered::~Entered() {
  if (manager_.is_none()) return;
  try {
    manager_.attr("__exit__")(nb::none(), nb::none(), nb::none());
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(manager_);
  }
}

nb::object AddressedFramework::run(const Call& call) const {
  const Entered entered(on_device(call.device));
  attune_prefill_args args = call.args;
  const nb::handle first = call.arguments.front().array;
  const bool like_q = call.arguments.front().parts == 1 && args.head_dim_v == args.head_dim;
  nb::object out = like_q ? empty_like(first)
                          : empty(nb::make_tuple(args.batch, args.seqlen_q, args.heads_q, args.head_dim_v), first);
  args.o = tensor_of(read("out", out));
  nb::object lse;
  if (call.return_lse) {
    lse = empty_float32(nb::make_tuple(args.batch, args.heads_q, args.seqlen_q), first);
    args.lse = pointer<float>(read("softmax_lse", lse).address);
  }

  const nb::object memory = workspace(&attune_prefill_workspace, args, first);
  launch(&attune_prefill, args, call.device);
  return call.return_lse ? nb::make_tuple(out, lse, nb::none()) : out;
}

void AddressedFramework::call(const std::function<attune_status(attune_registry*)>& operation) const {
  const bool emulated = is_emulated();
  const auto attempt = [&] {
    const nb::gil_scoped_release released;  // a first call compiles, and the emulator takes its time
    return operation(registry_of(emulated));
  };
  attune_status status = attempt();
  if (status == ATTUNE_NO_DEVICE && !emulated) {
    make_context();  // a thread that has not used CUDA has none
    status = attempt();
  }
  check(status);
}

const Framework& framework_of(const char* name, nb::handle array) {
  if (const Framework* found = find_framework(array)) return *found;
  raise(PyExc_TypeError, fmt::format("{} is a {}; it must be a PyTorch CUDA tensor, a CuPy, JAX or NumPy array", name,
                                     full_type_name(array)));
}

Extents integers(nb::handle tuple) {
  Extents result{};
  const Py_ssize_t size = PyTuple_Size(tuple.ptr());
  for (Py_ssize_t i = 0; size <= most_dimensions && i < size; ++i) {
    const long long value = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    result[static_cast<std::size_t>(i)] = value;
  }
  return result;
}

}  // namespace attune::python
