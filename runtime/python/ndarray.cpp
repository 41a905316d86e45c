// NumPy arrays, in the emulator, and CuPy arrays, on their GPU and the current stream. Their strides are in bytes.
#include <fmt/format.h>

#include "runtime/python/errors.hpp"
#include "runtime/python/framework.hpp"
#include "runtime/python/operands.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

class NdarrayFramework : public AddressedFramework {
 public:
  NdarrayFramework(nb::handle module, const char* type_name)
      : AddressedFramework(module.attr("ndarray"), type_name),
        empty_(module.attr("empty")),
        full_(module.attr("full")),
        take_(module.attr("take")),
        arange_(module.attr("arange")),
        zeros_(module.attr("zeros")),
        float16_(module.attr("dtype")("float16")),
        float32_(module.attr("dtype")("float32")),
        int32_(module.attr("dtype")("int32")),
        int64_(module.attr("dtype")("int64")),
        uint8_(module.attr("uint8")) {}

  [[nodiscard]] Array read(const char* name, nb::handle array) const override {
    const nb::object shape = array.attr("shape");
    const nb::object strides = array.attr("strides");
    const auto item = nb::cast<std::int64_t>(array.attr("itemsize"));
    Array result{.element = element_of(array.attr("dtype")),
                 .device = device(array),
                 .address = address(array),
                 .rank = static_cast<int>(PyTuple_Size(shape.ptr())),
                 .shape = integers(shape),
                 .strides = integers(strides)};
    for (std::int64_t& stride : result.strides) {
      if (stride % item != 0) {
        raise(PyExc_ValueError,
              fmt::format("{} has strides of {} bytes; {} must divide them", name, text(strides), item));
      }
      stride /= item;
    }
    return result;
  }

  void require_usable(const Argument& /*argument*/, const Array& /*array*/) const final {}

  [[nodiscard]] nb::object padded(nb::handle array, std::int64_t extent) const final {
    const nb::object own = array.attr("shape");
    nb::list shape;
    for (const nb::handle one : own) shape.append(one);
    const auto columns = nb::cast<std::int64_t>(shape[shape.size() - 1]);
    shape[shape.size() - 1] = extent;
    nb::object result = zeros_(shape, array.attr("dtype"));
    columns_before(result, columns)[nb::ellipsis()] = array;
    return result;
  }

  [[nodiscard]] nb::object as_float32(nb::handle array) const final { return array.attr("astype")(float32_); }

  [[nodiscard]] nb::object as_int64(nb::handle array) const final { return array.attr("astype")(int64_); }

  [[nodiscard]] nb::object rows_of(nb::handle table, nb::handle index) const final {
    const nb::object last = table.attr("shape")[0] - nb::int_(1);
    return take_(table, index.attr("clip")(0, last), 0);
  }

  [[nodiscard]] nb::object empty_like(nb::handle array) const final { return empty(array.attr("shape"), array); }

  [[nodiscard]] nb::object zeros_like(nb::handle array) const final {
    return zeros_(array.attr("shape"), array.attr("dtype"));
  }

  [[nodiscard]] nb::object empty(const nb::tuple& shape, nb::handle like) const final {
    return empty_(shape, like.attr("dtype"));
  }

  [[nodiscard]] nb::object empty_float32(const nb::tuple& shape, nb::handle /*like*/) const final {
    return empty_(shape, float32_);
  }

  [[nodiscard]] nb::object full_int32(std::int32_t count, std::int32_t value, nb::handle /*like*/) const final {
    return full_(count, value, int32_);
  }

  [[nodiscard]] nb::object counted_int32(std::int32_t count, nb::handle /*like*/) const final {
    return arange_(count, nb::arg("dtype") = int32_);
  }

  [[nodiscard]] nb::object empty_bytes(std::size_t bytes, nb::handle /*like*/) const final {
    return empty_(bytes, uint8_);
  }

 protected:
  [[nodiscard]] virtual std::int64_t device(nb::handle array) const = 0;
  [[nodiscard]] virtual std::uintptr_t address(nb::handle array) const = 0;

 private:
  [[nodiscard]] Element element_of(nb::handle dtype) const {
    if (dtype.equal(float16_)) return Element::float16;
    if (dtype.attr("name").equal(nb::str("bfloat16"))) return Element::bfloat16;
    if (dtype.equal(float32_)) return Element::float32;
    if (dtype.equal(int32_)) return Element::int32;
    return dtype.equal(int64_) ? Element::int64 : Element::other;
  }

  nb::object empty_;
  nb::object full_;
  nb::object take_;
  nb::object arange_;
  nb::object zeros_;
  nb::object float16_;
  nb::object float32_;
  nb::object int32_;
  nb::object int64_;
  nb::object uint8_;
};

class NumPy final : public NdarrayFramework {
 public:
  explicit NumPy(nb::handle module) : NdarrayFramework(module, "numpy.ndarray") {}

  void require_writable(const Argument& argument) const override {
    if (is_true(argument.array.attr("flags").attr("writeable"))) return;
    raise(PyExc_ValueError, fmt::format("{} is read-only; results are written to it", argument.name));
  }

 protected:
  [[nodiscard]] std::int64_t device(nb::handle /*array*/) const override { return -1; }

  [[nodiscard]] std::uintptr_t address(nb::handle array) const override {
    return nb::cast<std::uintptr_t>(array.attr("__array_interface__")["data"][0]);
  }

  void make_context() const override {}
  [[nodiscard]] std::uintptr_t stream(std::int64_t /*device*/) const override { return 0; }
  [[nodiscard]] bool is_emulated() const override { return true; }
};

class CuPy final : public NdarrayFramework {
 public:
  explicit CuPy(nb::handle module) : NdarrayFramework(module, "cupy.ndarray"), cuda_(module.attr("cuda")) {}

  [[nodiscard]] nb::object on_device(std::int64_t device) const override {
    const auto current = nb::cast<std::int64_t>(cuda_.attr("runtime").attr("getDevice")());
    return current == device ? nb::none() : cuda_.attr("Device")(device);
  }

 protected:
  [[nodiscard]] std::int64_t device(nb::handle array) const override {
    return nb::cast<std::int64_t>(array.attr("device").attr("id"));
  }

  [[nodiscard]] std::uintptr_t address(nb::handle array) const override {
    return nb::cast<std::uintptr_t>(array.attr("data").attr("ptr"));
  }

  void make_context() const override { cuda_.attr("runtime").attr("memGetInfo")(); }

  [[nodiscard]] std::uintptr_t stream(std::int64_t /*device*/) const override {
    return nb::cast<std::uintptr_t>(cuda_.attr("get_current_stream")().attr("ptr"));
  }

 private:
  nb::object cuda_;
};

}  // namespace

std::unique_ptr<const Framework> make_numpy(nb::handle module) { return std::make_unique<NumPy>(module); }

std::unique_ptr<const Framework> make_cupy(nb::handle module) { return std::make_unique<CuPy>(module); }

}  // namespace attune::python
