"""What a trial is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from profkit.model.rows import Interval

__all__ = ["Plan", "likely_place"]

_LIKELY_BEST: Final = (
    "tf32", "bf16", "fp16", "fused-attention", "loader-workers", "channels-last", "fused-optimizer", "compile",
)  # fmt: skip
"""The order of a budget that does not hold all. A compiler starts slowly, so what starts fast comes before it."""


@dataclass(frozen=True)
class Plan:
    """What is tried, and how long."""

    budget_s: float = 600.0
    steps: int = 20
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    keep_going: bool = False
    compared_in: str | None = None
    """A folder for recordings of the unchanged step and of the kept one."""
    predicted: Mapping[str, Interval] = field(default_factory=dict)
    """The speed-ups that a recording promises."""

    def promised(self, name: str) -> float:
        """A change's likely speed-up; 1 where nothing is promised."""
        predicted = self.predicted.get(name)
        return predicted.likely if predicted else 1.0


def likely_place(name: str) -> int:
    """Where a change stands among those that help most often, and most."""
    return _LIKELY_BEST.index(name) if name in _LIKELY_BEST else len(_LIKELY_BEST)
