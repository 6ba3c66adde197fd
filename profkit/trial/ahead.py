"""Programs that are started at once, and wait frozen for their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from profkit.trial.changes import same_kind
from profkit.trial.messages import Facts
from profkit.trial.running import Failed
from profkit.trial.turns import Side

__all__ = ["Ahead", "Names", "at_once", "likely_chains"]

Names = tuple[str, ...]

_HOST_BYTES: Final = 6 << 30
"""A process that has loaded torch, CUDA and a model."""
_GPU_BYTES: Final = 1 << 30
"""A CUDA context with the kernels of torch and cuBLAS' workspace."""
_KEPT: Final = 0.6
"""How often a change that can be tried is kept, roughly: it decides only which processes wait."""
_LOOKED_AHEAD: Final = 6
_FRAGMENTED: Final = 1.5
"""What the allocator reserves for a byte, with room for a change that holds more."""


def at_once(facts: Facts, peak_bytes: int | None) -> int:
    """How many more processes of a program a machine holds, and starts well at the same time: imports take a core each.

    Args:
        facts: Of the program.
        peak_bytes: The most that one was seen to hold on the GPU.
    """
    counts = [facts.cpus, int(facts.host_free_bytes // _HOST_BYTES)]
    if facts.gpu_free_bytes is not None:
        counts.append(int(facts.gpu_free_bytes // (_GPU_BYTES + _FRAGMENTED * (peak_bytes or 0))))
    return max(1, min(counts))


def likely_chains(kept: Sequence[str], names: Sequence[str]) -> list[Names]:
    """What may come to be tried where each name is tried beside those kept before it: the likeliest first.

    Args:
        kept: What is kept already.
        names: What is tried next, in this order.
    """
    chains: dict[Names, float] = {tuple(kept): 1.0}
    wanted: list[tuple[float, Names]] = []
    for name in names[:_LOOKED_AHEAD]:
        longer = {
            (*chain, name): chance for chain, chance in chains.items() if same_kind(name, chain) is None
        }
        wanted += [(-chance, chain) for chain, chance in longer.items()]
        chains = {chain: chance * (1 - _KEPT) for chain, chance in chains.items()}
        chains |= {chain: chance * _KEPT for chain, chance in longer.items()}
    return [chain for _, chain in sorted(wanted, key=lambda each: each[0])]


class Ahead:
    """Sides by the names of their changes. A start costs more than many turns, so that several are made together.

    Args:
        new: Makes a side of some changes.
    """

    def __init__(self, new: Callable[[Sequence[str]], Side]) -> None:
        self._new = new
        self._sides: dict[Names, Side] = {}
        self.most = 1
        """How many may be there at once."""

    def start(self, wanted: Sequence[Names], others: Sequence[Side] = ()) -> None:
        """Start the first of these that the machine holds, with ``others``, unless the very first is there; wait for all.

        Nothing may be timed meanwhile. One that fails tells so where it is started again. What is there and no more
        wanted is stopped.
        """
        if self.most < 2 or not wanted or wanted[0] in self._sides:
            return
        for names in [each for each in self._sides if each not in wanted]:
            self._sides.pop(names).stop()
        room = self.most - len(others) - len(self._sides)
        fresh = [names for names in dict.fromkeys(wanted) if names not in self._sides][: max(room, 0)]
        sides = {names: self._new(names) for names in fresh}
        self._sides |= sides
        for side in (*others, *sides.values()):
            side.launch()
        for side in (*others, *sides.values()):
            try:
                side.start()
            except Failed:
                side.stop()

    def has(self, names: Sequence[str]) -> bool:
        """Whether a side of these changes is there."""
        return tuple(names) in self._sides

    def take(self, names: Sequence[str]) -> Side:
        """A side that may be running, and now is the caller's to stop."""
        return self._sides.pop(tuple(names), None) or self._new(names)

    def stop(self) -> None:
        """Stop all; each is made anew when it is taken."""
        for side in self._sides.values():
            side.stop()
        self._sides.clear()
