"""Fewer bits: TF32 and autocast."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from profkit.recording.program_events import Kind, in_backward, listen, unlisten
from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.changes.wrapping import is_compiled
from profkit.trial.messages import Facts

__all__ = ["AMPERE", "Bf16", "Tf32"]

AMPERE: Final = (8, 0)
"""TF32 and bf16 in Tensor Cores came with compute capability 8.0 (CUDA C++ programming guide, table of features)."""


class Tf32(Change):
    """Products of fp32 matrices in TF32."""

    name = "tf32"
    promise = Promise.PRECISION

    def obstacle(self, facts: Facts) -> str | None:
        """It takes Tensor Cores that know it, and fp32."""
        if not facts.cuda:
            return "no GPU"
        if (facts.capability or (0, 0)) < AMPERE:
            return "this GPU has no TF32"
        if facts.half:
            return "the weights are not in fp32"
        return ALREADY if facts.tf32 else None

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Set torch's switch. A program that sets it back is measured as it is."""
        import torch

        undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("high")
        undo.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
        torch.backends.cudnn.allow_tf32 = True

    def warmed_up(self, undo: ExitStack) -> None:
        """See whether the switch is still set."""
        import torch

        self.applied = int(torch.get_float32_matmul_precision() != "highest")

    def patch(self, facts: Facts) -> list[str]:
        """One line at the top."""
        return ['torch.set_float32_matmul_precision("high")']


class Bf16(Change):
    """Autocast around the outermost module and around the loss functions."""

    name = "bf16"
    promise = Promise.PRECISION
    kind_of = "autocast"
    kinds: tuple[Kind, ...] = (Kind.MODULE, Kind.LOSS)

    def __init__(self) -> None:
        super().__init__()
        self._device = "cpu"
        self._open: list[Any] = []
        self._outermost: weakref.WeakSet[Any] = weakref.WeakSet()
        self._compiles = self._own = False
        self._thread = threading.get_ident()

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a device that computes in bf16."""
        if facts.half or facts.autocast:
            return ALREADY
        if facts.cuda and (facts.capability or (0, 0)) < AMPERE:
            return "this GPU does not compute in bf16"
        if not facts.cuda and not facts.cpu_bf16:
            return "this CPU does not compute in bf16"
        return None if facts.modules else "no module of torch.nn runs"

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Hear where modules begin and end."""
        import torch

        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._compiles = any(each.kind_of == "compiler" for each in beside)
        if self._compiles:
            self.kinds = (Kind.MODULE, Kind.LOSS, Kind.BACKWARD)
        if self._outermost:
            self.kinds = (Kind.LOSS,)  # the modules keep what an earlier turn has put around them
        listen(self)
        undo.callback(unlisten, self)

    def warmed_up(self, undo: ExitStack) -> None:
        """Hear of the outermost modules only: hooks on each layer cost what a step that the host paces would lose.

        Not where a module is compiled, which would be compiled again.
        """
        models = list(self._outermost)
        if self._open or self._compiles or not models or any(is_compiled(each) for each in models):
            return
        self._hear_losses_only()
        for module in models:
            module._compiled_call_impl = self._within(
                module
            )  # left out of copies and pickles by torch itself
            undo.callback(setattr, module, "_compiled_call_impl", None)

    def _hear_losses_only(self) -> None:
        unlisten(self)
        self.kinds = (Kind.LOSS,)
        listen(self)

    def _within(self, module: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.region():
                return module._call_impl(*args, **kwargs)

        return run

    def entered(self, kind: Kind, subject: Any) -> None:
        """Something begins: the outermost opens autocast."""
        if kind is Kind.BACKWARD:
            if (
                not self._open
            ):  # what is compiled beside it calls `region`, and shall not be traced with hooks
                self._hear_losses_only()
            return
        if threading.get_ident() != self._thread or in_backward():
            return
        region = None
        if not self._open and not self._has_own(subject):
            if kind is Kind.MODULE and subject is not None:
                self._outermost.add(subject)
            region = self._autocast()
            region.__enter__()
            self.applied += 1
        self._open.append(region)

    def _has_own(self, subject: Any) -> bool:
        """Whether the program computes in fewer bits itself: within autocast, or by the type of its weights."""
        import torch

        weights = list(subject.parameters()) if isinstance(subject, torch.nn.Module) else []
        half = bool(weights) and all(each.dtype in (torch.bfloat16, torch.float16) for each in weights)
        self._own = self._own or half or torch.is_autocast_enabled(self._device)
        return self._own

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """And closes it."""
        if kind is Kind.BACKWARD:
            return
        if threading.get_ident() == self._thread and not in_backward() and self._open:
            region = self._open.pop()
            if region is not None:
                region.__exit__(None, None, None)

    @contextmanager
    def region(self) -> Iterator[None]:
        """Around a call whose own hooks are not heard, since it is compiled."""
        self.entered(Kind.MODULE, None)
        try:
            yield
        finally:
            self.left(Kind.MODULE, None, None)

    def _autocast(self) -> Any:
        import torch

        return torch.autocast(self._device, dtype=torch.bfloat16)

    def patch(self, facts: Facts) -> list[str]:
        """Around forward and loss."""
        device = "cuda" if facts.cuda else "cpu"
        return [
            f'with torch.autocast("{device}", dtype=torch.bfloat16):  # around forward and loss, not backward',
        ]
