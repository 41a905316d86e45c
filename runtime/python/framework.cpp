#include "runtime/python/framework.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/gil.hpp"
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

/// What became of an operation; the message is that of the thread it ran on.
struct Outcome {
  attune_status status;
  std::string message;
};

using Operation = std::function<attune_status(attune_registry*)>;

Outcome outcome_of(const Operation& operation, attune_registry* registry) {
  const attune_status status = operation(registry);
  return {status, status == ATTUNE_OK ? "" : attune_last_error()};
}

Outcome run_on_gpu(const Operation& operation) {
  const WithoutGil released;  // a first call compiles
  const RunningCall running;
  return outcome_of(operation, registry_of(false));
}

/// On a thread of its own, so that this one can ask for signals meanwhile: emulated kernels take their time. Throws
/// what a signal's handler raised, once the kernel has come to a place where it can stop.
Outcome run_in_emulator(const Operation& operation) {
  constexpr std::chrono::milliseconds between_signals{50};
  attune_registry* const registry = registry_of(true);
  std::atomic<bool> stop = false;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool done = false;
  Outcome outcome{};
  const RunningCall running(&stop);
  std::thread runner([&] {
    const emulator::Stoppable here(stop);
    Outcome found = outcome_of(operation, registry);
    const std::lock_guard lock(mutex);
    outcome = std::move(found);
    done = true;
    changed.notify_one();
  });
  const auto is_done = [&] {
    const WithoutGil released;
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, between_signals, [&] { return done; });
  };
  bool signalled = false;
  while (!signalled && !is_done()) signalled = PyErr_CheckSignals() != 0;
  stop = signalled;
  if (signalled) {
    const nb::python_error raised;
    {
      const WithoutGil released;
      runner.join();
    }
    throw raised;
  }
  runner.join();
  return outcome;
}

}  // namespace

attune_tensor tensor_of(const Array& array, int rank) {
  const auto& strides = array.strides;
  if (rank == 3) return {pointer<void>(array.address), 0, strides[0], strides[1]};
  return {pointer<void>(array.address), strides[0], strides[1], strides[2]};
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
  args.o = tensor_of(read("out", out), 4);
  nb::object lse;
  if (call.return_lse) lse = result_lse(nb::make_tuple(args.batch, args.heads_q, args.seqlen_q), first, args.lse);

  const nb::object memory = workspace(&attune_prefill_workspace, args, first);
  launch(&attune_prefill, args, call.device);
  return call.return_lse ? nb::make_tuple(out, lse, nb::none()) : out;
}

nb::object AddressedFramework::result_like(nb::handle array, int rank, attune_tensor& tensor, bool zeros) const {
  nb::object result = zeros ? zeros_like(array) : empty_like(array);
  tensor = tensor_of(read("out", result), rank);
  return result;
}

nb::object AddressedFramework::result_lse(const nb::tuple& shape, nb::handle like, float*& lse) const {
  nb::object result = empty_float32(shape, like);
  lse = pointer<float>(read("softmax_lse", result).address);
  return result;
}

void AddressedFramework::call(const std::function<attune_status(attune_registry*)>& operation) const {
  try {
    Outcome outcome = is_emulated() ? run_in_emulator(operation) : run_on_gpu(operation);
    if (outcome.status == ATTUNE_NO_DEVICE && !is_emulated()) {
      make_context();  // a thread that has not used CUDA has none
      outcome = run_on_gpu(operation);
    }
    if (outcome.status != ATTUNE_OK) throw Error(outcome.status, outcome.message);
  } catch (const Error&) {
    raise_interruptions();
    throw;
  }
}

const Framework& framework_of(const char* name, nb::handle array) {
  if (const Framework* found = find_framework(array)) return *found;
  raise(PyExc_TypeError, fmt::format("{} is a {}; it must be a PyTorch CUDA tensor, a CuPy, JAX or NumPy array", name,
                                     full_type_name(array)));
}

nb::object columns_before(nb::handle array, std::int64_t end) {
  return array[nb::make_tuple(nb::ellipsis(), nb::slice(static_cast<Py_ssize_t>(end)))];
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
