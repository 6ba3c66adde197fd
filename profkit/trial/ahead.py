"""Programs that are started at once, and wait frozen for their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from profkit.trial.messages import Facts
from profkit.trial.running import Failed
from profkit.trial.turns import Side

__all__ = ["Ahead", "Names", "at_once"]

Names = tuple[str, ...]

_CORES_OF_A_START: Final = 2
_HOST_BYTES: Final = 6 << 30
"""A process that has loaded torch, CUDA and a model."""
_GPU_BYTES: Final = 1 << 30
"""A CUDA context with the kernels of torch and cuBLAS' workspace."""
_FRAGMENTED: Final = 1.5
"""What the allocator reserves for a byte, with room for a change that holds more."""


def at_once(facts: Facts, peak_bytes: int | None) -> int:
    """How many more processes of a program a machine holds, and starts well at the same time.

    Args:
        facts: Of the program.
        peak_bytes: The most that one was seen to hold on the GPU.
    """
    counts = [facts.cpus // _CORES_OF_A_START, int(facts.host_free_bytes // _HOST_BYTES)]
    if facts.gpu_free_bytes is not None:
        counts.append(int(facts.gpu_free_bytes // (_GPU_BYTES + _FRAGMENTED * (peak_bytes or 0))))
    return max(1, min(counts))


class Ahead:
    """Sides by the names of their changes. A start costs more than many turns, so that several are made together.

    Args:
        new: Makes a side of some changes, which may take so many seconds to start.
    """

    def __init__(self, new: Callable[[Sequence[str], float], Side]) -> None:
        self._new = new
        self._sides: dict[Names, Side] = {}
        self.most = 1
        """How many may be there at once."""

    def start(self, wanted: Sequence[Names], within_s: float, others: Sequence[Side] = ()) -> None:
        """Start the first of these that the machine holds, with ``others``, unless the very first is there; wait for all.

        Nothing may be timed meanwhile. One that fails tells so where it is started again.
        """
        count = self.most - len(others)
        if count < 2 or within_s <= 0 or (wanted and wanted[0] in self._sides):
            return
        fresh = [names for names in dict.fromkeys(wanted) if names not in self._sides][:count]
        sides = {names: self._new(names, within_s) for names in fresh}
        self._sides |= sides
        for side in (*others, *sides.values()):
            side.launch()
        for side in (*others, *sides.values()):
            try:
                side.start()
            except Failed:
                side.stop()

    def take(self, names: Sequence[str], within_s: float) -> Side:
        """A side that may be running, and now is the caller's to stop."""
        return self._sides.pop(tuple(names), None) or self._new(names, within_s)

    def stop(self) -> None:
        """Stop all; each starts anew when it is taken and started."""
        for side in self._sides.values():
            side.stop()
