"""Leaks: owners whose memory grows from step to step, by a test and not by a guess.

An owner's live bytes are compared at the ends of repeated steps. Were growing and not growing equally likely, an
owner that grows in every one of *n* increments would do so by chance with probability 2^-n (the sign test).
What is built once (optimizer state, caches, the model) grows in the first step only, which is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import BACKWARD, CATEGORIES, UNKNOWN_USE
from profkit.memory.owners import Owners
from profkit.memory.phase_memory import Stretch, Stretches
from profkit.memory.replay import DeviceReplay, Lifetimes
from profkit.model import UNKNOWN, IntColumn
from profkit.model.memory_history import Action
from profkit.model.report_memory import GrowthRow

__all__ = ["Boundaries", "growth_rows", "step_boundaries"]

_FEWEST_INCREMENTS: Final = 3
_MOST_BOUNDARIES: Final = 64
_LARGEST_P: Final = 0.13
"""Three of three (1/8) is the least that counts; then seven of eight, or nine of eleven."""
_CERTAIN_P: Final = 0.01
_LEAST_FREEING: Final = 0.8
"""The share of the stretches between recurring allocations in which something must be freed, as in a step."""
_MOST_IRREGULAR: Final = 0.5
_LEAST_SPAN: Final = 0.5
"""A pattern must go on for this share of the history; a model that is being loaded stops earlier."""


Basis: TypeAlias = Literal["steps", "optimizer", "backward", "pattern"]


@dataclass(frozen=True)
class Boundaries:
    """The ends of repeated steps, as states of a replay."""

    states: NDArray[np.int64]
    basis: Basis
    """``steps`` (annotated), ``optimizer`` (torch's marks of its steps), ``backward`` (their begins, by stacks),
    ``pattern`` (a repeated allocation)."""


def step_boundaries(
    replayed: DeviceReplay, stretches: Stretches, activity: NDArray[np.int64]
) -> Boundaries | None:
    """Where steps end; None when nothing repeats often enough."""
    needed = _FEWEST_INCREMENTS + 1
    marked: tuple[tuple[Basis, list[Stretch]], ...] = (
        ("steps", stretches.steps),
        ("optimizer", stretches.optimizer),
    )
    for basis, found in marked:
        ends = np.unique([stretch.last for stretch in found])
        if len(ends) >= needed:
            return Boundaries(_thinned(ends), basis)
    backward = activity == BACKWARD
    ends = np.flatnonzero(~backward[:-1] & backward[1:]) + 1
    if len(ends) >= needed and _even(ends):
        return Boundaries(_thinned(ends), "backward")
    ends = _pattern(replayed)
    return Boundaries(_thinned(ends), "pattern") if len(ends) >= needed else None


def growth_rows(
    replayed: DeviceReplay, boundaries: Boundaries, owners: Owners, categories: NDArray[np.int64]
) -> list[GrowthRow]:
    """The owners that grow, the fastest first."""
    lives, largest_p = replayed.lifetimes, _LARGEST_P
    if boundaries.basis == "pattern":
        # What recurs may be a layer and not a step, whose activations and gradients pile up for a while.
        kept = (lives.freed > len(replayed.events)) & (categories == UNKNOWN_USE)
        lives, categories, largest_p = lives.take(kept), categories[kept], _CERTAIN_P
    key, inverse = np.unique(owners.owner(lives.stack) * len(CATEGORIES) + categories, return_inverse=True)
    held = _held_at(boundaries.states, lives, inverse, lives.bytes)
    blocks = _held_at(boundaries.states, lives, inverse, np.ones(len(lives), np.int64))
    increments = np.diff(held, axis=0)
    rows = []
    for column in np.flatnonzero((increments > 0).sum(axis=0) >= _FEWEST_INCREMENTS).tolist():
        steps, grown = increments[:, column], int(held[-1, column] - held[0, column])
        up, down = int((steps > 0).sum()), int((steps < 0).sum())
        p = _sign_test(up, len(steps))
        if p > largest_p or grown <= 0 or down > up // 4:
            continue
        certain = p <= _CERTAIN_P and boundaries.basis != "pattern"
        rows.append(
            GrowthRow(
                device=replayed.device,
                where=owners.names[int(key[column]) // len(CATEGORIES)],
                category=CATEGORIES[int(key[column]) % len(CATEGORIES)],
                bytes_per_step=int(np.median(steps)) or int(steps.mean()),
                grown_bytes=grown,
                blocks=int(blocks[-1, column] - blocks[0, column]),
                increments=len(steps),
                growing=up,
                p_value=p,
                confidence="high" if certain else "low",
                basis=boundaries.basis,
            )
        )
    return sorted(rows, key=lambda row: -row.grown_bytes)


def _held_at(
    states: NDArray[np.int64], lives: Lifetimes, group: NDArray[np.int64], weight: IntColumn
) -> NDArray[np.int64]:
    """What each group holds in some states: one row a state, one column a group.

    A block of 8 bytes that lives from state 3 up to state 7 counts in states 5 and 6 of ``[2, 5, 6, 9]``: it is
    added in the row of 5, taken off in that of 9, and the running sum over the rows has it in between.
    """
    held = np.zeros((len(states) + 1, int(group.max(initial=-1)) + 1), np.int64)
    first = np.searchsorted(states, lives.allocated, "left")
    last = np.maximum(first, np.searchsorted(states, lives.freed, "left"))
    np.add.at(held, (first, group), weight)
    np.subtract.at(held, (last, group), weight)
    return np.cumsum(held, axis=0)[: len(states)]


def _sign_test(successes: int, trials: int) -> float:
    """The chance of at least so many of ``trials`` when both outcomes are equally likely."""
    ways: int = sum(comb(trials, k) for k in range(successes, trials + 1))
    return float(ways / 2**trials)


def _thinned(states: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(states) <= _MOST_BOUNDARIES:
        return states
    thinned: NDArray[np.int64] = states[np.linspace(0, len(states) - 1, _MOST_BOUNDARIES).astype(int)]
    return thinned


def _pattern(replayed: DeviceReplay) -> NDArray[np.int64]:
    """States at which an allocation recurs evenly, as one does that every step makes once.

    Of the allocations by stack and size, the count that most bytes share is the number of steps; the first of
    those with that count that comes at even distances, with frees in between, marks them.
    """
    events = replayed.events
    rows = np.flatnonzero((events.action == Action.ALLOC) & (events.stack != UNKNOWN))
    if not len(rows):
        return np.zeros(0, np.int64)
    sizes, size = np.unique(events.bytes[rows], return_inverse=True)
    signature = events.stack[rows].astype(np.int64) * len(sizes) + size
    _, inverse, counts = np.unique(signature, return_inverse=True, return_counts=True)
    repeated = counts > _FEWEST_INCREMENTS
    weights = np.bincount(counts[inverse], events.bytes[rows] * repeated[inverse])
    if not weights.any():
        return np.zeros(0, np.int64)
    steps = int(weights.argmax())
    candidates = np.flatnonzero(counts == steps)
    freed = np.cumsum(np.isin(events.action, (Action.FREE_REQUESTED, Action.FREE_COMPLETED, Action.FREE)))
    for candidate in candidates[:20].tolist():
        at = rows[inverse == candidate]
        freeing = np.mean(np.diff(freed[at]) > 0)
        lasting = (at[-1] - at[0]) >= _LEAST_SPAN * len(events)
        if lasting and freeing >= _LEAST_FREEING and _even(at):
            return np.asarray(at, np.int64)
    return np.zeros(0, np.int64)


def _even(states: NDArray[np.int64]) -> bool:
    gaps = np.diff(states)
    return bool(gaps.std() <= _MOST_IRREGULAR * gaps.mean())
