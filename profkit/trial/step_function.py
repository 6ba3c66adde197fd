"""A step function of this very process, as a notebook has one, in place of a program."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from profkit.recording.recorder import record
from profkit.trial.changes import changes_named
from profkit.trial.devices import peak_bytes, wait_for_device
from profkit.trial.forks import undone_in_children
from profkit.trial.losses import Losses
from profkit.trial.messages import RECORDED, Block
from profkit.trial.objects import models, optimizers
from profkit.trial.observe import Observer
from profkit.trial.running import Failed
from profkit.trial.seeds import random_states, seed, set_random_states

__all__ = ["StepFunction"]


class StepFunction:
    """A function that makes one training step.

    Every side has its own copy of weights, buffers, gradients, optimizer states and random states, which is in place
    during its turns only: after each turn all is as it was before the trial.

    Args:
        step: Makes one step: forward, backward and the optimizer.
        warmup: Steps before the first turn.
    """

    command = ("step()",)
    starts_beside_others = False

    def __init__(self, step: Callable[[], object], warmup: int = 5) -> None:
        self.step, self.warmup = step, warmup
        self.patience_s, self.until = math.inf, math.inf
        self._subjects: _Subjects | None = None

    @property
    def subjects(self) -> _Subjects:
        """What its steps change."""
        self._subjects = self._subjects or _Subjects()
        return self._subjects

    def within(self, patience_s: float, until: float) -> StepFunction:
        """The same: a call that hangs cannot be ended."""
        return self

    def running(
        self, changes: Sequence[str], seed_shift: int, environment: dict[str, str] | None
    ) -> _Stepping:
        """A side of some changes."""
        return _Stepping(self, changes, seed_shift)


class _Stepping:
    """The step with some changes, which are there during its turns only."""

    def __init__(self, program: StepFunction, changes: Sequence[str], seed_shift: int) -> None:
        self.blocks: list[Block] = []
        self.start_s = 0.0
        self._program, self._seed_shift = program, seed_shift
        self._changes = changes_named(changes)
        self._own: _State | None = None

    @property
    def last(self) -> Block:
        """The latest block."""
        return self.blocks[-1]

    @property
    def losses(self) -> list[float | None]:
        """Of each backward from the start."""
        return [loss for block in self.blocks for loss in block.losses]

    def warm_up(self, patience_s: float, until: float) -> Block:
        """Make the first steps, then some as they are in a turn: what compiles does so again without its hooks."""
        begun = time.monotonic()
        first = self._run(self._program.warmup)
        again = self._run(self._program.warmup)
        first.ns += again.ns
        self.start_s = time.monotonic() - begun
        return first

    def turn(self, steps: int, expected_s: float = 0.0) -> Block:
        """Make a step that leads in, and so many that are timed."""
        return self._run(steps)

    def record(self, folder: str) -> None:
        """Record some steps into a folder."""
        self._run(1, folder)

    def pause(self, standing: bool) -> None:
        """It does nothing by itself."""

    def close(self) -> None:
        """Drop its copy of the state."""
        self._own = None

    def _run(self, steps: int, folder: str | None = None) -> Block:
        theirs = self._program.subjects.state()
        try:
            with ExitStack() as undo:
                undone_in_children(undo)
                if self._own is None:
                    theirs.copy().put()
                    block = self._first(steps, undo)
                else:
                    self._own.put()
                    block = self._next(steps, undo, folder)
                self._own = self._program.subjects.state()
        except Exception as error:
            raise _failed(error) from error
        finally:
            theirs.put()
        self.blocks.append(block)
        return block

    def _first(self, steps: int, undo: ExitStack) -> Block:
        seed(self._seed_shift, undo)
        losses = self._install(undo)
        for change in self._changes:
            change.arrived(self._program.subjects.optimizers)
        observer = Observer()
        observer.listen()
        before_ns = time.perf_counter_ns()
        self._program.step()
        wait_for_device()
        first_ns = time.perf_counter_ns() - before_ns
        block = self._block(steps, losses, steps - 1, before_ns)
        block.first_ns, block.facts = first_ns, observer.facts()
        block.facts.in_process = True
        for change in self._changes:
            change.warmed_up(undo)
        return self._counted(block)

    def _next(self, steps: int, undo: ExitStack, folder: str | None) -> Block:
        losses = self._install(undo)
        for change in self._changes:
            change.warmed_up(undo)
        if folder is not None:
            with record(folder=folder, **RECORDED) as recorder:
                for _ in range(sum(RECORDED.values())):
                    self._program.step()
                    recorder.step()
        self._program.step()
        wait_for_device()
        return self._counted(self._block(steps, losses, steps, time.perf_counter_ns()))

    def _install(self, undo: ExitStack) -> Losses:
        losses = Losses()
        for change in self._changes:
            change.install(undo, self._changes)
        losses.listen(undo)
        return losses

    def _block(self, steps: int, losses: Losses, left: int, begun_ns: int) -> Block:
        for _ in range(left):
            self._program.step()
        wait_for_device()
        ns = time.perf_counter_ns() - begun_ns
        return Block(steps=steps, ns=ns, losses=losses.take(), peak_bytes=peak_bytes())

    def _counted(self, block: Block) -> Block:
        block.applied = {change.name: change.applied for change in self._changes}
        block.refused = {change.name: change.refused for change in self._changes if change.refused}
        return block


class _Subjects:
    """The modules and optimizers that are there."""

    def __init__(self) -> None:
        self.modules = [module for model in models() for module in model.modules()]
        self.optimizers = optimizers()
        grouped = (w for each in self.optimizers for group in each.param_groups for w in group["params"])
        owned = (weight for module in self.modules for weight in module.parameters(recurse=False))
        self.weights = list({id(weight): weight for weight in (*owned, *grouped)}.values())

    def state(self) -> _State:
        """Their state as it is, which is not copied."""
        return _State(self)


class _State:
    """What steps change, as it was at some time."""

    def __init__(self, subjects: _Subjects) -> None:
        self.weights = [(weight, weight.data, weight.grad) for weight in subjects.weights]
        self.modules = [(each, dict(each._buffers), each._compiled_call_impl) for each in subjects.modules]
        self.optimizers = [(each, each.state, each.param_groups) for each in subjects.optimizers]
        self.random = random_states()

    def copy(self) -> _State:
        """A copy of all tensors."""
        copied = _State.__new__(_State)
        copied.weights = [(weight, data.clone(), _clone(grad)) for weight, data, grad in self.weights]
        copied.modules = [
            (each, {name: _clone(value) for name, value in buffers.items()}, compiled)
            for each, buffers, compiled in self.modules
        ]
        copied.optimizers = [
            (each, _cloned_state(state), [dict(group) for group in groups])
            for each, state, groups in self.optimizers
        ]
        copied.random = self.random
        return copied

    def put(self) -> None:
        """Let it be so again."""
        for weight, data, grad in self.weights:
            weight.grad = None  # one of another layout would not fit the data
            weight.data, weight.grad = data, grad
        for module, buffers, compiled in self.modules:
            module._buffers.update(buffers)
            module._compiled_call_impl = compiled
        for optimizer, state, groups in self.optimizers:
            optimizer.state, optimizer.param_groups = state, groups
        set_random_states(self.random)


def _clone(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else value


def _cloned_state(state: dict[Any, Any]) -> dict[Any, Any]:
    copied: dict[Any, Any] = defaultdict(dict)
    for weight, values in state.items():
        own = isinstance(values, dict)
        copied[weight] = {name: _clone(value) for name, value in values.items()} if own else _clone(values)
    return copied


def _failed(error: Exception) -> Failed:
    text = f"{type(error).__name__}: {error}"[:300]
    if "out of memory" in text.lower():
        return Failed("out-of-memory", text)
    if isinstance(error, StopIteration):
        return Failed("ended", "the step function raised StopIteration: its data has ended")
    return Failed("crashed", text)
