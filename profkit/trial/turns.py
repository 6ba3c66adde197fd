"""Two programs that are timed in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from profkit.model.rows import Interval
from profkit.trial.messages import Block
from profkit.trial.ratio import ENOUGH_TURNS, estimate
from profkit.trial.running import Failed, Process, Tryable

_Done = TypeVar("_Done")

__all__ = ["FEW_TURNS", "MOST_TURNS", "Comparison", "Side", "compare", "few_turns_s"]

_SHORTEST_BLOCK_S: Final = 0.1
"""The clock and one interrupt are then below 1 % of a block."""
_NARROW: Final = 0.02
"""An interval this narrow answers every question about a change that is worth the while."""
_NARROW_SHARE: Final = 0.2
"""Of a large gain, as much of its logarithm."""
MOST_TURNS: Final = 40
FEW_TURNS: Final = 3
"""The fewest after which a ratio may be clear."""
_TRIES: Final = 3
"""Of a turn: with the process that is there, with a new one, and with a new one and a shorter turn."""
_HOPELESS_FROM: Final = 0.2
"""The share of the turns after which a change may be given up."""


class Side:
    """A program with some changes, started anew when it ends by itself.

    Raises of its methods:
        Failed: As `Running`.
    """

    def __init__(
        self,
        program: Tryable,
        changes: Sequence[str] = (),
        seed_shift: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.changes = list(changes)
        self._program = program
        self._new: Callable[[], Process] = lambda: program.running(changes, seed_shift, environment)
        self._running: Process | None = None
        self._losses: list[float | None] | None = None
        self.first: Block | None = None
        """The warm-up of the first process."""
        self.peak_bytes: int | None = None
        self.start_s = 0.0
        """What its first process took to start and warm up, by the clock."""
        self._failure: Failed | None = None
        self.outside: dict[str, None] = {}
        """Files that it has written outside its scratch folder."""
        self._halvings = 0
        self.ended: Failed | None = None
        """How its first process ended by itself."""

    def launch(self) -> None:
        """Start it, and do not wait."""
        self._running = self._running or self._new()

    def hurry(self, patience_s: float, until: float) -> None:
        """Give up its start sooner or later, now that it is known what one takes."""
        self._program = self._program.within(patience_s, until)

    def start(self) -> Block:
        """Start it, and wait until it has warmed up; a side that has failed by itself fails again."""
        if self._failure is not None:
            raise self._failure
        self.launch()
        assert self._running is not None
        try:
            block = (
                self._running.last
                if self._running.blocks
                else self._running.warm_up(
                    self._program.patience_s, self._program.until if self.first is None else math.inf
                )
            )
            self._saw(block)
        except Failed as failure:
            failure.owner = self
            if failure.kind != "out-of-memory":  # which may be another's fault
                self._failure = failure
            raise
        if self.first is None:
            self.first, self.start_s = block, self._running.start_s
        return self.first

    def pause(self, standing: bool) -> None:
        """Let its start stand still, or go on; what has warmed up stands still already."""
        if self._running is not None and not self.is_up:
            self._running.pause(standing)

    @property
    def is_up(self) -> bool:
        """Whether it has warmed up, and waits for a turn."""
        return self._running is not None and bool(self._running.blocks)

    @property
    def losses(self) -> list[float | None]:
        """Of its first process, from the start."""
        if self._losses is not None:
            return self._losses
        return [] if self._running is None else self._running.losses

    @property
    def step_s(self) -> float:
        """A step's likely time, by the latest block."""
        if self._running is None or self.first is None:
            return 0.0
        last = self._running.last
        if last.first_ns is not None and last.steps > 1:
            return (last.ns - last.first_ns) / (last.steps - 1) / 1e9
        return last.ns / last.steps / 1e9

    def turn(self, steps: int) -> float:
        """The time of a step in ns, over so many."""
        block = self._anew_if_ended(
            lambda running: running.turn(self._most(steps), expected_s=steps * self.step_s)
        )
        self._saw(block)
        return block.ns / block.steps

    def _most(self, steps: int) -> int:
        """A program that has ended in its first turn gets shorter ones."""
        return max(1, steps >> self._halvings)

    def record(self, folder: str) -> None:
        """Record some steps into a folder; it is stopped."""
        self._anew_if_ended(lambda running: running.record(folder))
        self.stop()

    def _anew_if_ended(self, do: Callable[[Process], _Done]) -> _Done:
        """Start it anew where it ends, or crashes, by itself; with a shorter turn where even its first was too long."""
        for left in reversed(range(_TRIES)):
            self.start()
            assert self._running is not None
            is_first = len(self._running.blocks) == 1
            try:
                return do(self._running)
            except Failed as failure:
                failure.owner = self
                if not left or failure.kind not in ("ended", "crashed"):
                    raise
                self.ended = self.ended or failure
                self._halvings += 2 * is_first
            self.stop()
        raise AssertionError

    def _saw(self, block: Block) -> None:
        if block.peak_bytes is not None:
            self.peak_bytes = max(block.peak_bytes, self.peak_bytes or 0)
        self.outside |= dict.fromkeys(block.outside)

    def stop(self) -> None:
        """End its process; the next turn starts another."""
        if self._running is not None:
            if self._losses is None and self._running.blocks:
                self._losses = self._running.losses
            self._running.close()
        self._running = None


@dataclass
class Comparison:
    """The times of the turns, in ns a step."""

    before_ns: list[float] = field(default_factory=list)
    after_ns: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> Interval | None:
        """How much faster the second side is."""
        return estimate(self.before_ns, self.after_ns)


def compare(
    before: Side, after: Side, steps: int, noise: float, deadline: float, most_turns: int = MOST_TURNS
) -> Comparison:
    """Time two sides in turns, until it is clear how much faster the second is, or the deadline has passed.

    Args:
        before: A side that has warmed up.
        after: Another.
        steps: Steps of each side, unless fewer make it clear or the deadline allows fewer.
        noise: The gain that counts, as a share.
        deadline: By `time.monotonic`.
        most_turns: More are not made, clear or not. So few that they make no narrow interval are for a verdict only.
    """
    slower = max(before.step_s, after.step_s, 1e-6)
    size = max(math.ceil(steps / ENOUGH_TURNS), min(math.ceil(_SHORTEST_BLOCK_S / slower), 10 * steps))
    allowed = (deadline - time.monotonic()) / (2 * FEW_TURNS * slower) - 1
    size = max(1, min(size, int(allowed)))
    found = Comparison()
    while len(found.before_ns) < most_turns and (
        time.monotonic() < deadline and not _is_clear(found, noise, most_turns)
    ):
        if len(found.before_ns) % 2:
            second, first = after.turn(size), before.turn(size)
        else:
            first, second = before.turn(size), after.turn(size)
        found.before_ns.append(first)
        found.after_ns.append(second)
    return found


def few_turns_s(before: Side, after: Side, steps: int) -> float:
    """What the fewest turns of full length take."""
    size = math.ceil(steps / ENOUGH_TURNS) + 1
    return FEW_TURNS * (size * (before.step_s + after.step_s) + 2 * _SHORTEST_BLOCK_S)


def _is_clear(found: Comparison, noise: float, most_turns: int) -> bool:
    ratio, turns = found.ratio, len(found.before_ns)
    if ratio is None or turns < FEW_TURNS:
        return False
    done = turns / most_turns
    if most_turns <= ENOUGH_TURNS and ratio.low > 1 + noise:
        return True
    if ratio.high < 1 + noise or (done > _HOPELESS_FROM and _is_hopeless(ratio, noise, done)):
        return True
    width = math.log(ratio.high / ratio.low)
    return width < max(_NARROW, _NARROW_SHARE * abs(math.log(ratio.likely)))


def _is_hopeless(ratio: Interval, noise: float, done: float) -> bool:
    """Whether all turns together would not lift the interval above the noise, even with some luck.

    An interval narrows with the root of the turns; luck is a standard error, half of what the interval has on a side.
    """
    luckily = ratio.likely + (ratio.high - ratio.likely) / 2
    return luckily - (ratio.likely - ratio.low) * math.sqrt(done) < 1 + noise
