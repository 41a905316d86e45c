// What an array of each framework is: its memory, what may be asked of it, and how a kernel runs on it.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "attune/attune.h"

namespace attune::python {

/// An array as it was passed, and the name for messages. `parts` arrays lie in it along dimension 2; 1: there is no
/// such dimension.
struct Argument {
  const char* name;
  nanobind::handle array;
  int parts;
};

inline constexpr int most_dimensions = 5;
using Extents = std::array<std::int64_t, most_dimensions>;

/// What a framework says of an array.
struct Array {
  std::optional<attune_dtype> dtype;  ///< nothing: another one
  bool is_int32 = false;
  std::int64_t device = 0;  ///< a GPU's ordinal; below 0 where it is on none
  std::uintptr_t address = 0;
  int rank = 0;
  Extents shape{};    ///< zeros where the rank is higher than most_dimensions
  Extents strides{};  ///< likewise; in elements
};

/// A checked call: all but where its results go.
struct Call {
  std::span<const Argument> arguments;
  attune_prefill_args args;
  std::int64_t device;
  bool return_lse;
};

/// The same of attention to a cache.
struct DecodeCall {
  nanobind::handle q;
  nanobind::handle out;  ///< None: made like q
  attune_decode_args args;
  std::int64_t device;
  bool return_lse;
};

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

  /// Computes the output, or (output, LSE, None).
  [[nodiscard]] virtual nanobind::object run(const Call& call) const = 0;

  /// Computes the output, or (output, LSE).
  [[nodiscard]] virtual nanobind::object run(const DecodeCall& call) const = 0;

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
  [[nodiscard]] nanobind::object run(const DecodeCall& call) const final;

 protected:
  using Framework::Framework;

  [[nodiscard]] virtual nanobind::object empty_like(nanobind::handle array) const = 0;
  /// Contiguous, with the dtype of another array.
  [[nodiscard]] virtual nanobind::object empty(const nanobind::tuple& shape, nanobind::handle like) const = 0;
  [[nodiscard]] virtual nanobind::object empty_float32(const nanobind::tuple& shape, nanobind::handle like) const = 0;
  /// Aligned to 16 bytes.
  [[nodiscard]] virtual nanobind::object empty_bytes(std::size_t bytes, nanobind::handle like) const = 0;

  /// The context manager that makes a device the current one; none where it already is. Results are allocated and
  /// the kernel is launched in it.
  [[nodiscard]] virtual nanobind::object on_device(std::int64_t device) const = 0;
  /// Gives the calling thread a CUDA context.
  virtual void make_context() const = 0;
  /// The device's current stream.
  [[nodiscard]] virtual std::uintptr_t stream(std::int64_t device) const = 0;
  [[nodiscard]] virtual bool is_emulated() const { return false; }

 private:
  /// Calls the C ABI with the registry, once more where the thread had no CUDA context yet, and throws what it says.
  template <class Operation>
  void call(const Operation& operation) const;
};

// One for each framework; the argument is its module.
std::unique_ptr<const Framework> make_torch(nanobind::handle module);
std::unique_ptr<const Framework> make_cupy(nanobind::handle module);
std::unique_ptr<const Framework> make_numpy(nanobind::handle module);
std::unique_ptr<const Framework> make_jax(nanobind::handle module);

/// The framework of an array that was passed as `name`. No framework is imported: a caller who passes an array has done
/// so. Throws a TypeError where it is of none.
const Framework& framework_of(const char* name, nanobind::handle array);

/// The integers of a tuple, or zeros where there are more than most_dimensions.
Extents integers(nanobind::handle tuple);

template <class T>
T* pointer(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): Python has addresses as integers
}

}  // namespace attune::python
