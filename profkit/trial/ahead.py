"""Programs that are started at once, and wait frozen for their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from profkit.trial.changes import compiles, same_kind
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
    if facts.in_process:
        return 1
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
        if wanted and wanted[0] not in self._sides:
            fresh = self.launch(wanted, others)
            self.wait(fresh, others)

    def launch(self, wanted: Sequence[Names], others: Sequence[Side] = ()) -> list[Names]:
        """Start the first of these that the machine holds, with ``others``, and do not wait; what is new of them."""
        if self.most < 2:
            return []
        for names in [each for each in self._sides if each not in wanted]:
            self._sides.pop(names).stop()
        room = self.most - len(others) - len(self._sides)
        fresh = [names for names in dict.fromkeys(wanted) if names not in self._sides][: max(room, 0)]
        self._sides |= {names: self._new(names) for names in fresh}
        for side in (*others, *(self._sides[names] for names in fresh)):
            side.launch()
        return fresh

    def wait(self, wanted: Sequence[Names], others: Sequence[Side] = ()) -> None:
        """Wait until those of these that are there have warmed up; one that fails tells so where it is started again."""
        for side in (*others, *(self._sides[names] for names in wanted if names in self._sides)):
            try:
                side.start()
            except Failed:
                side.stop()

    def adopt(
        self,
        wanted: Sequence[Names],
        stands_for: Callable[[Names, Names], bool],
        patience_s: Callable[[Names], float],
        until: Callable[[Names], float],
    ) -> None:
        """Give what was launched by guess the names that it stands for; what stands for none of these is stopped.

        Args:
            wanted: The names.
            stands_for: Whether a guess, the first, is what is wanted, the second.
            patience_s: How long their start may take.
            until: When it has to be over.
        """
        guessed, self._sides = self._sides, {}
        for names in wanted:
            guess = next((each for each in guessed if stands_for(each, names)), None)
            if guess is not None:
                self._sides[names] = guessed.pop(guess)
                self._sides[names].hurry(patience_s(names), until(names))
        for side in guessed.values():
            side.stop()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """What still starts disturbs no turn meanwhile."""
        starting = list(self._sides.values())
        for side in starting:
            side.pause(standing=True)
        try:
            yield
        finally:
            for side in starting:
                side.pause(standing=False)

    def is_compiling(self) -> bool:
        """Whether one with a compiler still starts: each turn of others is a delay for it."""
        return any(compiles(names) and not side.is_up for names, side in self._sides.items())

    @property
    def count(self) -> int:
        """How many are there."""
        return len(self._sides)

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
