"""Who held the memory of one device in any state, by category and owner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import CATEGORIES
from profkit.memory.owners import Owners
from profkit.memory.phase_memory import Stretches
from profkit.memory.replay import DeviceReplay
from profkit.model.result import Row

__all__ = ["Holders"]


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

    def rows(self, state: int, most: int) -> list[Row]:
        """Allocated bytes in a state by (category, owner), largest first; beyond ``most`` rows one for the rest.

        The bytes add up to what was allocated.
        """
        alive = np.flatnonzero(self.replayed.alive(state))
        owner = self.owners.owner(self.replayed.lifetimes.stack[alive])
        key, inverse = np.unique(owner * len(CATEGORIES) + self.categories[alive], return_inverse=True)
        sizes = self.replayed.lifetimes.bytes[alive]
        total = np.zeros(len(key), np.int64)
        np.add.at(total, inverse, sizes)
        count = np.bincount(inverse, minlength=len(key))
        order = np.lexsort((key, -total))
        rows: list[Row] = []
        for group in order[:most].tolist():
            rows.append(
                {
                    "category": CATEGORIES[int(key[group]) % len(CATEGORIES)],
                    "where": self.owners.names[int(key[group]) // len(CATEGORIES)],
                    "bytes": int(total[group]),
                    "count": int(count[group]),
                    "phase": self._main_phase(alive[inverse == group]),
                }
            )
        rest = order[most:]
        if len(rest):
            name = f"({len(rest)} smaller owners)"
            rows.append(
                {
                    "category": None,
                    "where": name,
                    "bytes": int(total[rest].sum()),
                    "count": int(count[rest].sum()),
                    "phase": None,
                }
            )
        return rows

    def by_category(self, state: int) -> list[Row]:
        """Allocated bytes in a state by category, all of them, largest first."""
        alive = self.replayed.alive(state)
        total = np.zeros(len(CATEGORIES), np.int64)
        np.add.at(total, self.categories[alive], self.replayed.lifetimes.bytes[alive])
        count = np.bincount(self.categories[alive], minlength=len(CATEGORIES))
        rows = [
            {"category": name, "bytes": int(size), "count": int(number)}
            for name, size, number in zip(CATEGORIES, total, count, strict=True)
            if number
        ]
        return sorted(rows, key=lambda row: -int(row["bytes"]))

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
