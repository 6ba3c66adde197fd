"""What a trial is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profkit.model.rows import Interval

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """What is tried, and how long."""

    budget_s: float = 600.0
    steps: int = 20
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    keep_going: bool = False
    predicted: Mapping[str, Interval] = field(default_factory=dict)
    """The speed-ups that a recording promises."""
