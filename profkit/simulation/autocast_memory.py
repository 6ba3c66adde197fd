"""What autocast to bf16 does to a step's memory: each block after the type of what makes it and of what keeps it.

Autocast runs matrix products in bf16, a list of operators in fp32, and all others in the type of what they get. What a
forward pass keeps for backward is what operators *save*: a product saves its inputs in bf16, an operator of the fp32
list saves them in fp32, a softmax saves its result. So the size of a kept block follows from the operator that saves
it, and what feeds it is converted. Weights stay in fp32, and each one that a product takes is converted once and kept
until the product's backward (torch/csrc/autograd and aten/src/ATen/autocast_mode.h, the same from torch 2.0 to 2.13).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import ACTIVATION, PARAMETER, TEMPORARY
from profkit.simulation.block_operators import BlockOperators, Call
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["autocast_memory", "under_autocast"]

_PRODUCT: Final = re.compile(
    r"aten::(?:_?addmm|mm|bmm|baddbmm|addbmm|addmv|mv|cudnn_convolution\w*|_?convolution|_conv_depthwise\w*|slow_conv\w*|_slow_conv\w*|miopen_convolution|"
    r"_thnn_\w+|_cudnn_rnn|_scaled_dot_product_\w+|_flash_attention_\w+|_efficient_attention_\w+|prelu)\b"
)
_IN_FP32: Final = re.compile(
    r"aten::(?:native_layer_norm|native_group_norm|_softmax|_log_softmax|pow|exp|log\w*|rsqrt|reciprocal|nll_loss\w*|sum|"
    r"prod|cumsum|cumprod|norm|linalg_vector_norm|smooth_l1_loss|mse_loss|l1_loss|kl_div|binary_cross_entropy\w*|"
    r"softplus|erfinv|acos|asin|cosh|sinh|tan|renorm|dist|cdist|_rms_norm\w*|_fused_rms_norm\w*)\b"
)
"""Operators of autocast's fp32 list (aten/src/ATen/autocast_mode.h), by the names of what they call."""
_WIDENS: Final = re.compile(r"aten::(?:_softmax|_log_softmax)\b")
"""Operators of that list that get their result's type as an argument (``fp32_set_opt_dtype``): their input is not converted."""
_TAKES_TYPE: Final = frozenset({"aten::softmax", "aten::log_softmax"})
_SAVES_RESULT: Final = re.compile(
    r"aten::(?:_softmax|_log_softmax|tanh|sigmoid|exp|sqrt|rsqrt|relu_?|clamp_min_?|reciprocal|elu)\b"
)
_SAVES_INPUTS: Final = re.compile(
    r"aten::(?:mul|div|pow|gelu|silu|native_layer_norm|native_group_norm|cudnn_batch_norm|native_batch_norm|"
    r"max_pool\w*|hardtanh\w*|hardswish|leaky_relu|mish|sin|cos|where|var\w*|linalg_vector_norm|_rms_norm\w*|"
    r"_fused_rms_norm\w*)\b"
)
_PROMOTES: Final = re.compile(r"aten::(?:add|sub|rsub|mul|div|addcmul|addcdiv|where|maximum|minimum|lerp)\b")
"""Operators whose result has the wider of their inputs' types."""
_ATTENTION: Final = re.compile(r"aten::(?:_softmax|bmm|baddbmm|_scaled_dot_product_\w+)\b")
_NORM: Final = re.compile(r"aten::(?:native_layer_norm|native_group_norm|_fused_rms_norm|_rms_norm)\b")
_POOL: Final = re.compile(r"aten::max_pool\w*_with_indices\b")
_MOSTLY_HALVED: Final = 0.3
"""Conversions for each result of a product: autocast converts each product's weight at least, unless several products share one."""
_HALF: Final = 0.5
_FP32_BYTES: Final = 4


def autocast_memory(operators: BlockOperators) -> MemoryChange:
    """Forward and loss under autocast to bf16, with the operators that made the blocks."""

    def change(program: MemoryProgram) -> MemoryProgram:
        if under_autocast(program.recorded, operators):
            return program
        forward = _Forward(program, operators)
        forward.run()
        factors = forward.factors()
        scale = operators.spread(factors, len(program.requested), 1.0)
        changed = program.scaled_by(scale)
        return forward.with_casts(changed)

    return change


def under_autocast(program: MemoryProgram, operators: BlockOperators) -> bool:
    """Whether the recorded step converts what its products take to 16 bits already."""
    requested = program.requested[operators.rows].tolist()
    products = halved = 0
    for number, size in zip(operators.call.tolist(), requested, strict=True):
        call = operators.calls[number] if number >= 0 else None
        if call is None or call.backward:
            continue
        products += bool(_PRODUCT.match(call.name))
        halved += call.name == "aten::_to_copy" and size == 2 * max(call.sizes, default=0) > 0
    return halved > _MOSTLY_HALVED * products


def _is_norm(tensor: _Tensor) -> bool:
    return bool(_NORM.match(tensor.call.name))


@dataclass
class _Tensor:
    """A result of the forward pass."""

    row: int
    """Its index among the step's rows."""
    elements: int
    half: bool
    call: Call
    taken_by: list[Call] = field(default_factory=list)


class _Forward:
    """The step's operators in order, with the type of each result under autocast."""

    def __init__(self, program: MemoryProgram, operators: BlockOperators) -> None:
        self._program, self._operators = program, operators
        self._rows = operators.rows
        self._tensors: dict[int, list[_Tensor]] = {}
        """By elements, oldest first."""
        self._all: list[_Tensor] = []
        self._by_sequence: dict[int, bool] = {}
        """Whether the gradient of a forward call's input is in bf16, by autograd's number."""
        self._casts: list[tuple[int, int, int, int]] = []
        """(bytes, state in which it begins, state in which it ends, the step's row that is converted or -1)."""
        self._ends = self._backward_of()
        self._last_attention = -1
        self._raised: dict[int, int] = {}
        """When a tensor of so many elements was last asked for in some type: in the program's own code that is fp32."""
        stays = (program.use == PARAMETER) | (program.before & (program.freed >= program.end))
        self._stays = frozenset((program.requested[stays & (program.requested > 0)] // _FP32_BYTES).tolist())
        """Elements of parameters and buffers, which autocast leaves in fp32."""

    def _backward_of(self) -> dict[int, int]:
        """The last state of the backward of each forward call, by autograd's number."""
        return {
            call.sequence: call.last for call in self._operators.calls if call.backward and call.sequence >= 0
        }

    def run(self) -> None:
        """Follow the forward calls of the step."""
        made: dict[int, list[int]] = {}
        for index, call in enumerate(self._operators.call.tolist()):
            made.setdefault(call, []).append(index)
        first = int(self._program.allocated[self._rows[0]])
        last = int(self._program.allocated[self._rows[-1]])
        before = ""
        for number, call in enumerate(self._operators.calls):
            if call.backward or not first <= call.first <= last:
                continue
            if call.name == "aten::to" and before not in _TAKES_TYPE and call.sizes:
                self._raised[call.sizes[0]] = call.first
            self._follow(call, made.get(number, []))
            before = call.name

    def _follow(self, call: Call, rows: list[int]) -> None:
        product = bool(_PRODUCT.match(call.name))
        leaf = product or rows or _SAVES_INPUTS.match(call.name) or _IN_FP32.match(call.name)
        if not leaf:
            return
        taken = self._inputs(call, product)
        for tensor in taken:
            tensor.taken_by.append(call)
        if product:
            self._cast_weights(call, taken)
            self._cast_inputs(call, taken)
        if _ATTENTION.match(call.name):
            self._last_attention = call.first
        half = product or (not _IN_FP32.match(call.name) and self._half_of(call, taken))
        if call.sequence >= 0:
            self._by_sequence[call.sequence] = half or self._widens(call, taken)
        for row in rows:
            self._add(row, call, half)

    def _add(self, row: int, call: Call, half: bool) -> None:
        elements = int(self._program.requested[self._rows[row]]) // _FP32_BYTES
        tensor = _Tensor(row, elements, half, call)
        self._tensors.setdefault(elements, []).append(tensor)
        self._all.append(tensor)

    def _alive(self, tensor: _Tensor, state: int) -> bool:
        row = self._rows[tensor.row]
        return bool(self._program.freed[row] >= state)

    def _inputs(self, call: Call, product: bool) -> list[_Tensor]:
        """What a call takes, of the results so far: two inputs of one size are two results, where there are two."""
        taken: list[_Tensor] = []
        for size, span in call.float_inputs():
            found = self._parts_of(call, span) if span > size else self._whole(call, size, product)
            found = [tensor for tensor in found if tensor not in taken] or found
            taken += found[-1:]
        return taken

    def _whole(self, call: Call, size: int, product: bool) -> list[_Tensor]:
        """Results of that size that are still there.

        For a product with a weight they are those of the last norm, or what is in fp32 since, such as a residual.
        """
        found = [t for t in self._tensors.get(size, [])[-12:] if self._alive(t, call.first)]
        if product and not _ATTENTION.match(call.name):
            norms = [i for i, t in enumerate(found) if _is_norm(t) and t.call.first > self._last_attention]
            later = found[norms[-1] + 1 :] if norms else []
            made = [t for t in later if not t.half and not _PRODUCT.match(t.call.name)]
            found = made or found[norms[-1] : norms[-1] + 1] if norms else found
        return found

    def _parts_of(self, call: Call, span: int) -> list[_Tensor]:
        """The smallest results that are still there and have room for a part with gaps, such as queries among keys."""
        for size in sorted(size for size in self._tensors if size >= span):
            if found := [t for t in self._tensors[size][-12:] if self._alive(t, call.first)]:
                return found
        return []

    def _half_of(self, call: Call, taken: list[_Tensor]) -> bool:
        if _PROMOTES.match(call.name) and any(
            self._stays_wide(call, size) for size, _ in call.float_inputs()
        ):
            return False
        if taken:
            return all(tensor.half for tensor in taken)
        return bool(self._all) and self._all[-1].half and any(call.sizes)

    def _widens(self, call: Call, taken: list[_Tensor]) -> bool:
        """Whether a softmax takes bf16 and returns fp32 at once: then its gradient is in bf16."""
        if not _WIDENS.match(call.name) or not self._half_of(call, taken):
            return False
        made = max((tensor.call.first for tensor in taken), default=-1)
        return self._raised.get(call.sizes[0], -1) < made

    def _stays_wide(self, call: Call, size: int) -> bool:
        """Whether an input is in fp32 whatever came before: it has a parameter's or buffer's size, and that of no result."""
        return size in self._stays and not self._whole(call, size, product=False)

    def _cast_weights(self, call: Call, taken: list[_Tensor]) -> None:
        """What is taken and no result of the step is a weight: its copy is kept until the product's backward."""
        if _ATTENTION.match(call.name):
            return
        known = {tensor.elements for tensor in taken}
        for size, shape in zip(call.sizes, call.shapes, strict=True):
            if len(shape) >= 2 and size not in known and size not in self._tensors:
                self._casts.append((size * 2, call.first, self._end(call), -1))

    def _cast_inputs(self, call: Call, taken: list[_Tensor]) -> None:
        """What is in fp32 is converted for each product, and the copy is saved."""
        for tensor in taken:
            if not tensor.half:
                self._casts.append((tensor.elements * 2, call.first, self._end(call), tensor.row))

    def _end(self, call: Call) -> int:
        return self._ends.get(call.sequence, call.first + 1)

    def factors(self) -> NDArray[np.float64]:
        """By how much the size of each of the step's rows changes."""
        factors = np.ones(len(self._rows))
        for tensor in self._all:
            if self._is_float(tensor):
                factors[tensor.row] = self._factor(tensor)
        for row, number in enumerate(self._operators.call.tolist()):
            if number >= 0 and self._operators.calls[number].backward:
                factors[row] = self._backward_factor(row, self._operators.calls[number])
        return factors

    def _factor(self, tensor: _Tensor) -> float:
        own = _HALF if tensor.half else 1.0
        kept = self._program.use[self._rows[tensor.row]] == ACTIVATION
        if not kept or _SAVES_RESULT.match(tensor.call.name):
            return own
        saver = next(
            (c for c in tensor.taken_by if _PRODUCT.match(c.name) or _SAVES_INPUTS.match(c.name)), None
        )
        if saver is None:
            return own
        if _PRODUCT.match(saver.name):
            return _HALF if tensor.half else 0.0
        return 1.0 if _IN_FP32.match(saver.name) else own

    def _is_float(self, tensor: _Tensor) -> bool:
        """Masks and indices are no floats: a dropout's mask has a quarter of its size, a pool's indices twice."""
        call, row = tensor.call, tensor.row
        others = [t.elements for t in self._all if t.call is call and t.row != row]
        if _POOL.match(call.name):
            return tensor.elements <= min(others, default=tensor.elements)
        if call.name in ("aten::native_dropout", "aten::bernoulli_"):
            return tensor.elements in call.sizes
        return True

    def _backward_factor(self, row: int, call: Call) -> float:
        if self._program.use[self._rows[row]] != TEMPORARY:
            return 1.0
        if _PRODUCT.match(call.name):
            return _HALF
        return _HALF if self._by_sequence.get(call.sequence, False) else 1.0

    def with_casts(self, program: MemoryProgram) -> MemoryProgram:
        """The program with the converted copies, in each step like this one."""
        if not self._casts:
            return program
        sizes, begins, ends, made_of = (
            np.array(column, np.int64) for column in zip(*self._casts, strict=True)
        )
        ends = np.maximum(ends, begins + 1)
        origin = int(self._program.allocated[self._rows[0]])
        for rows in self._operators.repeats:
            shift = int(self._program.allocated[rows[0]]) - origin
            program = program.with_rows(
                rows[np.maximum(made_of, 0)],
                requested=sizes,
                rest=np.zeros(len(sizes), np.int64),
                allocated=begins + shift,
                freed=ends + shift,
                reusable=ends + shift,
                use=np.full(len(sizes), ACTIVATION),
                batched=made_of >= 0,
                maybe_batched=np.zeros(len(sizes), bool),
                source=np.where(made_of >= 0, rows[made_of], -1),
            )
        return program
