"""The changes with which a step fits that cost the least time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import combinations
from typing import Final

from profkit.model.report_fit import FitChoice
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.fit import fit_program, likely_ns, room_bytes, surely_fits
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

_NO_FASTER: Final = frozenset({"optimizer", "fused_loss", "recompute"})
"""The first two have no price in time, and layers that run twice make no step shorter."""

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
    smallest sets is taken. The time is looked at first: one replay of a step costs less than a play of the allocator.
    """
    room = room_bytes(program, memory_bytes, gpu_bytes)
    if room is None:
        return None

    @cache
    def fits(changes: FitChanges) -> bool:
        return surely_fits(program, changes, operators, room)

    @cache
    def time_ns(changes: FitChanges) -> float:
        return 0.0 if step is None else likely_ns(program, changes, operators, step)

    best, size, shortest = asked, 0, math.inf
    before: list[frozenset[str]] = []
    for names in _sets(program, asked, operators):
        changes, under = _with(asked, names), shortest * (1.0 if len(names) == size else _CLEARLY)
        hopeful = time_ns(_with(asked, names - _NO_FASTER)) < under
        if (
            hopeful
            and not any(each < names and fits(_with(asked, each)) for each in before)
            and fits(changes)
        ):
            if "recompute" in names:
                changes = _fewest_layers(program, changes, fits)
            found_ns = time_ns(changes if "recompute" in names else _with(asked, names - _NO_FASTER))
            if found_ns < under:
                best, size, shortest = changes, len(names), found_ns
        before.append(names)
    if best is asked:
        return None
    found = fit_program(program, best, operators, step=step, memory_bytes=memory_bytes, gpu_bytes=gpu_bytes)
    return FitChoice(changes=found.changes, settings=found.settings, after=found.after)


def _with(asked: FitChanges, names: Iterable[str]) -> FitChanges:
    return replace(asked, **{name: getattr(_OFFERED, name) for name in names})


def _fewest_layers(
    program: MemoryProgram, changes: FitChanges, fits: Callable[[FitChanges], bool]
) -> FitChanges:
    """The changes with as few layers recomputed as do, by halves; with all of them where no fewer do."""
    layers = find_segments(program)
    fewest, most, best = 1, sum(each.step == layers[-1].step for each in layers), changes
    while fewest < most:
        count = (fewest + most) // 2
        fewer = replace(changes, recompute=str(count))
        fewest, most, best = (fewest, count, fewer) if fits(fewer) else (count + 1, most, best)
    return best


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
