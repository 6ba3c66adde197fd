"""What attention's scores take: they grow with the square of the sequence, and fused attention never stores them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.block_operators import BlockOperators, Call
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["fuse_attention_memory", "score_rows", "sequence_times"]

_SOFTMAX = "aten::_softmax"
_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_BYTES = (1, 2, 4)
"""Of one score: its mask, and itself in bf16 or fp32."""


def score_rows(program: MemoryProgram, operators: BlockOperators) -> NDArray[np.bool_]:
    """Which recorded rows are as large as the scores of some attention: of a softmax between two batched products."""
    scores: set[int] = set()
    product = False
    for call in operators.calls:
        if call.name in _PRODUCTS:
            product = True
        elif call.name == _SOFTMAX and not call.backward and product:
            scores.update(size for size in call.sizes[:1] if size)
            product = False
    matching = [
        number >= 0 and _of_scores(operators.calls[number], int(size), scores)
        for number, size in zip(operators.call.tolist(), program.requested[operators.rows], strict=True)
    ]
    return operators.spread(np.array(matching, float), len(program.requested), 0.0) > 0


def _of_scores(call: Call, size: int, scores: set[int]) -> bool:
    """Whether a result has one of the sizes, of an operator that takes them, or of the product that makes them."""
    own = scores if call.name in _PRODUCTS else scores.intersection(call.sizes)
    return any(size == elements * each for elements in own for each in _BYTES)


def fuse_attention_memory(operators: BlockOperators) -> MemoryChange:
    """Attention by scaled_dot_product_attention: no scores are kept, nor made."""
    return lambda program: program.without(program.like(_recorded_scores(program, operators)))


def sequence_times(factor: float, operators: BlockOperators | None) -> MemoryChange:
    """The sequence so many times as long: scores grow with the square."""

    def change(program: MemoryProgram) -> MemoryProgram:
        longer = program.scaled(program.batched, factor)
        if operators is None:
            return longer
        return longer.scaled(program.batched & program.like(_recorded_scores(program, operators)), factor)

    return change


def _recorded_scores(program: MemoryProgram, operators: BlockOperators) -> NDArray[np.bool_]:
    return score_rows(program.recorded, operators)
