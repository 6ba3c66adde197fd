"""One side of a comparison: one or several reports of the same step, as numbers per step of one device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from profkit.model.result import Result, Row

__all__ = ["Side", "apportioned"]

Key = TypeVar("Key")


@dataclass(frozen=True)
class Side:
    """The reports of one side. Every number is that of one step of one device, averaged over the side."""

    results: Sequence[Result]

    @property
    def on_host(self) -> bool:
        """Whether no report has a device, so that only the host's time of the steps can be compared."""
        return not any(result.devices for result in self.results)

    def has_time(self, result: Result) -> bool:
        """Whether a report holds a time that the side is made of."""
        return self._time_ns(result) > 0

    @property
    def timed(self) -> Sequence[Result]:
        """The reports with a time; all of them where none has one."""
        return [r for r in self.results if self.has_time(r)] or self.results

    @property
    def divisor(self) -> int:
        """Steps times devices, over the reports with a time; one without steps counts as one step."""
        return sum(max(len(kept_steps(r)), 1) * max(len(r.devices), 1) for r in self.timed)

    @property
    def total_ns(self) -> int:
        """The time of all windows, over the devices."""
        return sum(self._time_ns(r) for r in self.results)

    def _time_ns(self, result: Result) -> int:
        if self.on_host:
            return sum(int(step["wall_ns"] or 0) for step in kept_steps(result))
        return int(result.window["device_ns"])

    @property
    def step_ns(self) -> int:
        """The mean step."""
        return round(self.total_ns / self.divisor)

    @property
    def steps(self) -> int:
        """Counted steps, over the reports."""
        return sum(len(kept_steps(r)) for r in self.timed)

    def step_times(self, what: str) -> list[list[float]]:
        """The times of the counted steps of each report: ``step``, ``busy`` or ``idle``."""
        return [
            [_time_of(step, what, self.on_host) / max(len(r.devices), 1) for step in kept_steps(r)]
            for r in self.results
        ]

    def rows(self, table: str) -> Iterable[Row]:
        """The rows of a table, over the reports."""
        return (row for result in self.results for row in getattr(result, table))

    def per_step(self, amount: float) -> float:
        """A sum over the side as what one step of one device has."""
        return amount / self.divisor


def kept_steps(result: Result) -> list[Row]:
    """The steps that make the window."""
    return [step for step in result.window.get("steps") or () if step["kept"]]


def apportioned(amounts: Mapping[Key, int], divisor: int) -> dict[Key, int]:
    """Amounts over a divisor as whole numbers that add up to the rounded sum over the divisor.

    The largest remainders are rounded up, so no part is off by a whole unit.
    """
    parts = {key: divmod(amount, divisor) for key, amount in amounts.items()}
    missing = round(sum(amounts.values()) / divisor) - sum(whole for whole, _ in parts.values())
    up = set(sorted(parts, key=lambda key: (-parts[key][1], str(key)))[: max(missing, 0)])
    return {key: whole + (key in up) for key, (whole, _) in parts.items()}


def _time_of(step: Row, what: str, on_host: bool) -> float:
    length = float((step["wall_ns"] if on_host else step["device_ns"]) or 0)
    busy = 0.0 if on_host else float(step["gpu_busy_ns"])
    return {"step": length, "busy": busy, "idle": length - busy}[what]
