"""The changes with which a step fits that cost the least time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import combinations
from typing import Final

from profkit.model.report_fit import Fit, FitChoice
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.fit import fit_program, may_fit, room_bytes
from profkit.simulation.fit_changes import FitChanges
from profkit.simulation.loss_memory import find_loss
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.predict import Step
from profkit.simulation.recompute_memory import find_segments

__all__ = ["cheapest_fit"]

_OFFERED: Final = FitChanges(
    fused_optimizer=True,
    fused_attention=True,
    fused_loss=True,
    bf16=True,
    optimizer="adam8bit",
    recompute="all",
)
"""What keeps the batch and the ranks as they are."""

_CLEARLY: Final = 0.75
"""Of the step with fewer changes: more of them must be faster by what their times are off by (docs/fit.md)."""

_NAMES: Final = ("fused_optimizer", "fused_attention", "fused_loss", "bf16", "optimizer", "recompute")


def cheapest_fit(
    program: MemoryProgram,
    asked: FitChanges,
    operators: BlockOperators | None,
    *,
    step: Step | None,
    memory_bytes: int | None,
    gpu_bytes: int | None,
) -> FitChoice | None:
    """Changes beyond those asked for that surely fit and have the shortest step; None where none do.

    None of them is needless, and no more are taken than is clearly faster. Without a trace's step the first of the
    smallest sets is taken.
    """

    def fit(changes: FitChanges, step: Step | None = None) -> Fit:
        return fit_program(
            program, changes, operators, step=step, memory_bytes=memory_bytes, gpu_bytes=gpu_bytes
        )

    room = room_bytes(program, memory_bytes, gpu_bytes)
    best: Fit | None = None
    fitting: list[frozenset[str]] = []
    for names in _sets(program, asked, operators):
        if any(each <= names for each in fitting):
            continue
        changes = replace(asked, **{name: getattr(_OFFERED, name) for name in names})
        if room is None or not (may_fit(program, changes, operators, room) and fit(changes).fits):
            continue
        fitting.append(names)
        if "recompute" in names:
            changes = _fewest_layers(program, changes, fit)
        found = fit(changes, step)
        clearly = 1.0 if best is None or len(found.changes) == len(best.changes) else _CLEARLY
        if best is None or _step_ns(found) < clearly * _step_ns(best):
            best = found
    if best is None:
        return None
    return FitChoice(changes=best.changes, settings=best.settings, after=best.after)


def _fewest_layers(
    program: MemoryProgram, changes: FitChanges, fit: Callable[[FitChanges], Fit]
) -> FitChanges:
    """The changes with as few layers recomputed as do, by halves; with all of them where no fewer do."""
    layers = find_segments(program)
    fewest, most, best = 1, sum(each.step == layers[-1].step for each in layers), changes
    while fewest < most:
        count = (fewest + most) // 2
        fewer = replace(changes, recompute=str(count))
        fewest, most, best = (fewest, count, fewer) if fit(fewer).fits else (count + 1, most, best)
    return best


def _step_ns(found: Fit) -> float:
    return found.after.step_ns.likely if found.after.step_ns is not None else 0.0


def _sets(
    program: MemoryProgram, asked: FitChanges, operators: BlockOperators | None
) -> Iterator[frozenset[str]]:
    """All sets of offered changes, small ones first, that are possible and not asked for already."""
    plain = {field.name: field.default for field in fields(FitChanges)}
    offered = [name for name in _NAMES if getattr(asked, name) == plain[name]]
    if operators is None:
        offered = [name for name in offered if name not in ("bf16", "fused_attention", "fused_loss")]
    elif find_loss(operators) is None:
        offered = [name for name in offered if name != "fused_loss"]
    if not find_segments(program):
        offered = [name for name in offered if name != "recompute"]
    for count in range(1, len(offered) + 1):
        yield from map(frozenset, combinations(offered, count))
