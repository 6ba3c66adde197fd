"""``torch.compile`` of the outermost modules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, ClassVar, Final

from profkit.recording.program_events import Kind, in_backward, listen, unlisten
from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.changes.precision import Bf16
from profkit.trial.messages import Facts

__all__ = ["Compile", "CompileWithGraphs"]

_NUMBERS: Final = itertools.count()
_MODELS: Final = 8
"""A program of more outermost modules calls its layers one by one: each is not worth a compiler's run."""


class Compile(Change):
    """The outermost modules of the first forward, compiled from their second call on.

    By then no hook is left on modules: one would break graphs where it is traced, and run wherever a graph breaks.
    """

    name = "compile"
    promise = Promise.DRAWS  # dropout in a compiled model draws its numbers otherwise
    kinds: tuple[Kind, ...] = (Kind.MODULE, Kind.BACKWARD)
    mode: ClassVar[str | None] = None
    kind_of = "compiler"

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._around: Callable[[], Any] = nullcontext
        self._outermost: dict[int, Any] = {}
        self._compiled: list[Any] = []

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a model."""
        if facts.compiled:
            return ALREADY
        return None if facts.modules else "no module of torch.nn runs"

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Hear which modules are outermost."""
        self._around = next((each.region for each in beside if isinstance(each, Bf16)), nullcontext)
        if self._compiled:
            return  # an earlier turn has compiled them, and they are kept with the weights
        listen(self)
        undo.callback(unlisten, self)
        undo.callback(self._take_back)

    def entered(self, kind: Kind, subject: Any) -> None:
        """A module runs, or backward begins: all that has run as outermost, with weights, is compiled for its next call."""
        if kind is Kind.BACKWARD or (self._depth == 0 and id(subject) in self._outermost):
            unlisten(self)
            for module in list(self._outermost.values())[:_MODELS]:
                if module._compiled_call_impl is None:
                    self._compile(module)
            return
        self._depth += 1
        if self._depth == 1 and not in_backward() and any(True for _ in subject.parameters()):
            self._outermost[id(subject)] = subject

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """A module is done."""
        if kind is Kind.MODULE:
            self._depth = max(0, self._depth - 1)

    def _compile(self, module: Any) -> None:
        import torch

        # Dynamo passes over frames of torch.nn, so over a Sequential's own call: it shall begin in this file.
        def call(*args: Any, **kwargs: Any) -> Any:
            return module._call_impl(*args, **kwargs)

        # It keeps what it has compiled by the code object, and gives up after a few for one.
        call.__code__ = call.__code__.replace(co_name=f"call_{next(_NUMBERS)}")
        compiled = torch.compile(call, mode=self.mode)
        around = self._around

        def run(*args: Any, **kwargs: Any) -> Any:
            with around():
                return compiled(*args, **kwargs)

        module._compiled_call_impl = run  # left out of copies and pickles by torch itself
        self._compiled.append(module)
        self.applied += 1

    def _take_back(self) -> None:
        for module in self._compiled:
            module._compiled_call_impl = None

    def patch(self, facts: Facts) -> list[str]:
        """After the model is made."""
        mode = f', mode="{self.mode}"' if self.mode else ""
        return [f"model = torch.compile(model{mode})  # once the model is on its device"]


class CompileWithGraphs(Compile):
    """The same, with its kernels launched as CUDA graphs."""

    name = "reduce-overhead"
    mode = "reduce-overhead"

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a GPU."""
        return super().obstacle(facts) if facts.cuda else "no GPU"
