"""What an array of each framework is: its memory, what may be asked of it, and where work on it runs.

Attributes are read directly, which is several times cheaper than DLPack and does not make a
framework wait for a stream. No framework is imported here: a caller who passes an array has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from ._attune import NoDeviceError

#: What runs on a stream: (emulator, stream).
Launch = Callable[[bool, int], None]


class Framework(Protocol):
    """How to treat the arrays of one framework. `name` is the argument's, for messages."""

    type_name: str
    array_type: type[Any]

    def is_bf16(self, array: Any) -> bool | None:
        """Whether its elements are bfloat16, not float16; None where they are neither."""

    def require_usable(self, name: str, array: Any) -> None:
        """Raises an error where no kernel can run on the array, its dtype and shape apart."""

    def device(self, array: Any) -> Any:
        """What holds it; to be compared and printed."""

    def address(self, array: Any) -> int:
        """Of its first element."""

    def strides(self, name: str, array: Any) -> tuple[int, ...]:
        """In elements."""

    def empty_like(self, array: Any) -> Any:
        """A new array of this shape and dtype, on the same device."""

    def empty_float32(self, shape: tuple[int, ...], array: Any) -> Any:
        """A new contiguous array, on the device of another one."""

    def run(self, launch: Launch, array: Any) -> None:
        """Calls `launch` with the current stream of the array's device."""


class _StridesInBytes:
    """What NumPy and CuPy have in common."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.array_type = module.ndarray
        self.type_name = f"{module.__name__}.ndarray"
        self.float16 = module.dtype("float16")

    def is_bf16(self, array: Any) -> bool | None:
        if array.dtype == self.float16:
            return False
        return True if array.dtype.name == "bfloat16" else None

    def require_usable(self, name: str, array: Any) -> None:
        pass

    def strides(self, name: str, array: Any) -> tuple[int, ...]:
        size = array.itemsize
        if any(stride % size for stride in array.strides):
            raise ValueError(
                f"{name} has strides of {array.strides} bytes; {size} must divide them"
            )
        return tuple(stride // size for stride in array.strides)

    def empty_like(self, array: Any) -> Any:
        return self.module.empty(array.shape, array.dtype)

    def empty_float32(self, shape: tuple[int, ...], array: Any) -> Any:
        return self.module.empty(shape, self.module.float32)


class _NumPy(_StridesInBytes):
    def device(self, array: Any) -> Any:
        return "cpu"

    def address(self, array: Any) -> int:
        return array.__array_interface__["data"][0]

    def run(self, launch: Launch, array: Any) -> None:
        launch(True, 0)


class _CuPy(_StridesInBytes):
    def device(self, array: Any) -> Any:
        return array.device

    def address(self, array: Any) -> int:
        return array.data.ptr

    def empty_like(self, array: Any) -> Any:
        with array.device:
            return super().empty_like(array)

    def empty_float32(self, shape: tuple[int, ...], array: Any) -> Any:
        with array.device:
            return super().empty_float32(shape, array)

    def run(self, launch: Launch, array: Any) -> None:
        cuda = self.module.cuda
        with array.device:
            _launch(launch, cuda.get_current_stream().ptr, cuda.runtime.memGetInfo)


class _Torch:
    type_name = "torch.Tensor"

    def __init__(self, module: Any) -> None:
        self.module = module
        self.array_type = module.Tensor
        self.dtypes = {module.float16: False, module.bfloat16: True}

    def is_bf16(self, array: Any) -> bool | None:
        return self.dtypes.get(array.dtype)

    def require_usable(self, name: str, array: Any) -> None:
        if not array.is_cuda:
            raise ValueError(f"{name} is on the device {array.device}; it must be on a CUDA device")
        if array.requires_grad and self.module.is_grad_enabled():
            raise NotImplementedError(
                f"{name} requires a gradient, and there is no backward yet; "
                "call it under torch.no_grad() where none is needed"
            )

    def device(self, array: Any) -> Any:
        return array.device

    def address(self, array: Any) -> int:
        return array.data_ptr()

    def strides(self, name: str, array: Any) -> tuple[int, ...]:
        return array.stride()

    def empty_like(self, array: Any) -> Any:
        return self.module.empty_like(array, requires_grad=False)

    def empty_float32(self, shape: tuple[int, ...], array: Any) -> Any:
        return self.module.empty(shape, dtype=self.module.float32, device=array.device)

    def run(self, launch: Launch, array: Any) -> None:
        cuda = self.module.cuda
        index = array.get_device()
        if index == cuda.current_device():
            _launch(launch, cuda.current_stream().cuda_stream, cuda.mem_get_info)
        else:
            with cuda.device(index):
                _launch(launch, cuda.current_stream().cuda_stream, cuda.mem_get_info)


def _launch(launch: Launch, stream: int, make_current: Callable[[], Any]) -> None:
    """Launches on a GPU. A thread that has not used CUDA has no current context: it gets one first."""
    try:
        launch(False, stream)
    except NoDeviceError:
        make_current()
        launch(False, stream)


_MAKERS: dict[str, tuple[str, Callable[[Any], Framework]]] = {
    "torch": ("Tensor", _Torch),
    "cupy": ("ndarray", _CuPy),
    "numpy": ("ndarray", _NumPy),
}
_known: dict[type, Framework] = {}


def framework_of(name: str, array: Any) -> Framework:
    """The framework of an array that was passed as `name`. Raises TypeError where it is of none."""
    known = _known.get(type(array))
    if known is not None:
        return known
    for module_name, (type_name, make) in _MAKERS.items():
        module = sys.modules.get(module_name)
        if module is not None and isinstance(array, getattr(module, type_name)):
            return _known.setdefault(type(array), make(module))
    raise TypeError(
        f"{name} is {full_name(type(array))}; "
        "it must be a PyTorch CUDA tensor, a CuPy array or a NumPy array"
    )


def full_name(of: type) -> str:
    """'numpy.ndarray', and 'list' for a builtin."""
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"
