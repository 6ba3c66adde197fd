"""Models and optimizers that a program has made."""

from __future__ import annotations

import gc
from typing import Any

__all__ = ["models", "optimizers"]


def models() -> list[Any]:
    """The program's modules with weights that are no part of another."""
    import torch

    modules = _all_of(torch.nn.Module)
    parts = {id(part) for each in modules for part in each.__dict__.get("_modules", {}).values()}
    return [each for each in modules if id(each) not in parts and any(True for _ in each.parameters())]


def optimizers() -> list[Any]:
    """The program's optimizers."""
    import torch

    return _all_of(torch.optim.Optimizer)


def _all_of(kind: type) -> list[Any]:
    # not isinstance, which asks an object for its class, and a proxy does more than answer
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]
