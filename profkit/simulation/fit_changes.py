"""What can be asked of `profkit fit`: each change of the blocks, with what it does to the time and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.attention_memory import (
    fuse_attention_memory,
    sequence_times,
    shares_keys_in_fp32,
)
from profkit.simulation.autocast_memory import autocast_memory
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.inference_memory import infer_only
from profkit.simulation.layer_times import LayerTimes, layer_times
from profkit.simulation.loss_memory import find_loss, fuse_loss_memory
from profkit.simulation.memory_changes import (
    MemoryChange,
    accumulate_over,
    batch_times,
    fuse_optimizer,
    keep_gradients,
    offload_optimizer,
    optimizer_kind,
)
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.predict import Change
from profkit.simulation.recompute_memory import find_segments, recompute_memory
from profkit.simulation.registry import CHANGES
from profkit.simulation.shard_memory import shard_memory

__all__ = ["FitChanges", "PricedChange", "in_steps_alike"]


@dataclass(frozen=True)
class PricedChange:
    """One change."""

    name: str
    value: float | str | None
    memory: MemoryChange
    time: tuple[Change, ...]
    slowest: tuple[Change, ...] = ()
    """The same where the host takes as long as it was seen to at most, for the upper end."""

    @property
    def unsure(self) -> float:
        """How far the peak may be off, as a share of it."""
        return _UNSURE[self.name][0]

    @property
    def unsure_reserved(self) -> float:
        """The same of reserved memory."""
        return _UNSURE[self.name][1]


_UNSURE: Final = {
    "bf16": (0.126, 0.32),
    "fused-attention": (0.042, 0.05),
    "fused-loss": (0.06, 0.12),
    "recompute": (0.15, 0.21),
    "optimizer": (0.02, 0.09),
    "fused-optimizer": (0.02, 0.11),
    "batch": (0.027, 0.057),
    "shard": (0.105, 0.17),
    "sequence": (0.04, 0.062),
    "accumulate": (0.05, 0.14),
    "keep-gradients": (0.04, 0.11),
    "offload-optimizer": (0.04, 0.07),
    "inference": (0.20, 0.30),
}
"""Of allocated and of reserved memory: reports/memory/widths.py, by leaving out one model at a time of twenty. What
recomputes was mended with these rows in view, and has half as much again: four later rows of other models were within 1 %. For bf16
that was not enough: 29 of 31 rows of 21 models lie within what is here, as they were predicted (reports/memory). So do
all 39 shards and 4 fused losses. Where there are six rows or fewer it is 4 and 5 % at least."""


@dataclass(frozen=True, kw_only=True)
class FitChanges:
    """What is asked for; by default nothing changes."""

    batch: float = 1.0
    sequence: float = 1.0
    bf16: bool = False
    recompute: str | None = None
    """``all``, the path of a phase, a part of the name of the file or function that calls the layers, or how many layers."""
    fused_attention: bool = False
    fused_loss: bool = False
    """Cross entropy over a vocabulary in chunks: no logits are stored."""
    optimizer: str | None = None
    """``sgd``, ``adam`` or ``adam8bit``."""
    fused_optimizer: bool = False
    ranks: int = 1
    shard: str | None = None
    """``zero1``, ``zero2`` or ``zero3``, over ``ranks``."""
    accumulate: int = 1
    """In how many parts the batch goes through forward and backward."""
    keep_gradients: bool = False
    """``zero_grad(set_to_none=False)``."""
    offload_optimizer: bool = False
    inference: bool = False

    def without_operators(self) -> list[str]:
        """The changes that cannot be made without the operators of a trace."""
        asked = {
            "bf16": self.bf16,
            "fused-attention": self.fused_attention,
            "fused-loss": self.fused_loss,
            "inference": self.inference,
        }
        return [name for name, wanted in asked.items() if wanted]

    def stores_scores(self, program: MemoryProgram, operators: BlockOperators | None) -> bool:
        """Whether fused attention is asked for, and changes nothing."""
        if not self.fused_attention or self.bf16 or operators is None:
            return False
        return shares_keys_in_fp32(program, operators)

    @property
    def work(self) -> FitChanges:
        """What is asked of forward and backward alone: these changes are made first, and cost the most to make."""
        return FitChanges(
            bf16=self.bf16,
            fused_attention=self.fused_attention,
            fused_loss=self.fused_loss,
            recompute=self.recompute,
        )

    def priced(self, program: MemoryProgram, operators: BlockOperators | None) -> list[PricedChange]:
        """The changes in the order in which they are made."""
        with_operators = [] if operators is None else self._of_operators(program, operators)
        work = [*with_operators, *self._of_layers(program), *self._of_optimizer(operators)]
        found = [*work, *self._of_batch(operators)]
        if operators is not None and self.inference:
            inferred = in_steps_alike(infer_only(operators), operators)
            found.append(PricedChange("inference", None, inferred, (_forward_only,)))
        return found

    def _of_operators(self, program: MemoryProgram, operators: BlockOperators) -> Iterator[PricedChange]:
        if self.bf16:
            yield PricedChange("bf16", None, partial(_in_bf16, operators), (CHANGES["bf16"].change,))
        if self.fused_attention and not self.stores_scores(program, operators):
            fused = in_steps_alike(fuse_attention_memory(operators), operators)
            yield PricedChange("fused-attention", None, fused, (CHANGES["fused-attention"].change,))
        elif self.fused_attention:
            yield PricedChange("fused-attention", None, lambda unchanged: unchanged, ())
        if self.fused_loss and (loss := find_loss(operators)) is not None:
            chunked = in_steps_alike(fuse_loss_memory(loss, operators), operators)
            yield PricedChange("fused-loss", None, chunked, ())

    def _of_layers(self, program: MemoryProgram) -> Iterator[PricedChange]:
        if self.recompute is not None:
            yield _recomputed(program, self.recompute)

    def _of_optimizer(self, operators: BlockOperators | None) -> Iterator[PricedChange]:
        if self.optimizer is not None:
            foreach = not self.fused_optimizer and not self.offload_optimizer
            kind = optimizer_kind(self.optimizer, foreach=foreach)
            yield PricedChange("optimizer", self.optimizer, kind, ())
        if self.fused_optimizer:
            yield PricedChange("fused-optimizer", None, fuse_optimizer, (CHANGES["fused-optimizer"].change,))
        if self.shard is not None and self.ranks > 1:
            yield PricedChange("shard", self.shard, shard_memory(self.ranks, self.shard, operators), ())
        if self.offload_optimizer:
            yield PricedChange("offload-optimizer", None, offload_optimizer, ())
        if self.keep_gradients:
            yield PricedChange("keep-gradients", None, keep_gradients, ())

    def _of_batch(self, operators: BlockOperators | None) -> Iterator[PricedChange]:
        if self.sequence != 1:
            longer = sequence_times(self.sequence, operators)
            yield PricedChange("sequence", self.sequence, longer, (_longer(self.sequence),))
        if self.batch != 1:
            slower = _longer(self.batch**_BATCH_GROWTH)
            yield PricedChange("batch", self.batch, batch_times(self.batch), (slower,))
        if self.accumulate > 1:
            parts, time = self.accumulate, (_launched(self.accumulate),)
            yield PricedChange("accumulate", parts, accumulate_over(parts), time)


@lru_cache(maxsize=1)
def _in_bf16(operators: BlockOperators, program: MemoryProgram) -> MemoryProgram:
    """It is the first change wherever it is made, and costs the most."""
    return in_steps_alike(autocast_memory(operators), operators)(program)


@lru_cache(maxsize=4)
def _recomputed(program: MemoryProgram, which: str) -> PricedChange:
    segments = find_segments(program, which)
    layers, memory = layer_times(program, segments), recompute_memory(segments)
    times = (_forward_again(layers),), (_forward_again(layers, _MOST_OF_A_FORWARD),)
    return PricedChange("recompute", which, memory, *times)


def in_steps_alike(change: MemoryChange, operators: BlockOperators) -> MemoryChange:
    """A change that needs the operators of one step: other steps than those like it cannot be changed, and are left out."""

    def changed(program: MemoryProgram) -> MemoryProgram:
        left_out = np.zeros(len(program.recorded.requested), bool)
        left_out[operators.passing] = True
        return change(program.without(program.like(left_out)))

    return changed


_BATCH_GROWTH: Final = 0.94
"""The power of the batch by which kernels grow: larger ones use the GPU better (steps of twelve models with two to four times
the batch on an H100 and an H200 grew by 4 % less in the median than their batch, for each doubling)."""
_OF_A_LAYER_NS: Final = 270_000.0
_OF_A_TENSOR_NS: Final = 27_000.0
"""Host time of torch.utils.checkpoint beyond the second forward: for a layer, and for each tensor that it keeps, which hooks
pack, drop and unpack (blocks of one to six convolutions with norm and relu on a CPU, torch 2.11)."""
_MOST_OF_A_FORWARD: Final = 2.7
"""The same as a multiple of the layers' forward: 1.6 to 2.7 in RegNet, ResNet, Swin, ConvNeXt, ViT and EfficientNet with tiny
inputs on a CPU, torch 2.13. Bare layers spread further: reports/memory/checkpoint_hooks.py."""


def _longer(factor: float) -> Change:
    """Kernels of forward and backward take so many times as long; the optimizer does not know of the batch."""

    def change(edited: EditedStep) -> None:
        work = ~edited.facts.optimizer & ~edited.facts.zeroing
        edited.duration_ns = np.where(work, edited.duration_ns * factor, edited.duration_ns)

    return change


def _launched(times: int) -> Change:
    """Forward and backward are launched so many times, each time for a part of their work."""

    def change(edited: EditedStep) -> None:
        edited.scale_host(~edited.facts.optimizer & ~edited.facts.zeroing, times)

    return change


def _forward_only(edited: EditedStep) -> None:
    facts = edited.facts
    edited.drop(facts.backward | facts.optimizer | facts.zeroing)


def _forward_again(layers: LayerTimes, hooks: float = 0.0) -> Change:
    """Some layers of the forward pass run twice; where in the step does not matter for its length.

    The hooks take so many times the layers' forward at least.
    """

    def change(edited: EditedStep) -> None:
        facts = edited.facts
        launched = facts.view.launches.time_ns[facts.program.row].astype(float)
        forward = ~facts.backward & ~facts.optimizer & ~facts.zeroing
        if facts.backward.any():
            forward &= launched < launched[facts.backward].min()
        if not forward.any():
            return
        epoch = facts.view.trace.unix_epoch_ns
        again = forward & _within(launched + (epoch or 0), layers.unix_ns)
        if not again.any():  # another execution, or a clock that is not known
            first, last = launched[forward].min(), launched[forward].max()
            again = forward & _within((launched - first) / max(last - first, 1.0), layers.shares)
        edited.duration_ns = np.where(again, edited.duration_ns * 2, edited.duration_ns)
        told = _OF_A_LAYER_NS * len(layers.shares) + _OF_A_TENSOR_NS * layers.tensors
        tokens = np.unique(facts.token[again & edited.alive])
        edited.scale_host(again, 2.0 + max(told / max(edited.host_ns(tokens), 1.0), hooks))

    return change


def _within(places: NDArray[np.float64], spans: Sequence[tuple[float, float]]) -> NDArray[np.bool_]:
    found = np.zeros(len(places), bool)
    for since, until in spans:
        found |= (places >= since) & (places <= until)
    return found
