// JAX arrays: attune/_jax.py calls the kernel as a foreign function of XLA, which owns the memory and the stream.
#include <cstddef>

#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/framework.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

class Jax final : public Framework {
 public:
  explicit Jax(nb::handle module)
      : Framework(module.attr("Array"), "jax.Array"), calls_(nb::module_::import_("attune._jax")) {}

  /// All but the dtype and the shape is XLA's: the memory is row-major and aligned, and JAX itself refuses arrays of
  /// several devices.
  [[nodiscard]] Array read(const char* /*name*/, nb::handle array) const override {
    const nb::object shape = array.attr("shape");
    const nb::object dtype = array.attr("dtype");
    Array result{.element = element_of(dtype),
                 .address = any_address,
                 .rank = static_cast<int>(PyTuple_Size(shape.ptr())),
                 .shape = integers(shape)};
    if (result.rank > most_dimensions) return result;
    std::int64_t stride = 1;
    for (auto i = static_cast<std::size_t>(result.rank); i-- > 0; stride *= result.shape[i]) result.strides[i] = stride;
    return result;
  }

  void require_usable(const Argument& argument, const Array& /*array*/) const override {
    calls_.attr("require_usable")(argument.name, argument.array);
  }

  [[nodiscard]] nb::object padded(nb::handle array, std::int64_t extent) const override {
    return calls_.attr("padded")(array, extent);
  }

  /// Both in halves: JAX has no int64 where it is not told to.
  [[nodiscard]] Element state_element() const override { return Element::int32; }

  [[nodiscard]] nb::object run(const Call& call) const override {
    attune_prefill_args args = call.args;
    args.o = args.q;
    static_cast<void>(check_arguments(args));  // while there is still a caller to tell
    nb::list arrays;
    for (const Argument& argument : call.arguments) arrays.append(argument.array);
    nb::dict params;
    for (std::size_t i = 0; i < call.params.size(); ++i) params[args.params[i].name] = call.params[i];
    return calls_.attr("attend")(arrays, args.softmax_scale, args.causal != 0, args.window_left, args.window_right,
                                 args.softcap, call.return_lse, text_of(args.score), text_of(args.mask), params,
                                 call.sink, args.dropout.p, call.dropout_state);
  }

  [[nodiscard]] nb::object as_float32(nb::handle array) const override { return array.attr("astype")("float32"); }

 private:
  /// Of an expression; empty where there is none.
  [[nodiscard]] static const char* text_of(const char* expression) { return expression == nullptr ? "" : expression; }

  [[nodiscard]] static Element element_of(nb::handle dtype) {
    const nb::object name = dtype.attr("name");
    if (name.equal(nb::str("float16"))) return Element::float16;
    if (name.equal(nb::str("bfloat16"))) return Element::bfloat16;
    if (name.equal(nb::str("float32"))) return Element::float32;
    if (name.equal(nb::str("int32"))) return Element::int32;
    return Element::other;
  }

  static constexpr std::uintptr_t any_address = 256;  // of XLA's allocations: the alignment

  nb::object calls_;
};

}  // namespace

std::unique_ptr<const Framework> make_jax(nb::handle module) { return std::make_unique<Jax>(module); }

}  // namespace attune::python
