// Failures of the library as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "attune/attune.h"

namespace attune::python {

/// Throws a Python exception of this type.
[[noreturn]] void raise(PyObject* type, const std::string& message);

/// Throws Error with the message of the C ABI where a call of it failed.
void check(attune_status status);

/// Throws what is to be told instead of a failure: what the handlers of signals raise that have come meanwhile, as
/// Ctrl-C ends a compiler too; in a thread that outlives the interpreter SystemExit, which ends it without a word.
void raise_interruptions();

/// From here on an Error that reaches Python is a ValueError (an invalid argument), a NotImplementedError (nothing
/// serves it) or a RuntimeError.
void translate_errors();

/// "numpy.ndarray", and "list" for a builtin: the type of an object, for messages.
std::string full_type_name(nanobind::handle object);

/// The text that str() gives.
std::string text(nanobind::handle object);

}  // namespace attune::python
