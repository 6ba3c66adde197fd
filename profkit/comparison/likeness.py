"""Whether two sides are recordings of one program: another program is neither faster nor slower."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from profkit.comparison.side import Side
from profkit.model.report import KernelRow

__all__ = ["shared_families", "unlike"]

_SAME_FAMILIES: Final = 0.3
"""Programs that share less of their busy time by family are unlike, as far as nothing else is shared. A change of type,
layout or compiler leaves 55 % and more in the recordings of `tests`; unlike programs share 0 to 27 %, and up to half
where both are mostly matrix products."""

_SAME_NAMES: Final = 0.2
"""The same of kernels by name, as a part of the shorter side: a slow kernel that was added changes none of the others."""

_SAME_OPERATORS: Final = 0.1
"""The same of operators by device time."""

_SEEN: Final = 0.5
"""Of less busy time than this in kernels, families say little: the rest is opaque graphs or copies."""

_ANYONES: Final = frozenset(
    {"", "step", "iteration", "iter", "batch", "epoch", "profilerstep", "train", "training", "forward", "backward",
     "optimizer", "optim", "optimizer step", "zero grad", "data", "dataloader", "loss", "model", "update"}
)  # fmt: skip
"""Names of marks that say nothing of the program."""


def unlike(before: Side, after: Side) -> bool:
    """Whether the sides share neither operators, nor kernels or their families, nor marks of their own.

    False where a side has too few kernels to tell.
    """
    if before.on_host or after.on_host or min(map(_seen, (before, after))) < _SEEN:
        return False
    names = [_kernel_times(side, lambda row: row.name) for side in (before, after)]
    if _contained(*names) >= _SAME_NAMES or shared_families(before, after) >= _SAME_FAMILIES:
        return False
    operators = [_operator_times(side) for side in (before, after)]
    return _overlap(*operators) < _SAME_OPERATORS and not _marks(before) & _marks(after)


def shared_families(before: Side, after: Side) -> float:
    """How much of the busy time both sides spend in the same families of kernels, 0 to 1."""
    return _overlap(*(_kernel_times(side, lambda row: row.family) for side in (before, after)))


def _seen(side: Side) -> float:
    busy = sum(device.busy_ns for report in side.reports for device in report.devices)
    return sum(row.total_ns for row in side.kernels) / busy if busy else 0.0


def _kernel_times(side: Side, key_of: Callable[[KernelRow], str]) -> Mapping[str, float]:
    time: Counter[str] = Counter()
    for row in side.kernels:
        # Collectives are everyone's, and they wait for as long as the others take.
        if row.family != "communication":
            time[key_of(row)] += row.total_ns
    return {key: side.per_step(ns) for key, ns in time.items()}


def _operator_times(side: Side) -> Mapping[str, float]:
    time: Counter[str] = Counter()
    for report in side.reports:
        for row in report.operators:
            time[row.name] += row.gpu_self_ns
    return time


def _overlap(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    wholes = sum(first.values()), sum(second.values())
    if not all(wholes):
        return 0.0
    return sum(min(first[key] / wholes[0], second[key] / wholes[1]) for key in first.keys() & second.keys())


def _contained(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    least = min(sum(first.values()), sum(second.values()))
    return sum(min(first[key], second[key]) for key in first.keys() & second.keys()) / least if least else 0.0


def _marks(side: Side) -> set[str]:
    """The names of phases and steps without numbers, but for those that anyone may choose."""
    names = [row.name for report in side.reports for row in report.phases]
    names += [step.name for report in side.reports for step in report.window.steps]
    plain = (re.sub(r"[\W\d_]+", " ", name).strip().lower() for name in names)
    return {name for name in plain if name not in _ANYONES}
