"""``python -m profkit.trial.child ORDER train.py ...``: an unchanged script, with changes, that steps when told to.

The script runs as ``__main__`` with its own arguments, in a folder of its own that mirrors where it would run.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from profkit.recording.program_events import listen, unlisten
from profkit.recording.run_script import recorded, run_as_main
from profkit.recording.step_finder import StepFinder
from profkit.trial.changes import Change, changes_named
from profkit.trial.devices import peak_bytes, wait_for_device
from profkit.trial.forks import undone_in_children
from profkit.trial.losses import Losses
from profkit.trial.messages import RECORDED, Block, Hello, Order, Talk, Turn
from profkit.trial.observe import Observer
from profkit.trial.scratch import keep_originals
from profkit.trial.seeds import seed

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
"""prctl(2): a frozen process shall not outlive the trial."""


def main(arguments: list[str]) -> None:
    """Run ``arguments[1:]`` as the `Order` in ``arguments[0]`` says."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    order = msgspec.json.decode(arguments[0], type=Order)
    talk = Talk.to(order.socket)
    talk.say(Hello(world=int(os.environ.get("WORLD_SIZE", "1")), group=os.getpgid(0)))
    with ExitStack() as undo, ExitStack() as stays:
        undone_in_children(undo)
        changes = dict(zip(order.changes, changes_named(order.changes), strict=True))
        losses = Losses()
        for change in changes.values():
            change.install(undo, list(changes.values()))
        losses.listen(undo)
        outside = {} if order.folder is None else keep_originals(Path.cwd(), stays)
        seed(order.seed_shift, undo)
        turns = Turns(talk, order, changes, losses, undo, outside)
        finder = StepFinder(turns.stepped, order.step_by, order.step_every)
        listen(finder)
        undo.callback(unlisten, finder)
        run_as_main(arguments[1:])


class Turns:
    """Counts steps, and stands still after each block of them until it is this process' turn.

    The device is waited for at both ends of a block, and nowhere between.
    """

    def __init__(
        self,
        talk: Talk,
        order: Order,
        changes: dict[str, Change],
        losses: Losses,
        undo: ExitStack,
        outside: Mapping[str, None],
    ) -> None:
        self._order, self._outside = order, outside
        self._talk, self._changes, self._losses, self._undo = talk, changes, losses, undo
        self._left = self._steps = order.warmup
        self._leading_in = 0
        self._start_ns = time.perf_counter_ns()
        self._first_ns: int | None = None
        self._observer: Observer | None = Observer()
        self._observer.listen()

    def stepped(self) -> None:
        """A step is over."""
        if self._leading_in:
            self._leading_in -= 1
            if not self._leading_in:
                self._start()
            return
        self._left -= 1
        if self._observer is not None and self._first_ns is None:
            wait_for_device()
            self._first_ns = time.perf_counter_ns() - self._start_ns
        if self._left <= 0:
            self._ended()

    def _start(self) -> None:
        wait_for_device()
        self._start_ns = time.perf_counter_ns()

    def _ended(self) -> None:
        wait_for_device()
        ns = time.perf_counter_ns() - self._start_ns
        block = Block(steps=self._steps, ns=ns, losses=self._losses.take(), peak_bytes=peak_bytes())
        block.outside = list(self._outside)
        lead_in = 1
        if self._observer is not None:
            block.first_ns, block.facts = self._first_ns, self._observer.facts()
            # What workers have prepared since the start comes at no cost: they have to keep up from then on.
            lead_in += sum(each.ahead for each in block.facts.loaders)
            self._observer = None
            for change in self._changes.values():
                change.warmed_up(self._undo)
        block.applied = {name: change.applied for name, change in self._changes.items()}
        block.refused = {name: change.refused for name, change in self._changes.items() if change.refused}
        try:
            self._talk.say(block)
            turn = self._talk.hear()
        except EOFError:
            os._exit(0)  # the trial is gone: nothing of this run is kept
        assert isinstance(turn, Turn)
        if turn.record is not None:
            self._record(turn.record)
            return
        self._left = self._steps = turn.steps
        self._leading_in = lead_in

    def _record(self, folder: str) -> None:
        self._left = sys.maxsize
        options = {"folder": folder, "step_by": self._order.step_by, "step_every": self._order.step_every}
        self._undo.enter_context(recorded(options | RECORDED)).when_done = self._recorded

    def _recorded(self) -> None:
        self._talk.say(Block(steps=0, ns=0))
        os._exit(0)


if __name__ == "__main__":
    # The script becomes __main__: what its worker processes unpickle must be found elsewhere.
    importlib.import_module("profkit.trial.child").main(sys.argv[1:])
