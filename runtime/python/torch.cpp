// PyTorch tensors: on their GPU, on the current stream.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/python/dlpack_abi.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/framework.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// The way to describe a tensor in C, which PyTorch 2.10 and newer have; null in older ones.
const dlpack::Exchange* exchange_of(nb::handle tensor_type) {
  const nb::object capsule = nb::getattr(tensor_type, dlpack::exchange_attribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::exchange_capsule) == 0) return nullptr;
  const auto* found =
      static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::exchange_capsule));
  return found->header.major_version == dlpack::major_version ? found : nullptr;
}

Element element_of(const dlpack::DataType& dtype) {
  if (dtype.lanes != 1) return Element::other;
  const auto has = [&](int code, int bits) { return dtype.code == code && dtype.bits == bits; };
  if (has(dlpack::code_float, 16)) return Element::float16;
  if (has(dlpack::code_bfloat, 16)) return Element::bfloat16;
  if (has(dlpack::code_float, 32)) return Element::float32;
  if (has(dlpack::code_int, 32)) return Element::int32;
  return has(dlpack::code_int, 64) ? Element::int64 : Element::other;
}

class Torch final : public AddressedFramework {
 public:
  explicit Torch(nb::handle module)
      : AddressedFramework(module.attr("Tensor"), "torch.Tensor"),
        exchange_(exchange_of(array_type())),
        cuda_(module.attr("cuda")),
        float16_(module.attr("float16")),
        bfloat16_(module.attr("bfloat16")),
        float32_(module.attr("float32")),
        int32_(module.attr("int32")),
        int64_(module.attr("int64")),
        uint8_(module.attr("uint8")),
        pad_(module.attr("nn").attr("functional").attr("pad")),
        empty_like_(module.attr("empty_like")),
        zeros_like_(module.attr("zeros_like")),
        arange_(module.attr("arange")),
        is_grad_enabled_(module.attr("is_grad_enabled")),
        current_device_(nb::getattr(module.attr("_C"), "_cuda_getDevice", cuda_.attr("current_device"))),
        raw_stream_(nb::getattr(module.attr("_C"), "_cuda_getCurrentRawStream", nb::none())) {}

  [[nodiscard]] Array read(const char* /*name*/, nb::handle array) const override {
    if (exchange_ != nullptr && exchange_->tensor_from_py_object != nullptr) {
      dlpack::Tensor tensor{};
      if (exchange_->tensor_from_py_object(array.ptr(), &tensor) == 0) return read(tensor);
      PyErr_Clear();  // of a dtype that DLPack has not, say: the attributes tell which
    }
    return read_attributes(array);
  }

  void require_usable(const Argument& argument, const Array& array) const override {
    if (array.device < 0) {
      raise(PyExc_ValueError, fmt::format("{} is on the device {}; it must be on a CUDA device", argument.name,
                                          text(argument.array.attr("device"))));
    }
    if (argument.array.attr("requires_grad").is(Py_True) && is_grad_enabled_().is(Py_True)) {
      const nb::object wanted = nb::module_::import_("attune._arguments").attr("GradientWanted");
      raise(wanted.ptr(), fmt::format("{} requires a gradient, which this function has not; "
                                      "call it under torch.no_grad() where none is needed",
                                      argument.name));
    }
  }

  [[nodiscard]] nb::object padded(nb::handle array, std::int64_t extent) const override {
    const auto columns = nb::cast<std::int64_t>(array.attr("size")(-1));
    return pad_(array, nb::make_tuple(0, extent - columns));
  }

  [[nodiscard]] nb::object as_float32(nb::handle array) const override {
    return array.attr("detach")().attr("to")(float32_);
  }

  [[nodiscard]] nb::object as_int64(nb::handle array) const override { return array.attr("to")(int64_); }

  [[nodiscard]] nb::object rows_of(nb::handle table, nb::handle index) const override {
    const nb::object last = table.attr("shape")[0] - nb::int_(1);
    return table.attr("index_select")(0, index.attr("clamp")(0, last));
  }

  [[nodiscard]] nb::object empty_like(nb::handle array) const override { return empty_like_(array); }

  [[nodiscard]] nb::object zeros_like(nb::handle array) const override { return zeros_like_(array); }

  [[nodiscard]] nb::object empty(const nb::tuple& shape, nb::handle like) const override {
    return like.attr("new_empty")(shape);
  }

  [[nodiscard]] nb::object empty_float32(const nb::tuple& shape, nb::handle like) const override {
    return like.attr("new_empty")(shape, nb::arg("dtype") = float32_);
  }

  [[nodiscard]] nb::object full_int32(std::int32_t count, std::int32_t value, nb::handle like) const override {
    return like.attr("new_full")(nb::make_tuple(count), value, nb::arg("dtype") = int32_);
  }

  [[nodiscard]] nb::object counted_int32(std::int32_t count, nb::handle like) const override {
    return arange_(count, nb::arg("dtype") = int32_, nb::arg("device") = like.attr("device"));
  }

  [[nodiscard]] nb::object empty_bytes(std::size_t bytes, nb::handle like) const override {
    return like.attr("new_empty")(nb::make_tuple(bytes), nb::arg("dtype") = uint8_);
  }

  [[nodiscard]] nb::object on_device(std::int64_t device) const override {
    if (device < 0) return nb::none();  // PyTorch would look for a GPU; checks of the tensors say that they lie on none
    return nb::cast<std::int64_t>(current_device_()) == device ? nb::none() : cuda_.attr("device")(device);
  }

 protected:
  void make_context() const override { cuda_.attr("mem_get_info")(); }

  [[nodiscard]] std::uintptr_t stream(std::int64_t device) const override {
    // The public way makes an object first, which takes longer than the rest of a call.
    return nb::cast<std::uintptr_t>(raw_stream_.is_none() ? cuda_.attr("current_stream")(device).attr("cuda_stream")
                                                          : raw_stream_(device));
  }

 private:
  [[nodiscard]] static Array read(const dlpack::Tensor& tensor) {
    Array result{.element = python::element_of(tensor.dtype),
                 .device = tensor.device.type == dlpack::device_cuda ? tensor.device.id : -1,
                 .address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset,
                 .rank = tensor.rank};
    if (result.rank > most_dimensions) return result;
    std::copy_n(tensor.shape, tensor.rank, result.shape.begin());
    std::copy_n(tensor.strides, tensor.rank, result.strides.begin());
    return result;
  }

  [[nodiscard]] Array read_attributes(nb::handle array) const {
    const nb::object shape = array.attr("shape");
    return {.element = element_of(array.attr("dtype")),
            .device = array.attr("is_cuda").is(Py_True) ? nb::cast<std::int64_t>(array.attr("get_device")()) : -1,
            .address = nb::cast<std::uintptr_t>(array.attr("data_ptr")()),
            .rank = static_cast<int>(PyTuple_Size(shape.ptr())),
            .shape = integers(shape),
            .strides = integers(array.attr("stride")())};
  }

  [[nodiscard]] Element element_of(nb::handle dtype) const {
    if (dtype.is(float16_)) return Element::float16;
    if (dtype.is(bfloat16_)) return Element::bfloat16;
    if (dtype.is(float32_)) return Element::float32;
    if (dtype.is(int32_)) return Element::int32;
    return dtype.is(int64_) ? Element::int64 : Element::other;
  }

  const dlpack::Exchange* exchange_;
  nb::object cuda_;
  nb::object float16_;
  nb::object bfloat16_;
  nb::object float32_;
  nb::object int32_;
  nb::object int64_;
  nb::object uint8_;
  nb::object pad_;
  nb::object empty_like_;
  nb::object zeros_like_;
  nb::object arange_;
  nb::object is_grad_enabled_;
  nb::object current_device_;
  nb::object raw_stream_;
};

}  // namespace

std::unique_ptr<const Framework> make_torch(nb::handle module) { return std::make_unique<Torch>(module); }

}  // namespace attune::python
