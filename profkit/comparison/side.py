"""One side of a comparison: one or several reports of the same step, as numbers per step of one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from profkit.comparison.noise import median_of
from profkit.model.report import InputRow, KernelRow, Report, StepRow

__all__ = ["Side", "TimeKind", "apportioned", "kept_steps"]

Key = TypeVar("Key")
TimeKind: TypeAlias = Literal["step", "busy", "idle"]


@dataclass(frozen=True)
class Side:
    """The reports of one side. Every number is that of one typical step of one device."""

    reports: Sequence[Report]

    @cached_property
    def on_host(self) -> bool:
        """Whether no report has a device, so that only the host's time of the steps can be compared."""
        return not any(report.devices for report in self.reports)

    def has_time(self, report: Report) -> bool:
        """Whether a report holds a time that the side is made of."""
        return self._time_ns(report) > 0

    @cached_property
    def timed(self) -> Sequence[Report]:
        """The reports with a time; all of them where none has one."""
        return [r for r in self.reports if self.has_time(r)] or self.reports

    @cached_property
    def divisor(self) -> int:
        """Steps times devices, over the reports with a time; one without steps counts as one step."""
        return sum(max(len(kept_steps(r)), 1) * max(len(r.devices), 1) for r in self.timed)

    @cached_property
    def total_ns(self) -> int:
        """The time of all windows, over the devices."""
        return sum(self._time_ns(r) for r in self.reports)

    def _time_ns(self, report: Report) -> int:
        if self.on_host:
            return sum(step.wall_ns or 0 for step in kept_steps(report))
        return report.window.device_ns

    @cached_property
    def step_ns(self) -> int:
        """The typical step: the median, which an outlier does not move."""
        return round(median_of(self.times("step")))

    @cached_property
    def steps(self) -> int:
        """Counted steps, over the reports."""
        return sum(len(kept_steps(r)) for r in self.timed)

    def times(self, what: TimeKind) -> list[list[float]]:
        """The times of the counted steps of each report; one without steps is as one step, one without a time has none."""
        times = []
        for report in self.reports:
            devices = max(len(report.devices), 1)
            steps = [_time_of(step, what, self.on_host) / devices for step in kept_steps(report)]
            if not steps:
                whole = self._time_ns(report)
                busy = sum(device.busy_ns for device in report.devices)
                steps = [{"step": whole, "busy": busy, "idle": whole - busy}[what] / devices]
            times.append(steps if self.has_time(report) else [])
        return times

    @property
    def inputs(self) -> Iterator[InputRow]:
        """The files, over the reports."""
        return (row for report in self.reports for row in report.inputs)

    @property
    def kernels(self) -> Iterator[KernelRow]:
        """The kernels, over the reports."""
        return (row for report in self.reports for row in report.kernels)

    def per_step(self, amount: float) -> float:
        """A sum over the side as what one step of one device has in the mean."""
        return amount / self.divisor

    def busy_per_step(self, ns: float) -> float:
        """Device time that is summed over the side, as that of a typical step."""
        return ns / self.divisor * self._typical_busy

    @cached_property
    def _typical_busy(self) -> float:
        """The median step's busy time over the mean one's."""
        busy = [time for run in self.times("busy") for time in run]
        return median_of(self.times("busy")) * len(busy) / sum(busy) if sum(busy) else 1.0


def kept_steps(report: Report) -> list[StepRow]:
    """The steps that make the window."""
    return [step for step in report.window.steps if step.kept]


def apportioned(amounts: Mapping[Key, float], total: int) -> dict[Key, int]:
    """Amounts scaled to whole numbers that add up to a total.

    The largest remainders are rounded up, so no part is off by a whole unit. Without any amount all are 0.
    """
    whole = sum(amounts.values())
    if not whole:
        return dict.fromkeys(amounts, 0)
    exact = {key: amount * total / whole for key, amount in amounts.items()}
    floors = {key: int(amount) for key, amount in exact.items()}
    missing = total - sum(floors.values())
    up = set(sorted(exact, key=lambda key: (floors[key] - exact[key], str(key)))[: max(missing, 0)])
    return {key: floor + (key in up) for key, floor in floors.items()}


def _time_of(step: StepRow, what: TimeKind, on_host: bool) -> float:
    length = float((step.wall_ns if on_host else step.device_ns) or 0)
    busy = 0.0 if on_host else float(step.gpu_busy_ns)
    return {"step": length, "busy": busy, "idle": length - busy}[what]
