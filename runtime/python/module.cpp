// attune._attune: the C ABI for the Python package beside it, which checks what its callers pass. Arrays come as an
// address and the strides of batch, sequence and heads, so that no framework's headers or versions matter here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "attune/attune.h"

namespace nb = nanobind;

namespace {

using Strides = std::array<std::int64_t, 4>;  // in elements; the last is 1

/// No CUDA context is current on the calling thread, or there is no GPU.
struct NoDevice : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void raise(PyObject* type) {
  PyErr_SetString(type, attune_last_error());
  throw nb::python_error();
}

/// Throws the Python exception that a failure of the C ABI stands for.
void check(attune_status status) {
  switch (status) {
    case ATTUNE_OK:
      return;
    case ATTUNE_INVALID_ARGUMENT:
      raise(PyExc_ValueError);
    case ATTUNE_UNSUPPORTED:
      raise(PyExc_NotImplementedError);
    case ATTUNE_NO_DEVICE:
      throw NoDevice(attune_last_error());
    default:
      raise(PyExc_RuntimeError);
  }
}

attune_registry* open_registry(attune_device device) {
  attune_options options{};
  options.struct_size = sizeof(options);
  options.device = device;
  options.emulator_seed = 1;
  attune_registry* registry = nullptr;
  if (attune_registry_create(&options, &registry) != ATTUNE_OK) throw std::runtime_error(attune_last_error());
  return registry;
}

/// The process has one registry for each device. They are never destroyed: work that they launched may still run when
/// the process ends.
attune_registry* registry_of(bool emulator) {
  if (emulator) {
    static attune_registry* const registry = open_registry(ATTUNE_DEVICE_EMULATOR);
    return registry;
  }
  static attune_registry* const registry = open_registry(ATTUNE_DEVICE_CUDA);
  return registry;
}

std::int32_t count(const char* name, std::int64_t value) {
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    throw nb::value_error((std::string(name) + " is " + std::to_string(value) + "; it must fit 31 bits").c_str());
  }
  return static_cast<std::int32_t>(value);
}

template <class T>
T* pointer(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): Python has addresses as integers
}

attune_tensor tensor(std::uintptr_t address, const Strides& strides) {
  return {pointer<void>(address), strides[0], strides[1], strides[2]};
}

void prefill(bool emulator, bool bf16, const std::array<std::int64_t, 6>& sizes, std::uintptr_t q,
             const Strides& q_strides, std::uintptr_t k, const Strides& k_strides, std::uintptr_t v,
             const Strides& v_strides, std::uintptr_t o, const Strides& o_strides, std::uintptr_t lse,
             double softmax_scale, bool causal, std::uintptr_t stream) {
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = bf16 ? ATTUNE_BF16 : ATTUNE_FP16;
  args.q = tensor(q, q_strides);
  args.k = tensor(k, k_strides);
  args.v = tensor(v, v_strides);
  args.o = tensor(o, o_strides);
  args.lse = pointer<float>(lse);
  args.batch = count("batch", sizes[0]);
  args.seqlen_q = count("seqlen_q", sizes[1]);
  args.seqlen_k = count("seqlen_k", sizes[2]);
  args.heads_q = count("heads_q", sizes[3]);
  args.heads_kv = count("heads_kv", sizes[4]);
  args.head_dim = count("head_dim", sizes[5]);
  args.softmax_scale = static_cast<float>(softmax_scale);
  args.causal = causal ? 1 : 0;
  attune_status status = ATTUNE_OK;
  {
    const nb::gil_scoped_release released;  // a first call compiles, and the emulator takes its time
    status = attune_prefill(registry_of(emulator), &args, pointer<void>(stream));
  }
  check(status);
}

}  // namespace

NB_MODULE(_attune, module) {
  using nb::literals::operator""_a;
  module.doc() = "Attune's C ABI. Use the package attune instead.";
  module.attr("version") = attune_version();

  const nb::exception<NoDevice> no_device(module, "NoDeviceError", PyExc_RuntimeError);
  module.def("prefill", &prefill, "emulator"_a, "bf16"_a, "sizes"_a, "q"_a, "q_strides"_a, "k"_a, "k_strides"_a, "v"_a,
             "v_strides"_a, "o"_a, "o_strides"_a, "lse"_a, "softmax_scale"_a, "causal"_a, "stream"_a,
             "sizes: batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim. Strides in elements. lse: 0 for none.");
}
