"""What a call becomes whose gradient is wanted: attune.torch, which is built on these functions, is found by its name."""

from __future__ import annotations

import importlib
from typing import Any


def differentiable(name: str, *arguments: Any, **options: Any) -> Any:
    """The same call as an operator that PyTorch differentiates."""
    return getattr(importlib.import_module(f"{__package__}.torch"), name)(*arguments, **options)
