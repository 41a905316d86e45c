"""The list of the functions that Attune offers to Python: what each is called, takes, defaults to and says of itself.

Everything else that says so follows from an entry, or is held to it by a test:

* the function in attune, and its docstring;
* its binding in attune._attune, which takes what the entry passes on;
* the function in attune.torch, its docstring, and the operators that serve it: their schemas and
  implementations;
* the stubs of all of these, which runtime/python/stubs.py writes.

So a new function is an entry here, a binding (a .cpp file of runtime/python, which module.cpp adds), its
body in attune and in attune.torch, where its operator has a fake, and tests of what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .backward import BACKWARD
from .dense import ATTENTION, KVPACKED, QKVPACKED
from .entry import (
    REQUIRED,
    Argument,
    Function,
    Operator,
    binder,
    documentation,
    for_torch,
    operands,
    schema,
)
from .expressions import EXPRESSED
from .ragged import VARLEN, VARLEN_KVPACKED, VARLEN_QKVPACKED
from .rotary import ROTARY
from .serving import KVCACHE, MERGE, STORE

__all__ = [
    "FUNCTIONS",
    "OPERATORS",
    "REQUIRED",
    "SCHEMAS",
    "Argument",
    "Function",
    "Operator",
    "binder",
    "documented",
    "documented_for_torch",
    "for_torch",
    "operands",
    "schema",
]

#: Every function, by its name.
FUNCTIONS = {
    one.name: one
    for one in (
        ATTENTION,
        KVPACKED,
        QKVPACKED,
        VARLEN,
        VARLEN_KVPACKED,
        VARLEN_QKVPACKED,
        EXPRESSED,
        BACKWARD,
        KVCACHE,
        STORE,
        MERGE,
        ROTARY,
    )
}

#: Every operator, by its name, after the function that it serves.
OPERATORS = {
    operator.name: (function, operator)
    for function in FUNCTIONS.values()
    for operator in function.operators
}

#: The schema of each.
SCHEMAS = {name: schema(*served) for name, served in OPERATORS.items()}

_Callable = TypeVar("_Callable", bound=Callable[..., object])


def documented(function: _Callable) -> _Callable:
    """The function itself, with the docstring that its entry gives."""
    function.__doc__ = documentation(FUNCTIONS[function.__name__])
    return function


def documented_for_torch(function: _Callable) -> _Callable:
    """The same of a function of attune.torch."""
    function.__doc__ = documentation(for_torch(FUNCTIONS[function.__name__]))
    return function
