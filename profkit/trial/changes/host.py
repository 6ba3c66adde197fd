"""What the host does beside the step: garbage collection, threads."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from profkit.recording.program_events import Kind, listen, unlisten
from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.messages import Facts

__all__ = ["CollectRarely", "Threads"]

_EVERY: Final = 50
"""Steps between two collections: what a step leaves in cycles is small, and freed at the latest then."""


class CollectRarely(Change):
    """Garbage collection frozen, and run between steps."""

    name = "garbage-collection"
    promise = Promise.EQUAL
    kinds: tuple[Kind, ...] = (Kind.OPTIMIZER,)

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a collector that runs by itself."""
        return None if facts.collects else ALREADY

    def warmed_up(self, undo: ExitStack) -> None:
        """What the program has made so far stays for good."""
        gc.collect()
        gc.freeze()
        undo.callback(gc.unfreeze)
        if gc.isenabled():
            undo.callback(gc.enable)
            gc.disable()
            self.applied += 1
        listen(self)
        undo.callback(unlisten, self)

    def entered(self, kind: Kind, subject: Any) -> None:
        """The collection belongs to no part of the step."""

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps % _EVERY == 0:
            gc.collect()

    def patch(self, facts: Facts) -> list[str]:
        """Around the loop."""
        return [
            "gc.collect(); gc.freeze(); gc.disable()  # once, after a few steps",
            f"if step % {_EVERY} == 0: gc.collect()  # in the loop",
        ]


class Threads(Change):
    """Another number of CPU threads, where the CPU computes."""

    name = "threads"
    promise = Promise.EQUAL

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a CPU that computes, and more than one core."""
        if facts.cuda:
            return "a GPU computes"
        if facts.in_process:
            return "the process runs already"
        return None if facts.cpus > 1 else "there is one core"

    def environment(self, facts: Facts) -> dict[str, str]:
        """As many as there are cores; where that is so already, one."""
        return {"OMP_NUM_THREADS": str(_other_count(facts))}

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """The variable does it; a program that sets its own number of threads keeps that."""
        self.applied = 1

    def patch(self, facts: Facts) -> list[str]:
        """Before the command."""
        return [f"OMP_NUM_THREADS={_other_count(facts)}"]


def _other_count(facts: Facts) -> int:
    return 1 if facts.threads >= facts.cpus else facts.cpus
