"""What a loss over a large vocabulary takes: a fused one makes the logits in chunks, and stores none.

As Liger's fused linear cross entropy does (LigerFusedLinearCrossEntropyFunction): the forward pass makes the gradients too, so
that of all tensors of the logits' size one chunk is left, about as large as the hidden states, and the gradient of the
last layer's weight is there from the forward pass on.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from profkit.memory.categories import GRADIENT
from profkit.simulation.block_operators import BlockOperators, Call
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["Loss", "find_loss", "fuse_loss_memory"]

_LOSS = "aten::_log_softmax"
_PRODUCT = re.compile(r"aten::(?:addmm|mm|bmm)\b")
_BYTES = (2, 4)
_SHIFTED = 0.9
"""A copy of the logits may leave out the last token of each sequence."""


@dataclass(frozen=True)
class Loss:
    """The last product and the loss behind it, in the order of the step's calls."""

    product: int
    softmax: int
    logits: int
    """Elements."""
    width: int
    vocabulary: int

    @property
    def left(self) -> float:
        """The share of a tensor of logits that a chunk is."""
        return self.width / self.vocabulary


def find_loss(operators: BlockOperators) -> Loss | None:
    """The cross entropy over a vocabulary that is larger than the layers are wide; None where there is none."""
    for number, call in enumerate(operators.calls):
        if call.backward or call.name != _LOSS or not call.shapes or not call.shapes[0]:
            continue
        logits, vocabulary = call.sizes[0], call.shapes[0][-1]
        for product in range(number - 1, -1, -1):
            width = _width(operators.calls[product], logits, vocabulary)
            if width and width < vocabulary:
                return Loss(product, number, logits, width, vocabulary)
    return None


def _width(call: Call, logits: int, vocabulary: int) -> int:
    """The inner dimension of a product that makes logits; 0 for another call."""
    shapes = [shape for shape in call.shapes if len(shape) >= 2]
    if call.backward or not _PRODUCT.match(call.name) or len(shapes) < 2 or shapes[-1][-1] != vocabulary:
        return 0
    made = math.prod(shapes[-2][:-1]) * vocabulary
    return shapes[-2][-1] if made >= logits > _SHIFTED * made else 0


def fuse_loss_memory(loss: Loss, operators: BlockOperators) -> MemoryChange:
    """The loss by a fused kernel: tensors of logits become chunks."""

    def change(program: MemoryProgram) -> MemoryProgram:
        recorded = program.recorded
        between = range(loss.product, len(operators.calls))
        sequences = {operators.calls[n].sequence for n in between if not operators.calls[n].backward}
        chunked = [
            number >= 0
            and (operators.calls[number].sequence in sequences if operators.calls[number].backward else number in between)
            and any(_SHIFTED * each * loss.logits < size <= each * loss.logits / _SHIFTED for each in _BYTES)
            for number, size in zip(
                operators.call.tolist(), recorded.requested[operators.rows].tolist(), strict=True
            )
        ]  # fmt: skip
        rows = operators.spread(np.array(chunked, float), len(recorded.requested), 0.0) > 0
        return _with_early_gradient(program.scaled(program.like(rows), loss.left), loss, operators)

    return change


def _with_early_gradient(program: MemoryProgram, loss: Loss, operators: BlockOperators) -> MemoryProgram:
    """The gradient of the last layer's weight, from the forward pass to where its backward makes it now."""
    product = operators.calls[loss.product]
    ends = [c.last for c in operators.calls if c.backward and c.sequence == product.sequence >= 0]
    if not ends:
        return program
    origin = int(program.recorded.allocated[operators.rows[0]])
    size = np.array([loss.width * loss.vocabulary * 4])
    for rows in operators.repeats:
        shift = int(program.recorded.allocated[rows[0]]) - origin
        program = program.with_rows(
            rows[:1],
            requested=size,
            rest=np.zeros(1, np.int64),
            allocated=np.array([product.first + shift]),
            freed=np.array([ends[-1] + shift]),
            reusable=np.array([ends[-1] + shift]),
            batched=np.zeros(1, bool),
            maybe_batched=np.zeros(1, bool),
            use=np.array([GRADIENT]),
            source=np.array([-1]),
        )
    return program
