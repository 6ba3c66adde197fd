"""Who held the memory of one device in any state, by category and owner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import CATEGORIES
from profkit.memory.owners import Owners
from profkit.memory.phase_memory import Stretches
from profkit.memory.replay import DeviceReplay
from profkit.model import IntColumn
from profkit.model.report_memory import CategoryRow, HolderRow, NeverFreedRow
from profkit.timeline.grouping import sums

__all__ = ["Held", "Holders"]


@dataclass(frozen=True, eq=False)
class Held:
    """Blocks summed up by a key."""

    key: IntColumn
    """The distinct keys, in order."""
    group: NDArray[np.int64]
    """For each block the place of its key."""
    bytes: IntColumn
    count: NDArray[np.int64]

    @classmethod
    def by(cls, key: IntColumn, sizes: IntColumn) -> Held:
        """Sum up blocks of some sizes by the key of each."""
        keys, group = np.unique(key, return_inverse=True)
        return cls(keys, group, sums(group, sizes, len(keys)), np.bincount(group, minlength=len(keys)))


@dataclass(frozen=True, eq=False)
class Holders:
    """A replay with what is known of its blocks."""

    replayed: DeviceReplay
    owners: Owners
    stretches: Stretches
    categories: NDArray[np.int64]
    """For each lifetime an index in `CATEGORIES`."""
    phases: NDArray[np.int64]
    """For each event an index in ``stretches.phases``; -1 outside."""
    origin_ns: int

    def time_ns(self, state: int) -> int | None:
        """When a state began, from the report's origin."""
        time = self.replayed.time_ns(state)
        return None if time is None else time - self.origin_ns

    def phase_of_event(self, event: int) -> str | None:
        """The path of the phase that an event lies in."""
        index = int(self.phases[event])
        return self.stretches.phases[index].path if index >= 0 else None

    def rows(self, state: int, most: int) -> list[HolderRow]:
        """Allocated bytes in a state by (category, owner), largest first; beyond ``most`` rows one for the rest.

        The bytes add up to what was allocated.
        """
        alive = np.flatnonzero(self.replayed.alive(state))
        owner = self.owners.owner(self.replayed.lifetimes.stack[alive])
        held = Held.by(owner * len(CATEGORIES) + self.categories[alive], self._bytes(alive))
        order = np.lexsort((held.key, -held.bytes))
        rows = [
            HolderRow(
                category=CATEGORIES[int(held.key[group]) % len(CATEGORIES)],
                where=self.owners.names[int(held.key[group]) // len(CATEGORIES)],
                bytes=int(held.bytes[group]),
                count=int(held.count[group]),
                phase=self._main_phase(alive[held.group == group]),
            )
            for group in order[:most].tolist()
        ]
        rest = order[most:]
        if len(rest):
            size, count = int(held.bytes[rest].sum()), int(held.count[rest].sum())
            name = f"({len(rest)} smaller call sites)"
            rows.append(HolderRow(category=None, where=name, bytes=size, count=count, phase=None))
        return rows

    def by_category(self, state: int) -> list[CategoryRow]:
        """Allocated bytes in a state by category, all of them, largest first."""
        alive = np.flatnonzero(self.replayed.alive(state))
        held = Held.by(self.categories[alive], self._bytes(alive))
        return [
            CategoryRow(
                category=CATEGORIES[int(held.key[at])], bytes=int(held.bytes[at]), count=int(held.count[at])
            )
            for at in np.argsort(-held.bytes, kind="stable").tolist()
        ]

    def still_allocated(self, most: int) -> list[NeverFreedRow]:
        """What is allocated at the end by owner, largest first; what was there before the history is told apart."""
        replayed = self.replayed
        alive = np.flatnonzero(replayed.alive(len(replayed.events)))
        held = Held.by(self.owners.owner(replayed.lifetimes.stack[alive]), self._bytes(alive))
        before = replayed.lifetimes.allocated[alive] == 0
        older = sums(held.group[before], self._bytes(alive[before]), len(held.key))
        return [
            NeverFreedRow(
                where=self.owners.names[int(held.key[at])],
                bytes=int(held.bytes[at]),
                count=int(held.count[at]),
                before_history_bytes=int(older[at]),
                device=replayed.device,
            )
            for at in np.argsort(-held.bytes, kind="stable")[:most].tolist()
        ]

    def _bytes(self, lifetimes: NDArray[np.int64]) -> IntColumn:
        sizes: IntColumn = self.replayed.lifetimes.bytes[lifetimes]
        return sizes

    def _main_phase(self, lifetimes: NDArray[np.int64]) -> str | None:
        """The phase in which most of these bytes were allocated."""
        born = self.replayed.lifetimes.allocated[lifetimes]
        traced = born > 0
        if not traced.any() or not self.stretches.phases:
            return None
        phase = self.phases[born[traced] - 1]
        totals = np.bincount(phase + 1, self.replayed.lifetimes.bytes[lifetimes[traced]])
        best = int(totals.argmax()) - 1
        return self.stretches.phases[best].path if best >= 0 else None
