"""The losses of a program, taken where it calls backward, without waiting for the device."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

from profkit.trial.changes.wrapping import replace

__all__ = ["Losses"]


class Losses:
    """Keeps the root of each backward on its device until `take`.

    A root of several elements counts with its sum; one that `GradScaler.scale` has made counts as it was before.
    """

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._scaled: tuple[Any, Any] = (None, None)

    def listen(self, undo: ExitStack) -> None:
        """Hear of backward from now on."""
        import torch

        def around(original: Any) -> Any:
            def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
                self._keep(tensors)
                return original(tensors, *args, **kwargs)

            return backward

        def scaling(original: Any) -> Any:
            def scale(scaler: Any, outputs: Any) -> Any:
                scaled = original(scaler, outputs)
                self._scaled = scaled, outputs
                return scaled

            return scale

        replace(undo, torch.autograd, "backward", around)
        replace(undo, torch.amp.GradScaler, "scale", scaling)

    def _keep(self, tensors: Any) -> None:
        scaled, before = self._scaled
        if tensors is scaled and scaled is not None:
            tensors = before
        self._scaled = None, None
        for each in tensors if isinstance(tensors, tuple | list) else (tensors,):
            if each.requires_grad and (each.is_floating_point() or each.is_complex()):
                self._kept.append(each.detach().sum().abs() if each.is_complex() else each.detach().sum())
                return

    def take(self) -> list[float | None]:
        """The losses since the last time, None where one is no finite number."""
        import torch

        kept, self._kept = self._kept, []
        if not kept:
            return []
        home = kept[0].device
        values = torch.stack([each.double().to(home) for each in kept]).tolist()
        return [value if math.isfinite(value) else None for value in values]
