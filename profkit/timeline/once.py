"""Answers that several tables ask for, worked out once for each view."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from profkit.timeline.view import TraceView

__all__ = ["once_a_view"]

P = ParamSpec("P")
R = TypeVar("R")


def once_a_view(function: Callable[Concatenate[TraceView, P], R]) -> Callable[Concatenate[TraceView, P], R]:
    """Remember what a function says of each view and its other arguments, as long as the view lives.

    What it returns must not hold the view, which then would live for ever.
    """
    found: WeakKeyDictionary[TraceView, dict[Hashable, Any]] = WeakKeyDictionary()

    @functools.wraps(function)
    def once(view: TraceView, /, *args: P.args, **options: P.kwargs) -> R:
        answers = found.setdefault(view, {})
        key = (args, tuple(sorted(options.items())))
        if key not in answers:
            answers[key] = function(view, *args, **options)
        answer: R = answers[key]
        return answer

    return once
