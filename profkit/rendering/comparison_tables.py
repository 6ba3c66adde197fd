"""What all renderings of a comparison tell: the same sections, rows and words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profkit.comparison.rows import Change, ComparedSide, MemoryChange, PeakChange
from profkit.rendering.comparison_document import ComparisonDocument, SetupRow
from profkit.rendering.digest import where_text
from profkit.rendering.sentences.comparison import effect_label, part_label, signed_text
from profkit.rendering.sentences.numerics import TENSORS, norm_text
from profkit.units import bytes_text, count_text, duration_text, noun_text

__all__ = ["Section", "compared_text", "sections_of", "warning_text"]

_TOP: Final = 15


@dataclass(frozen=True)
class Section:
    """A table with its title; the first column holds names from files, the others words and numbers."""

    title: str
    note: str
    headers: tuple[str, ...]
    """Of the columns; one that ends in ``>`` is that of a column of numbers."""
    rows: Sequence[tuple[str, ...]]
    left_out: int = 0
    """Rows that are not shown."""
    names: bool = True
    """Whether the first column holds names from files."""


def warning_text(row: SetupRow) -> str:
    """A difference of the setup behind what it does to the conclusion."""
    mark = effect_label(row.effect)
    return f"{mark[:1].upper()}{mark[1:]}: {row.message.removesuffix('.')}."


def compared_text(side: ComparedSide) -> str:
    """What one side is, in a few words."""
    inputs = ", ".join(row.path for row in side.inputs[:4])
    more = len(side.inputs) - 4
    steps = noun_text(side.steps, "step") if side.steps else "no steps"
    return where_text(
        inputs + (f" and {noun_text(more, 'more file')}" if more > 0 else ""),
        ", ".join(side.devices),
        steps,
    )


def sections_of(comparison: ComparisonDocument) -> Iterator[Section]:
    """The sections that have something to say."""
    for make in (_parts, _phases, _kernels, _numerics, _memory, _memory_phases, _syncs, _communication):
        section = make(comparison)
        if section.rows:
            yield section


def _parts(comparison: ComparisonDocument) -> Section:
    step = comparison.step
    rows = [
        (
            part_label(row.name, row.kind),
            duration_text(row.before_ns),
            duration_text(row.after_ns),
            signed_text(row.delta_ns),
            _counts(row.count_before, row.count_after),
        )
        for row in comparison.parts
        if row.before_ns or row.after_ns
    ]
    counts = comparison.kernel_count
    total = (
        "the step",
        duration_text(step.before_ns),
        duration_text(step.after_ns),
        signed_text(step.delta_ns),
        _counts(counts.before, counts.after),
    )
    headers = ("what the device does", "before>", "after>", "change>", "kernels>")
    return Section(
        "What changed", "per step; the changes add up", headers, [*rows, total] if rows else [], names=False
    )


def _phases(comparison: ComparisonDocument) -> Section:
    rows = [
        (
            row.path or "(in no phase)",
            duration_text(row.before_ns),
            duration_text(row.after_ns),
            signed_text(row.delta_ns),
        )
        for row in comparison.phases
    ]
    # One row without a phase says nothing.
    rows = rows if any(row.path for row in comparison.phases) else []
    return _capped(
        "By phase",
        "device time per step, busy or idle; the changes add up",
        ("phase", "before>", "after>", "change>"),
        rows,
    )


def _kernels(comparison: ComparisonDocument) -> Section:
    rows = [
        (
            row.short_name or row.name or row.name_after or "",
            duration_text(row.before_ns),
            duration_text(row.after_ns),
            signed_text(row.delta_ns),
            _counts(row.count_before, row.count_after),
            "new" if row.name is None else "gone" if row.name_after is None else f"by {row.matched_by}",
        )
        for row in comparison.kernels
        if row.delta_ns
    ]
    headers = ("kernel", "before>", "after>", "change>", "launches>", "matched")
    return _capped("Kernels", "sums of durations per step", headers, rows)


def _numerics(comparison: ComparisonDocument) -> Section:
    numerics = comparison.numerics
    rows = [
        (
            f"{row.name} {TENSORS[row.tensor]}",
            str(row.step),
            norm_text(row.before),
            norm_text(row.after),
            row.dtype_before
            if row.dtype_before == row.dtype_after
            else f"{row.dtype_before} → {row.dtype_after}",
        )
        for row in (numerics.changes if numerics else ())
    ]
    headers = ("tensor", "step>", "norm before>", "after>", "type")
    return _capped("Numerics", "where tensors part, in the order of execution", headers, rows)


def _memory(comparison: ComparisonDocument) -> Section:
    memory = comparison.memory
    if memory is None:
        return Section("Memory", "", (), [])
    rows = [
        ("peak, allocated", *_sizes(memory.peak_allocated_bytes)),
        ("peak, reserved", *_sizes(memory.peak_reserved_bytes)),
    ]
    rows += [
        (where_text(row.category, row.where) or "unknown", *_sizes(row))
        for row in memory.owners
        if row.change
    ]
    return _capped("Memory", "at the peak, by owner", ("owner", "before>", "after>", "change>"), rows)


def _memory_phases(comparison: ComparisonDocument) -> Section:
    by_phase = comparison.memory.by_phase if comparison.memory else ()
    rows = [(row.path, *_sizes(row)) for row in by_phase if row.change]
    return _capped("Memory by phase", "peak allocated", ("phase", "before>", "after>", "change>"), rows)


def _syncs(comparison: ComparisonDocument) -> Section:
    rows = [
        (
            where_text(row.api, row.operator, row.where or row.phase),
            *_times(row.blocked_ns),
            _counts(row.count.before, row.count.after),
            signed_text(row.cost_ns.change or 0),
        )
        for row in comparison.syncs
        if row.count.change or row.cost_ns.change
    ]
    headers = ("wait of the host", "blocked before>", "after>", "change>", "calls>", "cost>")
    return _capped("Synchronisation", "per step; cost is the most that removing it can bring", headers, rows)


def _communication(comparison: ComparisonDocument) -> Section:
    rows = [
        (
            where_text(row.collective, row.dtype),
            *_times(row.exposed_ns),
            _counts(row.count.before, row.count.after),
            signed_text(row.total_ns.change or 0),
        )
        for row in comparison.communication
    ]
    headers = ("collective", "exposed before>", "after>", "change>", "calls>", "time in all>")
    return _capped("Communication", "per step; exposed time is what nothing hides", headers, rows)


def _capped(title: str, note: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Section:
    return Section(title, note, headers, rows[:_TOP], max(len(rows) - _TOP, 0))


def _counts(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    return _count(before) if before == after else f"{_count(before)} → {_count(after)}"


def _count(value: float) -> str:
    return count_text(int(value)) if value == int(value) else f"{value:.1f}"


def _times(row: Change) -> tuple[str, str, str]:
    change = "–" if row.change is None else signed_text(row.change)
    return duration_text(row.before), duration_text(row.after), change


def _sizes(row: Change | MemoryChange | PeakChange) -> tuple[str, str, str]:
    before, after, change = (
        None if size is None else round(size) for size in (row.before, row.after, row.change)
    )
    sign = "" if change is None else "+" if change > 0 else "−" if change < 0 else "±"
    size = "–" if change is None else bytes_text(abs(change))
    return bytes_text(before), bytes_text(after), f"{sign}{size}"
