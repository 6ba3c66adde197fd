"""The numbers that a verdict rests on: what each decides, with its unit, and where it comes from."""

from __future__ import annotations

from typing import Final, NamedTuple

from profkit.model.report import Threshold
from profkit.units import duration_text, percent_text

__all__ = ["ThresholdWords", "threshold_words"]


class ThresholdWords(NamedTuple):
    """A threshold as a reader meets it."""

    name: str
    """What it decides."""
    value: str
    """The number with its unit."""
    source: str
    """Where it comes from."""


_NAMES: Final = {
    "kernel-overhead": ("Fixed time of any kernel", "measured with empty kernels (docs/models.md)"),
    "queue-latency": ("Longest gap between queued operations", "measured with a full queue"),
    "unsaturated": ("Unsaturated below this efficiency", "reports/calibration"),
    "warm-up-step": ("Warm-up step above this multiple of the later median", "docs/numbers.md"),
    "runner-up": ("Runner-up named within this share of the window", "docs/numbers.md"),
    "undecided": ("Undecided above this unclassified or lost share", "docs/numbers.md"),
}


def threshold_words(threshold: Threshold) -> ThresholdWords:
    """Name, value and source of a threshold, as text."""
    name, source = _NAMES[threshold.code]
    return ThresholdWords(name, _value_text(threshold), source)


def _value_text(threshold: Threshold) -> str:
    if threshold.code in ("kernel-overhead", "queue-latency"):
        return duration_text(threshold.amount)
    if threshold.code == "warm-up-step":
        return f"{threshold.amount:.1f}x"
    return percent_text(threshold.amount)
