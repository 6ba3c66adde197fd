"""How convolutions and attention are computed."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from profkit.recording.program_events import Kind, listen, unlisten
from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.changes.wrapping import is_compiled
from profkit.trial.messages import Facts

__all__ = ["ChannelsLast", "CudnnBenchmark", "FusedAttention"]


class _EachModel(Change):
    """Something that is done once to each outermost module, when it first runs."""

    promise = Promise.EQUAL
    kinds: tuple[Kind, ...] = (Kind.MODULE, Kind.BACKWARD)

    def __init__(self) -> None:
        super().__init__()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._depth = 0
        self._undo = ExitStack()

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Hear of modules; those that were heard before are changed at once."""
        self._undo = undo
        for model in self._seen:
            self._change(model)
        if self._seen:
            return
        listen(self)
        undo.callback(unlisten, self)

    def entered(self, kind: Kind, subject: Any) -> None:
        """A module runs, or backward begins: by then all were seen, and hooks cost time."""
        if kind is Kind.BACKWARD:
            unlisten(self)
            return
        self._depth += 1
        if self._depth == 1 and subject not in self._seen:
            self._seen.add(subject)
            self._change(subject)

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """A module is done."""
        if kind is Kind.MODULE:
            self._depth = max(0, self._depth - 1)

    def warmed_up(self, undo: ExitStack) -> None:
        """Hear no more, since hooks cost time, unless that would let a compiled program be compiled again."""
        if self._seen and not any(is_compiled(each) for each in self._seen):
            unlisten(self)

    @abstractmethod
    def _change(self, model: Any) -> None:
        """Change a model that runs for the first time."""


class ChannelsLast(_EachModel):
    """Weights of convolutions in channels_last; what they compute follows them, from the first image on."""

    name = "channels-last"

    def obstacle(self, facts: Facts) -> str | None:
        """It takes convolutions of images."""
        if not facts.convolutions:
            return "no convolution of images"
        return ALREADY if facts.channels_last else None

    def _change(self, model: Any) -> None:
        import torch

        if any(weight.dim() == 4 for weight in model.parameters()):
            model.to(memory_format=torch.channels_last)
            self.applied += 1

    def patch(self, facts: Facts) -> list[str]:
        """Model and batches."""
        return [
            "model = model.to(memory_format=torch.channels_last)",
            "images = images.to(memory_format=torch.channels_last)  # each batch",
        ]


class CudnnBenchmark(Change):
    """cuDNN times its algorithms and takes the fastest."""

    name = "cudnn-benchmark"
    promise = Promise.EQUAL

    def obstacle(self, facts: Facts) -> str | None:
        """It takes convolutions on a GPU."""
        if not facts.cuda:
            return "no GPU"
        if not facts.convolutions:
            return "no convolution"
        return ALREADY if facts.cudnn_benchmark else None

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Set torch's switch."""
        from torch.backends import cudnn

        undo.callback(setattr, cudnn, "benchmark", cudnn.benchmark)
        cudnn.benchmark = True

    def warmed_up(self, undo: ExitStack) -> None:
        """See whether the switch is still set."""
        from torch.backends import cudnn

        self.applied = int(cudnn.benchmark)

    def patch(self, facts: Facts) -> list[str]:
        """One line at the top."""
        return ["torch.backends.cudnn.benchmark = True"]


class FusedAttention(_EachModel):
    """scaled_dot_product_attention in models that have a switch for it, as those of transformers."""

    name = "fused-attention"

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a model with such a switch."""
        return None if facts.slow_attention else "no model with a switch for its attention runs, or it is set"

    def _change(self, model: Any) -> None:
        for module in model.modules():
            config = getattr(module, "config", None)
            if getattr(config, "_attn_implementation", None) == "eager" and hasattr(
                module, "set_attn_implementation"
            ):
                self._switch(module)

    def _switch(self, module: Any) -> None:
        """Where a library knows the model's attention as operators only, it raises, or warns and does nothing."""
        try:
            module.set_attn_implementation("sdpa")
        except (ValueError, ImportError) as error:
            self.refused = str(error)
            return
        if module.config._attn_implementation == "eager":
            self.refused = f"{type(module).__name__} computes its attention as separate operators only"
            return
        self._undo.callback(module.set_attn_implementation, "eager")
        self.applied += 1

    def patch(self, facts: Facts) -> list[str]:
        """After the model is made."""
        return ['model.set_attn_implementation("sdpa")']
