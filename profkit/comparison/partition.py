"""The step's difference divided among what the device does: parts that add up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from profkit.comparison.noise import median_of
from profkit.comparison.rows import KernelChange, PartChange, PartKind, PhaseChange, ShareChange
from profkit.comparison.side import Side, apportioned, kept_steps
from profkit.model.names import SHARES, ShareName
from profkit.model.report import Report
from profkit.model.report_time import PartRow, PhaseRow

__all__ = ["part_changes", "phase_changes", "share_changes"]

Key = TypeVar("Key")
Part = tuple[str, PartKind]
_SMALL_PARTS: Final = "(small parts)"
_MOST_OF_IT: Final = 0.5
"""A new kernel with this part of a change, or more, is its cause."""


def part_changes(before: Side, after: Side, kernels: Sequence[KernelChange]) -> list[PartChange]:
    """Parts of the typical step, those first that explain its difference; the deltas add up to it.

    The device's busy time is divided by the family of the kernel that runs, its idle time by cause. Reports that
    were saved before they had these parts are divided by share instead, and so is the other side.
    """
    with_parts = _have_parts(before, after)
    first, second = (_parts_of(side, with_parts) for side in (before, after))
    counts = [_launches(side) for side in (before, after)]
    rows = []
    for name, kind in {**first, **second}:
        was, now = first.get((name, kind), 0), second.get((name, kind), 0)
        counted = kind == "kernels"
        rows.append(
            PartChange(
                name=name,
                kind=kind,
                before_ns=was,
                after_ns=now,
                delta_ns=now - was,
                count_before=counts[0].get(name, 0) if counted else None,
                count_after=counts[1].get(name, 0) if counted else None,
                kernel=_new_or_gone(kernels, name, now - was) if counted else None,
            )
        )
    return _explaining_first(rows, after.step_ns - before.step_ns)


def phase_changes(before: Side, after: Side) -> list[PhaseChange]:
    """The step by phase: its time in each, without the phases inside; the deltas add up to the step's.

    A side that has only the host's times is divided by those. Empty where the reports do not tell.
    """
    if not all(side.on_host or _have_parts(side) for side in (before, after)):
        return []
    first, second = (
        _by_host_phase(side) if side.on_host else _divided(side, _phase_of) for side in (before, after)
    )
    rows = [
        PhaseChange(
            path=path,
            before_ns=first.get(path, 0),
            after_ns=second.get(path, 0),
            delta_ns=second.get(path, 0) - first.get(path, 0),
        )
        for path in {**first, **second}
    ]
    return _explaining_first(rows, after.step_ns - before.step_ns)


def share_changes(before: Side, after: Side) -> dict[str, ShareChange]:
    """The typical step by share; all zero for the host's times alone."""
    first, second = (
        dict.fromkeys(SHARES, 0) if side.on_host else apportioned(_typical_shares(side), side.step_ns)
        for side in (before, after)
    )
    return {share: ShareChange(before_ns=first[share], after_ns=second[share]) for share in SHARES}


class _Changed(Protocol):
    @property
    def before_ns(self) -> int: ...
    @property
    def delta_ns(self) -> int: ...


Row = TypeVar("Row", bound=_Changed)


def _explaining_first(rows: list[Row], delta_ns: int) -> list[Row]:
    """The rows that moved the way the step did, by how far; then those that moved against it."""
    sign = -1 if delta_ns < 0 else 1
    return sorted(
        rows,
        key=lambda row: (row.delta_ns * sign <= 0, -abs(row.delta_ns), -row.before_ns, str(row)),
    )


def _have_parts(*sides: Side) -> bool:
    return all(r.window.parts or not r.window.device_ns for side in sides for r in side.reports)


def _parts_of(side: Side, with_parts: bool) -> dict[Part, int]:
    if side.on_host:
        return {("host", "host"): side.step_ns}
    if with_parts:
        return _divided(side, _work_of)
    return {(share, "share"): ns for share, ns in apportioned(_typical_shares(side), side.step_ns).items()}


def _work_of(row: PartRow) -> Part:
    if row.cause is not None:
        return row.cause, "idle"
    family = row.family or "other"
    return family, "copies" if family in ("memcpy", "memset") else "graph" if family == "graph" else "kernels"


def _phase_of(row: PartRow) -> str | None:
    # The rest has no phase, which is not the same as lying in none.
    return _SMALL_PARTS if row.rest else row.phase


def _divided(side: Side, key_of: Callable[[PartRow], Key]) -> dict[Key, int]:
    """The typical step by part: of each share as much as it typically has, divided as in all steps together."""
    typical = _typical_shares(side)
    whole: Counter[ShareName] = Counter()
    for row in _rows(side):
        whole[row.share] += row.ns
    time: dict[Key, float] = {}
    for row in _rows(side):
        key = key_of(row)
        time[key] = time.get(key, 0.0) + (row.ns * typical[row.share] / whole[row.share] if row.ns else 0.0)
    return apportioned(time, side.step_ns)


def _rows(side: Side) -> list[PartRow]:
    return [row for report in side.reports for row in report.window.parts]


def _typical_shares(side: Side) -> Mapping[ShareName, float]:
    """The median of each share over the steps, so that one odd step does not colour the others."""
    shares = {share: median_of([_share_times(r, share) for r in side.timed]) for share in SHARES}
    if any(shares.values()):
        return shares
    return {share: sum(r.verdict.shares.get(share, 0) for r in side.reports) for share in SHARES}


def _share_times(report: Report, share: ShareName) -> list[float]:
    devices = max(len(report.devices), 1)
    steps = [step.shares.get(share, 0) / devices for step in kept_steps(report)]
    return steps or [report.verdict.shares.get(share, 0) / devices]


def _by_host_phase(side: Side) -> dict[str | None, int]:
    """The host's time in each phase, without the phases inside it; the rest is in none."""
    time: dict[str | None, float] = {None: float(side.total_ns)}
    for row in (row for report in side.reports for row in report.phases):
        time[row.path] = time.get(row.path, 0.0) + row.host_wall_ns
        outer = _outer(row, side)
        time[outer] = time.get(outer, 0.0) - row.host_wall_ns
    return apportioned({path: max(ns, 0.0) for path, ns in time.items()}, side.step_ns)


def _outer(row: PhaseRow, side: Side) -> str | None:
    """The path of the phase around it."""
    path = row.path.rpartition("/")[0] or None
    return path if any(other.path == path for report in side.reports for other in report.phases) else None


def _new_or_gone(kernels: Sequence[KernelChange], family: str, delta_ns: int) -> str | None:
    """The kernel of a family that only one side has, where it makes most of the family's change."""
    for row in kernels:
        one_sided = row.name is None or row.name_after is None
        if one_sided and row.family == family and row.delta_ns * delta_ns > 0:
            return row.short_name if abs(row.delta_ns) >= _MOST_OF_IT * abs(delta_ns) else None
    return None


def _launches(side: Side) -> dict[str, float]:
    count: Counter[str] = Counter()
    for row in side.kernels:
        count[row.family] += row.count
    return {family: round(side.per_step(n), 2) for family, n in count.items()}
