"""fp16 with a scaled loss, where bf16 is not to be had."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from profkit.recording.program_events import Kind, listen, unlisten
from profkit.trial.changes.base import ALREADY, Change
from profkit.trial.changes.precision import AMPERE, Bf16
from profkit.trial.changes.wrapping import replace
from profkit.trial.messages import Facts
from profkit.trial.objects import optimizers

__all__ = ["Fp16"]

_VOLTA: Final = (7, 0)
"""fp16 in Tensor Cores came with compute capability 7.0 (CUDA C++ programming guide, table of features)."""
_FIRST_SCALE: Final = 2.0**16
_GROWTH: Final = 2.0
_BACKOFF: Final = 0.5
_GROWS_AFTER: Final = 2000
"""As `torch.amp.GradScaler` by default."""


class Fp16(Bf16):
    """Autocast to fp16, and a scaled loss, for GPUs that do not compute in bf16.

    Gradients are unscaled as soon as backward has ended, so that what reads or clips them sees what it always did. A step
    with infinite gradients is left out, and lowers the scale.
    """

    name = "fp16"

    def __init__(self) -> None:
        super().__init__()
        self._optimizers: dict[int, Any] = {}
        self._scale: Any = None
        self._growth: Any = None
        self._infinite: Any = None

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a GPU that is too old for bf16, and has Tensor Cores."""
        if not facts.cuda:
            return "no GPU"
        capability = facts.capability or (0, 0)
        if capability >= AMPERE:
            return "bf16 is as fast here, and needs no scaler"
        if capability < _VOLTA:
            return "this GPU has no Tensor Cores"
        if facts.half or facts.autocast:
            return ALREADY
        return None if facts.modules else "no module of torch.nn runs"

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Scale what backward is called on, and look at the gradients before each update."""
        import torch

        super().install(undo, beside)

        def scaling(original: Any) -> Any:
            def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
                roots = tensors if isinstance(tensors, tuple | list) else (tensors,)
                self._prepare(roots[0].device)
                if gradients := self._gradients():
                    torch._foreach_mul_(gradients, self._scale)
                original([each * self._scale for each in roots], *args, **kwargs)
                self._unscale(self._gradients())

            return backward

        replace(undo, torch.autograd, "backward", scaling)
        self._updates = _Updates(self)
        listen(self._updates)
        undo.callback(unlisten, self._updates)

    def _prepare(self, device: Any) -> None:
        import torch

        if self._scale is None:
            self._optimizers = {id(each): each for each in optimizers()}
            self._scale = torch.full((), _FIRST_SCALE, device=device)
            self._growth = torch.zeros((), dtype=torch.int32, device=device)
            self._infinite = torch.zeros((), device=device)

    def _unscale(self, gradients: list[Any]) -> None:
        import torch

        if gradients:
            torch._amp_foreach_non_finite_check_and_unscale_(
                gradients, self._infinite, self._scale.double().reciprocal().float()
            )

    def _gradients(self) -> list[Any]:
        groups = (group for each in self._optimizers.values() for group in each.param_groups)
        return [weight.grad for group in groups for weight in group["params"] if weight.grad is not None]

    def leave_out_infinite(self, optimizer: Any) -> None:
        """Before an update: without gradients it does nothing."""
        self._optimizers[id(optimizer)] = optimizer
        if self._infinite is not None and self._infinite.item():
            for weight in (each for group in optimizer.param_groups for each in group["params"]):
                weight.grad = None

    def updated(self) -> None:
        """After it: another scale."""
        import torch

        if self._scale is not None:
            torch._amp_update_scale_(
                self._scale, self._growth, self._infinite, _GROWTH, _BACKOFF, _GROWS_AFTER
            )
            self._infinite.zero_()

    def _autocast(self) -> Any:
        import torch

        return torch.autocast(self._device, dtype=torch.float16)

    def patch(self, facts: Facts) -> list[str]:
        """Around forward and loss, and at the update."""
        return [
            'scaler = torch.amp.GradScaler("cuda")  # once',
            'with torch.autocast("cuda", dtype=torch.float16):  # around forward and loss, not backward',
            "scaler.scale(loss).backward()",
            "scaler.unscale_(optimizer)  # before gradients are clipped",
            "scaler.step(optimizer); scaler.update()  # in place of optimizer.step()",
        ]


class _Updates:
    """Hears where an optimizer updates."""

    kinds: tuple[Kind, ...] = (Kind.OPTIMIZER,)

    def __init__(self, change: Fp16) -> None:
        self._change = change

    def entered(self, kind: Kind, subject: Any) -> None:
        """The gradients are complete."""
        self._change.leave_out_infinite(subject)

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """They were used."""
        self._change.updated()
