"""What attention's scores take: they grow with the square of the sequence, and fused attention never stores them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.block_operators import BlockOperators, Call
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["fuse_attention_memory", "score_rows", "sequence_times", "shares_keys_in_fp32"]

_SOFTMAX = "aten::_softmax"
_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_REPEATS = "aten::clone"
_GROUPED = 5
"""Dimensions of repeated keys: batch, keys, queries that share one, sequence, width."""
_BYTES = (1, 2, 4)
"""Of one score: its mask, and itself in bf16 or fp32."""


def score_rows(program: MemoryProgram, operators: BlockOperators) -> NDArray[np.bool_]:
    """Which recorded rows are scores: as large as a softmax takes, made between the batched products around it.

    Their gradients are made by the backward of the same calls. Other layers may make results of the same size.
    """
    spans = _attention_spans(operators.calls)
    numbers = {number: size for first, last, size in spans for number in range(first, last + 1)}
    sizes = {
        call.sequence: numbers[number]
        for number, call in enumerate(operators.calls)
        if number in numbers and call.sequence >= 0
    }
    matching = []
    for number, requested in zip(operators.call.tolist(), program.requested[operators.rows], strict=True):
        call = operators.calls[number] if number >= 0 else None
        backward = call is not None and call.backward
        elements = sizes.get(call.sequence) if call is not None and backward else numbers.get(number)
        matching.append(elements is not None and int(requested) in [elements * each for each in _BYTES])
    return operators.spread(np.array(matching, float), len(program.requested), 0.0) > 0


def _attention_spans(calls: Sequence[Call]) -> list[tuple[int, int, int]]:
    """(first call, last call, elements of the scores) of each attention: from the product that makes them to the next."""
    spans, product, scores = [], -1, 0
    for number, call in enumerate(calls):
        if call.backward:
            continue
        if call.name in _PRODUCTS:
            if scores:
                spans.append((product, number - 1, scores))
            product, scores = number, 0
        elif call.name == _SOFTMAX and product >= 0:
            scores = call.sizes[0] if call.sizes else 0
    return spans


def fuse_attention_memory(operators: BlockOperators) -> MemoryChange:
    """Attention by scaled_dot_product_attention: no scores are kept, nor made."""
    return lambda program: program.without(program.like(_recorded_scores(program, operators)))


def shares_keys_in_fp32(program: MemoryProgram, operators: BlockOperators) -> bool:
    """Whether several queries share a key, in fp32: keys are repeated before they are multiplied.

    scaled_dot_product_attention has no fused kernel for that with ``enable_gqa``, and stores the scores
    (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash attention takes no fp32, memory-efficient no groups).
    """
    requested = program.recorded.requested[operators.rows].tolist()
    made = [
        (operators.calls[number], size)
        for number, size in zip(operators.call.tolist(), requested, strict=True)
        if number >= 0 and operators.calls[number].name == _REPEATS
    ]
    return any(
        not call.backward
        and len(call.shapes[0]) == _GROUPED
        and 0 < call.spans[0] < call.sizes[0]
        and size == 4 * math.prod(call.shapes[0])
        for call, size in made
        if call.spans
    )


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
