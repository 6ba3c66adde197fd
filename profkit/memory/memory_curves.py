"""What a page draws of a memory history: the curve, the largest allocations, and the stacks at the peak."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import CATEGORIES
from profkit.memory.holders import Held, Holders
from profkit.memory.replay import curve_of
from profkit.model.report_memory import (
    Allocation,
    LargestAllocations,
    LeftOut,
    MemoryCurve,
    PhaseSpan,
    StackNode,
)

__all__ = ["MOST_PHASES", "curve_row", "largest_rows", "picked_states", "stack_tree"]

_CURVE_BUCKETS: Final = 600
MOST_PHASES: Final = 400
"""Phases along a curve: more of them are narrower than a pixel."""
_MOST_NODES: Final = 1200
_LEAST_SHARE: Final = 0.001
_LARGEST_BY_SIZE: Final = 50
_MOST_FRAMES: Final = 30


def curve_row(holders: Holders) -> MemoryCurve:
    """Allocated, active and reserved bytes over time, at most some thousand points.

    Of every stretch of states its highest and lowest allocated and its highest reserved state are kept, so every
    local peak survives to within one stretch; both peaks of the whole are among them. ``time_ns`` is None when
    the snapshot has no times; ``event`` is then the axis.
    """
    replayed, origin = holders.replayed, holders.origin_ns
    states = picked_states(replayed.allocated, replayed.reserved)
    times = np.concatenate([replayed.events.time_ns[:1], replayed.events.time_ns])
    timed = len(times) > 0 and bool((times >= 0).all())
    return MemoryCurve(
        id=replayed.device,
        device=replayed.device,
        event=states.tolist(),
        time_ns=(np.maximum.accumulate(times)[states] - origin).tolist() if timed else None,
        allocated_bytes=replayed.allocated[states].tolist(),
        active_bytes=replayed.active[states].tolist(),
        reserved_bytes=replayed.reserved[states].tolist() if replayed.reserved is not None else None,
        states=len(replayed.allocated),
        phases=[
            PhaseSpan(path=p.path, name=p.path, start_ns=p.start_ns - origin, end_ns=p.end_ns - origin)
            for p in holders.stretches.phases[:MOST_PHASES]
        ],
    )


def picked_states(allocated: NDArray[np.int64], reserved: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """States to draw: of every stretch those of the highest and lowest value, and both peaks."""
    count = len(allocated)
    if count <= 4 * _CURVE_BUCKETS:
        return np.arange(count)
    starts = np.linspace(0, count, _CURVE_BUCKETS, endpoint=False).astype(np.int64)
    picks = [np.array([0, count - 1, int(allocated.argmax())]), starts]
    picks += [_extremes(allocated, starts, np.maximum), _extremes(allocated, starts, np.minimum)]
    if reserved is not None:
        picks += [_extremes(reserved, starts, np.maximum), np.array([int(reserved.argmax())])]
    return np.unique(np.concatenate(picks))


def _extremes(values: NDArray[np.int64], starts: NDArray[np.int64], of: Any) -> NDArray[np.int64]:
    """The first state of each stretch that has its highest (or lowest) value."""
    best = of.reduceat(values, starts)
    stretch = np.zeros(len(values), np.int64)
    stretch[starts[1:]] = 1
    stretch = np.cumsum(stretch)
    rows = np.flatnonzero(values == best[stretch])
    _, first = np.unique(stretch[rows], return_index=True)
    found: NDArray[np.int64] = rows[first]
    return found


def largest_rows(holders: Holders, most: int) -> LargestAllocations:
    """The allocations that fill most of the picture: by bytes times lifetime, and the largest ones."""
    replayed, lives = holders.replayed, holders.replayed.lifetimes
    end = len(replayed.events) + 1
    span = np.maximum(lives.freed - lives.allocated, 0)
    if len(replayed.events):
        times = np.maximum.accumulate(replayed.events.time_ns)
        if times[0] >= 0:
            last = len(times) - 1
            span = times[np.clip(lives.freed - 1, 0, last)] - times[np.clip(lives.allocated - 1, 0, last)]
    area = lives.bytes.astype(np.float64) * (span + 1)
    chosen = np.union1d(
        np.argsort(-area, kind="stable")[:most], np.argsort(-lives.bytes, kind="stable")[:_LARGEST_BY_SIZE]
    )
    chosen = chosen[lives.freed[chosen] > lives.allocated[chosen]]
    chosen = chosen[np.argsort(lives.allocated[chosen], kind="stable")]
    shown = np.zeros(len(lives), bool)
    shown[chosen] = True
    hidden = replayed.allocated - _allocated_by(holders, shown)
    return LargestAllocations(
        device=replayed.device,
        rows=[_lifetime(holders, row, end) for row in chosen.tolist()],
        left_out=LeftOut(count=len(lives) - len(chosen), peak_bytes=int(hidden.max(initial=0))),
    )


def _allocated_by(holders: Holders, shown: NDArray[np.bool_]) -> NDArray[np.int64]:
    lives = holders.replayed.lifetimes.take(shown)
    return curve_of(lives.bytes, lives.allocated, lives.freed, len(holders.replayed.events) + 1)


def _lifetime(holders: Holders, row: int, end: int) -> Allocation:
    lives = holders.replayed.lifetimes
    start, freed = int(lives.allocated[row]), int(lives.freed[row])
    stack = int(lives.stack[row])
    return Allocation(
        start_ns=holders.time_ns(start) if start else None,
        end_ns=holders.time_ns(freed) if freed < end else None,
        start_event=start,
        end_event=freed,
        bytes=int(lives.bytes[row]),
        requested_bytes=int(lives.requested[row]),
        category=CATEGORIES[int(holders.categories[row])],
        where=holders.owners.where(stack),
        stack=holders.owners.path(stack)[-_MOST_FRAMES:],
    )


def stack_tree(holders: Holders, state: int) -> StackNode:
    """What was allocated in a state, as a tree of stacks for a flame chart.

    Outermost frames come first, and larger children; what is under 0.1 %, or beyond some thousand nodes, is summed up
    in a child named ``(smaller)``.
    """
    alive = np.flatnonzero(holders.replayed.alive(state))
    lives = holders.replayed.lifetimes
    held = Held.by(lives.stack[alive], lives.bytes[alive])
    root = _Node("all")
    for stack, size, number in zip(held.key.tolist(), held.bytes.tolist(), held.count.tolist(), strict=True):
        root.add(holders.owners.path(stack) or ["(no stack)"], size, number)
    sizes = sorted((node.bytes for node in root.walk()), reverse=True)
    floor = sizes[_MOST_NODES] if len(sizes) > _MOST_NODES else 0
    return root.frozen(max(root.bytes * _LEAST_SHARE, floor))


class _Node:
    """A frame with all that was allocated under it, while the tree grows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.count = 0
        self.children: dict[str, _Node] = {}

    def add(self, path: list[str], size: int, number: int) -> None:
        node = self
        node.bytes, node.count = node.bytes + size, node.count + number
        for name in path:
            node = node.children.setdefault(name, _Node(name))
            node.bytes, node.count = node.bytes + size, node.count + number

    def walk(self) -> list[_Node]:
        """All nodes, parents before children, siblings in order."""
        found, waiting = [], [self]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(reversed(node.children.values()))
        return found

    def frozen(self, floor: float) -> StackNode:
        """The tree without what is not above the floor; made from the leaves up, since stacks may be too deep to recurse."""
        made: dict[int, StackNode] = {}
        for node in reversed(self.walk()):
            children = sorted(node.children.values(), key=lambda child: -child.bytes)
            shown = [made.pop(id(child)) for child in children if child.bytes > floor]
            hidden = [child for child in children if child.bytes <= floor]
            rest = sum(child.bytes for child in hidden)
            if rest:
                count = sum(child.count for child in hidden)
                shown.append(StackNode(name="(smaller)", bytes=rest, count=count, children=[]))
            if node is self or node.bytes > floor:
                made[id(node)] = StackNode(name=node.name, bytes=node.bytes, count=node.count, children=shown)
        return made[id(self)]
