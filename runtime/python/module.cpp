// attune._attune: the C ABI for the Python package beside it. Arrays are read through the attributes that their
// framework gives them, so that no framework's headers or versions matter here.
#include <nanobind/nanobind.h>

#include "attune/attune.h"
#include "runtime/python/attention.hpp"
#include "runtime/python/backward.hpp"
#include "runtime/python/decode.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/merge.hpp"
#include "runtime/python/rotary.hpp"
#include "runtime/python/store.hpp"
#include "runtime/python/tools.hpp"
#include "runtime/python/varlen.hpp"
#include "runtime/python/xla_handler.hpp"

namespace nb = nanobind;

NB_MODULE(_attune, module) {
  module.doc() = "Attune's C ABI. Use the package attune instead.";
  module.attr("version") = attune_version();
  attune::python::translate_errors();
  attune::python::bind_attention(module);
  attune::python::bind_varlen(module);
  attune::python::bind_backward(module);
  attune::python::bind_decode(module);
  attune::python::bind_store(module);
  attune::python::bind_merge(module);
  attune::python::bind_rotary(module);
  attune::python::bind_tools(module);
  module.def(
      "xla_prefill", [] { return nb::capsule(reinterpret_cast<const void*>(&attune::python::xla_prefill)); },
      "A capsule of attention as an XLA_FFI_Handler.");
  module.def(
      "xla_backward", [] { return nb::capsule(reinterpret_cast<const void*>(&attune::python::xla_backward)); },
      "A capsule of its gradients as an XLA_FFI_Handler.");
}
