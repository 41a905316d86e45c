#include "runtime/python/errors.hpp"

#include <exception>

#include "runtime/base/error.hpp"
#include "runtime/python/registries.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

PyObject* exception_of(attune_status status) {
  switch (status) {
    case ATTUNE_INVALID_ARGUMENT:
      return PyExc_ValueError;
    case ATTUNE_UNSUPPORTED:
      return PyExc_NotImplementedError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

void check(attune_status status) {
  if (status != ATTUNE_OK) throw Error(status, attune_last_error());
}

void raise_interruptions() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (is_over()) raise(PyExc_SystemExit, "the interpreter is ending");
}

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      PyErr_SetString(exception_of(error.status()), error.what());
    }
  });
}

std::string full_type_name(nb::handle object) {
  const nb::handle type = object.type();
  const std::string module = text(type.attr("__module__"));
  const std::string name = text(type.attr("__qualname__"));
  return module == "builtins" ? name : module + "." + name;
}

std::string text(nb::handle object) { return nb::str(object).c_str(); }

}  // namespace attune::python
