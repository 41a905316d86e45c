// What an array of each framework is: its memory, what may be asked of it, and how a kernel runs on it.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "attune/attune.h"

namespace attune::python {

template <class T>
T* pointer(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): Python has addresses as integers
}

/// An array as it was passed, and the name for messages. `parts` arrays lie in it along dimension 2; 1: there is no
/// such dimension.
struct Argument {
  const char* name;
  nanobind::handle array;
  int parts;
};

inline constexpr int most_dimensions = 5;
using Extents = std::array<std::int64_t, most_dimensions>;

/// The dtypes that arguments have.
enum class Element { other, float16, bfloat16, float32, int32, int64 };

/// What a framework says of an array.
struct Array {
  Element element = Element::other;
  std::int64_t device = 0;  ///< a GPU's ordinal; below 0 where it is on none
  std::uintptr_t address = 0;
  int rank = 0;
  Extents shape{};    ///< zeros where the rank is higher than most_dimensions
  Extents strides{};  ///< likewise; in elements
};

/// As a tensor (batch, seqlen, heads, head_dim) or, of rank 3, one batch of rows (total, heads, head_dim).
attune_tensor tensor_of(const Array& array, int rank);

/// A checked call: all but where its results go.
struct Call {
  std::span<const Argument> arguments;
  attune_prefill_args args;
  std::int64_t device;
  bool return_lse;
  std::span<const nanobind::object> params;  ///< the arrays of args.params, in their order
  nanobind::handle sink;                     ///< that of args.sink
  nanobind::handle dropout_state;            ///< that of args.dropout, where there is a probability
};

class AddressedFramework;

/// How to treat the arrays of one framework.
class Framework {
 public:
  virtual ~Framework() = default;
  Framework(const Framework&) = delete;
  Framework& operator=(const Framework&) = delete;

  [[nodiscard]] nanobind::handle array_type() const { return array_type_; }
  [[nodiscard]] const std::string& type_name() const { return type_name_; }

  /// `name` is the argument's, for messages.
  [[nodiscard]] virtual Array read(const char* name, nanobind::handle array) const = 0;

  /// Throws where no kernel can run on the array, its dtype and shape apart.
  virtual void require_usable(const Argument& argument, const Array& array) const = 0;

  /// Throws where results cannot be written to the array.
  virtual void require_writable(const Argument& /*argument*/) const {}

  /// A copy whose last dimension is extended with zeros to this extent.
  [[nodiscard]] virtual nanobind::object padded(nanobind::handle array, std::int64_t extent) const = 0;

  /// The same numbers as float32.
  [[nodiscard]] virtual nanobind::object as_float32(nanobind::handle array) const = 0;

  /// The context manager that makes a device the current one; none where it already is, or needs not be. Results are
  /// allocated and the kernel is launched in it.
  [[nodiscard]] virtual nanobind::object on_device(std::int64_t /*device*/) const { return nanobind::none(); }

  /// Of the arrays that hold seed and offset of dropout, 16 bytes.
  [[nodiscard]] virtual Element state_element() const { return Element::int64; }

  /// Computes the output, or (output, LSE, None).
  [[nodiscard]] virtual nanobind::object run(const Call& call) const = 0;

  /// Itself, where its arrays have an address; else null.
  [[nodiscard]] virtual const AddressedFramework* addressed() const { return nullptr; }

 protected:
  Framework(nanobind::handle array_type, std::string type_name)
      : array_type_(nanobind::borrow(array_type)), type_name_(std::move(type_name)) {}

 private:
  nanobind::object array_type_;
  std::string type_name_;
};

/// Leaves a Python context manager when it goes.
class Entered {
 public:
  explicit Entered(nanobind::object manager);
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  nanobind::object manager_;
};

/// A framework whose arrays have an address: results are allocated by it and written by the kernel.
class AddressedFramework : public Framework {
 public:
  [[nodiscard]] nanobind::object run(const Call& call) const final;
  [[nodiscard]] const AddressedFramework* addressed() const final { return this; }

  [[nodiscard]] virtual nanobind::object empty_like(nanobind::handle array) const = 0;
  [[nodiscard]] virtual nanobind::object zeros_like(nanobind::handle array) const = 0;
  /// Contiguous, with the dtype of another array.
  [[nodiscard]] virtual nanobind::object empty(const nanobind::tuple& shape, nanobind::handle like) const = 0;
  [[nodiscard]] virtual nanobind::object empty_float32(const nanobind::tuple& shape, nanobind::handle like) const = 0;
  [[nodiscard]] virtual nanobind::object full_int32(std::int32_t count, std::int32_t value,
                                                    nanobind::handle like) const = 0;
  /// 0, 1, 2, ...
  [[nodiscard]] virtual nanobind::object counted_int32(std::int32_t count, nanobind::handle like) const = 0;
  /// The same integers as int64.
  [[nodiscard]] virtual nanobind::object as_int64(nanobind::handle array) const = 0;
  /// The rows of a table that an array of int32 names, contiguous. One that is outside names the nearest.
  [[nodiscard]] virtual nanobind::object rows_of(nanobind::handle table, nanobind::handle index) const = 0;
  /// Aligned to 16 bytes.
  [[nodiscard]] virtual nanobind::object empty_bytes(std::size_t bytes, nanobind::handle like) const = 0;

  /// An array for results like another one, of which rank 3 and 4 are known; it becomes `tensor`. It has zeros where
  /// that is asked for, else anything.
  [[nodiscard]] nanobind::object result_like(nanobind::handle array, int rank, attune_tensor& tensor,
                                             bool zeros = false) const;
  /// One for the LSE of those results; it becomes `lse`.
  [[nodiscard]] nanobind::object result_lse(const nanobind::tuple& shape, nanobind::handle like, float*& lse) const;

  /// Calls the C ABI with the registry, once more where the thread had no CUDA context yet, and throws what it says.
  void call(const std::function<attune_status(attune_registry*)>& operation) const;

  /// The workspace that the operation takes, entered into its arguments; nothing where it needs none. It may be freed
  /// as soon as the operation is launched: allocators hand memory on in the order of the stream.
  template <class Arguments>
  [[nodiscard]] nanobind::object workspace(attune_status (*bytes_of)(attune_registry*, const Arguments*, std::size_t*),
                                           Arguments& arguments, nanobind::handle like) const {
    call([&](attune_registry* registry) { return bytes_of(registry, &arguments, &arguments.workspace_bytes); });
    if (arguments.workspace_bytes == 0) return {};
    nanobind::object made = empty_bytes(arguments.workspace_bytes, like);
    arguments.workspace = pointer<void>(read("workspace", made).address);
    return made;
  }

  /// The same of an operation that launches kernels, with the device's current stream.
  template <class Arguments>
  void launch(attune_status (*operation)(attune_registry*, const Arguments*, void*), const Arguments& arguments,
              std::int64_t device) const {
    auto* const queue = pointer<void>(stream(device));
    call([&](attune_registry* registry) { return operation(registry, &arguments, queue); });
  }

 protected:
  using Framework::Framework;

  /// Gives the calling thread a CUDA context.
  virtual void make_context() const = 0;
  /// The device's current stream.
  [[nodiscard]] virtual std::uintptr_t stream(std::int64_t device) const = 0;
  [[nodiscard]] virtual bool is_emulated() const { return false; }
};

// One for each framework; the argument is its module.
std::unique_ptr<const Framework> make_torch(nanobind::handle module);
std::unique_ptr<const Framework> make_cupy(nanobind::handle module);
std::unique_ptr<const Framework> make_numpy(nanobind::handle module);
std::unique_ptr<const Framework> make_jax(nanobind::handle module);

/// The framework of an array that was passed as `name`. No framework is imported: a caller who passes an array has done
/// so. Throws a TypeError where it is of none.
const Framework& framework_of(const char* name, nanobind::handle array);

/// The columns before this one, in every dimension before the last: a view.
nanobind::object columns_before(nanobind::handle array, std::int64_t end);

/// The integers of a tuple, or zeros where there are more than most_dimensions.
Extents integers(nanobind::handle tuple);

}  // namespace attune::python
