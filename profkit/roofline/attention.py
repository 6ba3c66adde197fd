"""FLOP and bytes of scaled dot-product attention, forward and backward, in every backend of PyTorch.

Forward: 2 · B · H · pairs · (Dqk + Dv), where pairs are the (query, key) pairs that are seen: causal counts as
causal, top-left aligned as torch's ``is_causal``. Backward with recomputation: 2 · B · H · pairs · (3 Dqk + 2 Dv)
(FlashAttention 2); dQ is summed in fp32, read and written once. One exponential a pair and direction runs on the special function units, 16 a cycle and
multiprocessor, which for small heads take as long as the products (FlashAttention 3, section 3.1). Grouped queries: H is the number of query heads; keys and values are read for their own heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Call, Tensor

__all__ = ["ATTENTION_MODELS", "visible_pairs"]

_BLOCK_ROWS, _BLOCK_KEYS = 128, 64
_DIAGONAL_ROWS = 64
"""Side of the blocks on a causal diagonal, which are computed whole."""


@dataclass(frozen=True)
class _Schema:
    """Where an operator has its inputs; ``heads_first``: [B, H, S, D] instead of [B, S, H, D]."""

    query: int
    causal: int
    heads_first: bool
    backward: bool = False
    separate_dot: bool = True
    """Backward: a kernel of its own reads the output for the rows' sums of dO·O."""
    bias: int = -1
    """Where the bias (the mask) is that is added to the scores; -1 for none."""
    lengths: int = -1
    """Where the running sums of the sequences' lengths are, of queries and then of keys; both longest ones follow."""


def visible_pairs(queries: int, keys: int, causal: bool) -> float:
    """(query, key) pairs that attention computes; causal: query i sees keys 0..i."""
    if not causal:
        return float(queries * keys)
    square = min(queries, keys)
    return square * (square + 1) / 2 + max(queries - keys, 0) * float(keys)


def _attention(schema: _Schema) -> Callable[[Call, KernelClass], Work | None]:
    def model(call: Call, kernel: KernelClass) -> Work | None:
        q, k, v = (call.tensor(schema.query + i) for i in range(3))
        if kernel.family is not Family.ATTENTION or not q or not k or not v:
            return None
        q, k, v, equal = _unpacked(call, schema, (q, k, v))
        if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
            return None
        if "dot_do_o" in kernel.function or "convert_dq" in kernel.function:
            return _helper(kernel, q, 2 if schema.heads_first else 1)
        bias = call.tensor(schema.bias)
        causal, guessed = _causal(call, schema, q, k)
        guessed = guessed or not equal
        causal = causal and not (guessed and equal and bias)  # torch takes one or the other
        stored = "fp32" if kernel.dtype in ("fp32", "tf32") else "bf16"
        q, k, v = (replace(tensor, dtype=tensor.dtype or stored) for tensor in (q, k, v))
        return _with_bias(_work(schema, (q, k, v), causal, guessed, _rows(kernel)), bias, stored)

    return model


def _unpacked(
    call: Call, schema: _Schema, qkv: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Sequences that lie one after another (``[tokens, H, D]``) as a batch, and whether their lengths are known.

    The lengths lie in device memory. If as many of the longest make up all tokens, all are as long; else they are
    taken for equal, which is the least work that there can be.
    """
    sums = [call.tensor(schema.lengths + at) for at in (0, 1)] if schema.lengths >= 0 else []
    if len(sums) != 2 or not all(each and len(each.shape) == 1 and each.shape[0] > 1 for each in sums):
        return *qkv, True
    batched, equal = [], True
    for at, tensor in zip((0, 1, 1), qkv, strict=True):
        count = sums[at].shape[0] - 1  # type: ignore[union-attr]
        shape = tensor.shape[1:] if len(tensor.shape) == 4 and tensor.shape[0] == 1 else tensor.shape
        if len(shape) != 3:
            return *qkv, True
        longest = call.integers(schema.lengths + 2 + at)
        equal = equal and longest == (shape[0] // count,) and shape[0] % count == 0
        batched.append(replace(tensor, shape=(count, -(-shape[0] // count), *shape[1:]), strides=None))
    return batched[0], batched[1], batched[2], equal


def _work(
    schema: _Schema, qkv: tuple[Tensor, Tensor, Tensor], causal: bool, guessed: bool, rows: int
) -> Work:
    q, k, v = qkv
    length, heads = (2, 1) if schema.heads_first else (1, 2)
    queries, keys = q.shape[length], k.shape[length]
    pairs = visible_pairs(queries, keys, causal) * q.shape[0] * q.shape[heads]
    wide, deep = q.shape[3], v.shape[3]
    inputs, size = q.numel_bytes() + k.numel_bytes() + v.numel_bytes(), q.numel_bytes()
    out, statistics = size * deep / max(wide, 1), 4.0 * q.shape[0] * q.shape[heads] * queries
    flop, read, written = 2.0 * pairs * (wide + deep), inputs, out + statistics
    if schema.backward:
        accumulated, alone = 4.0 * _rounded(q, length), 0.0 if schema.separate_dot else 1.0
        flop = 2.0 * pairs * (3 * wide + 2 * deep)
        read = inputs + out + accumulated + 2 * statistics + alone * out
        written = inputs - size + accumulated + alone * size
    executed = _whole(queries, rows) * _whole(keys, _BLOCK_KEYS) if queries > 1 else 1.0
    if causal and queries > 1:
        executed *= 1.0 + _DIAGONAL_ROWS / max(queries, _DIAGONAL_ROWS)
    return Work(
        flop, read, written, dtype=q.dtype, guessed=guessed, executed=executed, exponentials=pairs * executed,
        written_early=not schema.backward,
    )  # fmt: skip


def _rows(kernel: KernelClass) -> int:
    """Queries that a block computes; kernels that split the keys take half as many."""
    return _BLOCK_ROWS // 2 if "splitkv" in kernel.function else _BLOCK_ROWS


def _whole(rows: int, block: int) -> float:
    """Rows over rows when blocks are computed whole."""
    return math.ceil(rows / block) * block / max(rows, 1)


def _with_bias(work: Work, bias: Tensor | None, stored: str) -> Work:
    """The bias is read once, and once more for each further sequence of the batch, as far as it left the cache."""
    if bias is None or not bias.numel:
        return work
    if (
        bias.strides is None and len(bias.shape) == 4
    ):  # not recorded: the smaller work, one bias for the whole batch
        bias, work = replace(bias, strides=(0, 1, 1, 1)), replace(work, guessed=True)
    size = bias.nbytes(stored)
    return replace(
        work, read_bytes=work.read_bytes + size, repeated=(size, bias.numel / max(bias.stored, 1) - 1.0)
    )


def _rounded(q: Tensor, length: int) -> float:
    """Elements of the fp32 sums of dQ, which backward kernels lay out in whole blocks of rows."""
    rows = q.shape[length]
    return q.numel / max(rows, 1) * (math.ceil(rows / _BLOCK_ROWS) * _BLOCK_ROWS)


def _helper(kernel: KernelClass, q: Tensor, length: int) -> Work:
    """The two small kernels around a backward: rows of dO·O summed and dQ's sums cleared, and dQ brought to 16 bits."""
    size, accumulated = q.numel_bytes(), 4.0 * _rounded(q, length)
    if "dot_do_o" in kernel.function:
        return Work(2.0 * q.numel, 2 * size, accumulated, role="dot", dtype="fp32")
    return Work(float(q.numel), accumulated, size, role="convert", dtype="fp32")


def _causal(call: Call, schema: _Schema, q: Tensor, k: Tensor) -> tuple[bool, bool]:
    """Whether it is causal, and whether that is a guess: without scalars the smaller work is assumed."""
    text = call.scalar(schema.causal)
    if text:
        return text in ("True", "1", "2"), False
    length = 2 if schema.heads_first else 1
    return q.shape[length] == k.shape[length] > 1, True


ATTENTION_MODELS: dict[str, Callable[[Call, KernelClass], Work | None]] = {
    name: _attention(schema)
    for name, schema in {
        "_scaled_dot_product_flash_attention": _Schema(0, 4, True),
        "_scaled_dot_product_efficient_attention": _Schema(0, 6, True, bias=3),
        "_scaled_dot_product_cudnn_attention": _Schema(0, 6, True, bias=3),
        "_scaled_dot_product_fused_attention_overrideable": _Schema(0, 5, True, bias=3),
        "_flash_attention_forward": _Schema(0, 8, False, lengths=3),
        "_efficient_attention_forward": _Schema(0, 9, False, bias=3, lengths=4),
        "_cudnn_attention_forward": _Schema(0, 10, True, bias=3),
        "_scaled_dot_product_flash_attention_backward": _Schema(1, 11, True, True),
        "_scaled_dot_product_efficient_attention_backward": _Schema(1, 11, True, True, False, bias=4),
        "_scaled_dot_product_cudnn_attention_backward": _Schema(1, 14, True, True, bias=8),
        "_flash_attention_backward": _Schema(1, 11, False, True, lengths=6),
        "_efficient_attention_backward": _Schema(1, 14, False, True, False, bias=4, lengths=6),
        "_cudnn_attention_backward": _Schema(1, 14, True, True, bias=8),
        "_flash_attn_forward": _Schema(0, 5, False),
        "_flash_attn_backward": _Schema(1, 11, False, True),
        "_flash_attn_varlen_forward": _Schema(0, 9, False, lengths=3),
        "_flash_attn_varlen_backward": _Schema(1, 15, False, True, lengths=9),
        "scaled_dot_product_attention": _Schema(0, 5, True, bias=3),
    }.items()
}
"""By operator name without its library's prefix."""
