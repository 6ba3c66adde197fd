"""Functions of torch that are wrapped for a while."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

__all__ = ["is_compiled", "replace", "with_arguments"]


def replace(undo: ExitStack, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Wrap an attribute, until ``undo`` is closed."""
    original = getattr(owner, name)
    wrapper = functools.wraps(original)(wrap(original))
    setattr(owner, name, wrapper)
    undo.callback(setattr, owner, name, original)


def with_arguments(
    original: Callable[..., Any], change: Callable[[Any, dict[str, Any]], dict[str, Any]]
) -> Callable[..., Any]:
    """A constructor whose arguments are changed.

    Args:
        original: An ``__init__``.
        change: Is given the object and its arguments by name, and returns what to set; nothing leaves them as they are.
    """
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:
            return original(self, *args, **kwargs)  # torch says what is wrong
        new = change(self, dict(bound.arguments))
        if not new:
            return original(self, *args, **kwargs)
        bound.arguments.update(new)
        return original(*bound.args, **bound.kwargs)

    return __init__


def is_compiled(module: Any) -> bool:
    """Whether calls of a module run compiled code."""
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"
