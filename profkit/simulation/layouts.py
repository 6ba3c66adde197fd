"""Kernels that only exist because of how things were written: layout transposes, attention by hand, recomputation."""

from __future__ import annotations

import json
import math
import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.kernel_class import Family
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.precision import known_flop

__all__ = [
    "channels_last",
    "fuse_attention",
    "general_convolutions",
    "handmade_attention",
    "keep_activations",
    "laid_out",
    "planar_norms",
    "recomputed",
    "transposes",
]

Flags = NDArray[np.bool_]

_GENERAL_CONVOLUTIONS: Final = ("implicit_convolve_sgemm", "im2col", "col2im", "fft2d", "vol2col")
_HALF: Final = {"bf16", "fp16"}
_LOGARITHM: Final = re.compile(r"LogSoftMax|softmax_warp_\w{1,64}<[^>]{0,200}, true, \w{1,64}>")
_EXPERTS: Final = re.compile(r"top_?k|moe|expert|gating|router|grouped", re.IGNORECASE)
_PLANES: Final = re.compile(r"bn_[fb]w\w{0,64}_1c11")
_SPLIT_FP32: Final = 1 / 6
"""The share of its peak that fused attention reaches in TF32, over that in 16 bits: fp32 is taken apart into three
products of TF32 (CUTLASS's ``OpMultiplyAddFastF32``, of PyTorch's memory-efficient kernels), each at half of that share."""
_FUSED_LAUNCHES: Final = 4.0
"""What fused attention takes of the host, in usual launches: it weighs its backends, fills statistics and seeds (3 to 14 in
ten first sides of reports/advice, median 6; backward 0.6 to 4 in 22)."""
_RECOMPUTABLE: Final = (
    "aten::native_layer_norm", "aten::addmm", "aten::gelu", "aten::relu", "aten::clamp_min", "aten::native_batch_norm",
    "aten::cudnn_convolution", "aten::_cudnn_attention_forward", "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward", "aten::native_dropout", "aten::_softmax", "aten::cudnn_batch_norm",
    "aten::silu", "aten::tanh", "aten::embedding", "aten::native_group_norm",
)  # fmt: skip
_COMPOSITE: Final = ("aten::linear", "aten::layer_norm", "aten::conv", "aten::batch_norm", "aten::group_norm")
"""Operators that only a forward pass calls: the kernels inside them are its own."""


def transposes(facts: StepFacts) -> Flags:
    """Kernels of the convolution library that turn one layout into the other."""
    return facts.of_family(Family.LAYOUT)


def laid_out(facts: StepFacts) -> Flags:
    """Kernels that say in their name that they work on channels_last tensors."""
    names = facts.view.trace.names(facts.view.trace.operations.name[facts.program.row])
    return np.array(["channels_last" in n or "nhwc" in n.lower() for n in names], bool) & ~transposes(facts)


def planar_norms(facts: StepFacts) -> Flags:
    """Batch norm of cuDNN over planes, which gives each channel one block."""
    return np.array([k is not None and bool(_PLANES.search(k.function)) for k in facts.kernels], bool)


def channels_last(edited: EditedStep) -> None:
    """The layout that convolutions want: no transposes; batch norm in that layout is about twice as fast."""
    facts = edited.facts
    edited.drop(transposes(facts) & edited.alive, within=True)
    nameless = np.array([not names for names in facts.operators], bool)
    norms = facts.named("batch_norm", "BatchNorm") | (planar_norms(facts) & nameless)
    planes = facts.of_family(Family.NORM) & norms & ~laid_out(facts) & edited.alive
    bandwidth = facts.gpu.bandwidth_bytes_per_s if facts.gpu else None
    if bandwidth:
        streamed = edited.constants.start_ns + edited.bytes / (bandwidth * edited.constants.memory) * 1e9
        least = edited.duration_ns * edited.constants.normed
        edited.retime(planes & ~np.isnan(streamed), np.maximum(np.nan_to_num(streamed), least))


def handmade_attention(facts: StepFacts) -> Flags:
    """Everything between the two batched products of an attention written by hand, products included.

    Forward: product, then pointwise kernels with a softmax among them, then product, all over the scores. Backward:
    the same around the softmax's gradient.
    """
    names = facts.view.trace.names(facts.view.trace.operations.name[facts.program.row])
    logarithm = np.array([bool(_LOGARITHM.search(n)) for n in names], bool)
    softmax = (
        facts.of_family(Family.SOFTMAX)
        & ~logarithm
        & ~facts.named("log_softmax", "LogSoftmax", "cross_entropy")
    )
    found = np.zeros(facts.count, bool)
    if not softmax.any() or facts.compiled.any():
        return found
    nameless = np.array([not each for each in facts.operators], bool)
    # Where attention is fused, a softmax without a name is another one: of a router, or over a vocabulary.
    nameless &= not facts.of_family(Family.ATTENTION).any()
    product = facts.of_family(Family.GEMM) & (facts.named("aten::bmm", "aten::baddbmm") | nameless)
    routes = _routes(facts)
    for row in np.flatnonzero(softmax).tolist():
        before = np.flatnonzero(product[:row])
        after = row + 1 + np.flatnonzero(product[row + 1 :])
        if not len(before) or not len(after):
            continue
        first, last = int(before[-1]), int(after[0])
        if facts.backward[row]:
            # Two products make the gradients of scores and values, two those of queries and keys.
            first = int(before[-2]) if len(before) > 1 and first - before[-2] < 12 else first
            last = int(after[1]) if len(after) > 1 and after[1] - last < 12 else last
        together = last - first <= 40 and facts.backward[first] == facts.backward[last]
        if together and not routes[first : last + 1].any() and _over_scores(facts, (first, last), row):
            found[first : last + 1] = True
    return found


def _routes(facts: StepFacts) -> Flags:
    """Kernels of a mixture of experts: the choice of experts, and products of groups."""
    named = np.array([k is not None and bool(_EXPERTS.search(k.function)) for k in facts.kernels], bool)
    return named | facts.of_family(Family.SORT) | facts.named("topk", "_grouped_mm", "grouped_gemm")


def _over_scores(facts: StepFacts, products: tuple[int, int], softmax: int) -> bool:
    """Whether a softmax takes as many elements as the product before it made, or as the one after it takes.

    So it is taken to be where shapes are unknown.
    """
    before, after = (_matrices(facts, row) for row in products)
    if facts.backward[softmax] or not facts.inputs[softmax] or len(before) < 2 or len(after) < 2:
        return True
    made = math.prod(before[-2][:-1]) * before[-1][-1]
    return facts.inputs[softmax][0] in (made, math.prod(after[-2]))


def _matrices(facts: StepFacts, row: int) -> list[list[int]]:
    """The batches of matrices that an operator takes, by their sizes; none where they are unknown."""
    operator = facts.operator_row[row]
    text = facts.view.trace.ranges.shapes[operator] if operator >= 0 else -1
    try:
        shapes = json.loads(facts.view.trace.strings[text]) if text >= 0 else []
    except ValueError:
        return []
    batches = [each for each in shapes if isinstance(each, list) and len(each) == 3]
    return [each for each in batches if all(isinstance(size, int) for size in each)]


def fuse_attention(edited: EditedStep) -> None:
    """The scores stay on the chip: the products' arithmetic at the rate of fused attention, and no traffic."""
    facts, gpu = edited.facts, edited.facts.gpu
    chosen = handmade_attention(facts) & edited.alive
    if not chosen.any() or gpu is None:
        return
    runs = np.cumsum(np.diff(np.concatenate(([False], chosen))) & chosen)
    for at in np.unique(runs[chosen]).tolist():
        rows = np.flatnonzero(chosen & (runs == at))
        _fuse_run(edited, rows)


def _fuse_run(edited: EditedStep, rows: NDArray[np.int64]) -> None:
    facts, gpu = edited.facts, edited.facts.gpu
    products = rows[facts.of_family(Family.GEMM)[rows]]
    half = "bf16" if _in_half(facts, rows) else "tf32"
    peak = (gpu.best_peaks().get(half) if gpu else None) or math.inf
    flop = float(np.nansum(known_flop(edited)[products])) * (1.25 if facts.backward[rows[0]] else 1.0)
    share = edited.constants.attention * (1.0 if half == "bf16" else _SPLIT_FP32)
    # Masked scores below the diagonal are half of them; a kernel that skips them does half the work.
    ns = edited.constants.start_ns * 2 + flop / (peak * share) * 1e9 * 0.75
    total = float(edited.duration_ns[rows].sum())
    if not flop:
        ns = total * 0.3
    tokens = np.unique(facts.token[rows])
    host = edited.host_ns(tokens)
    edited.drop(np.isin(np.arange(facts.count), rows[1:]))
    edited.duration_ns[rows[0]] = min(ns, total)
    edited.give_host(tokens[:1], min(host, _FUSED_LAUNCHES * edited.usual_launch_ns))


def _in_half(facts: StepFacts, rows: NDArray[np.int64]) -> bool:
    """Whether the attention takes 16 bits: its products do, or casts around them come from or go to 16 bits."""
    around = range(max(int(rows[0]) - 6, 0), min(int(rows[-1]) + 7, facts.count))
    kernels = [k for k in (facts.kernels[r] for r in around) if k is not None]
    casts = [k for k in kernels if k.family in (Family.GEMM, Family.COPY)]
    return any(_HALF & {k.dtype, k.out_dtype, *k.operands} for k in casts)


def recomputed(facts: StepFacts) -> Flags:
    """Kernels of the forward pass that run again during backward: same operator, sizes and kernel."""
    names = facts.view.trace.operations.name[facts.program.row]
    forward = {
        (names[r], facts.operators[r][0], facts.inputs[r])
        for r in np.flatnonzero(~facts.backward & ~facts.optimizer).tolist()
        if facts.operators[r]
    }
    again = np.zeros(facts.count, bool)
    marked = 0
    for row in np.flatnonzero(facts.backward).tolist():
        chain = facts.operators[row]
        if not chain or (names[row], chain[0], facts.inputs[row]) not in forward:
            continue
        inside = any("Backward" in n and "Checkpoint" not in n for n in chain)
        again[row] = not inside or chain[0] in _RECOMPUTABLE
        marked += bool(chain[0] in _RECOMPUTABLE)
    return _whole(facts, again) if marked >= 2 else np.zeros(facts.count, bool)


def _whole(facts: StepFacts, again: Flags) -> Flags:
    """Also what lies between recomputed kernels of one node of the backward pass, or in an operator of the forward."""
    whole = again.copy()
    nodes, composite = facts.outer_row, facts.named(*_COMPOSITE)
    for node in np.unique(nodes[again]).tolist():
        rows = np.flatnonzero((nodes == node) & facts.backward)
        marks = rows[again[rows]]
        whole[rows[(rows >= marks[0]) & (rows <= marks[-1])]] = True
        whole[rows[(rows > marks[-1]) & composite[rows]]] = True
    return whole


def keep_activations(edited: EditedStep) -> None:
    """No recomputation: what the forward pass made is kept for the backward."""
    chosen = recomputed(edited.facts) & edited.alive
    edited.drop(chosen)
    after = np.flatnonzero(np.diff(chosen.astype(int)) == -1) + 1
    # What follows waited for Python's way back out of the forward pass.
    tokens = edited.facts.token[after]
    edited.gap_ns[tokens] = np.minimum(edited.gap_ns[tokens], edited.usual_launch_ns)


def general_convolutions(facts: StepFacts) -> NDArray[np.bool_]:
    """Convolutions by algorithms that cuDNN takes where it has tried no other."""
    return np.array(
        [
            k is not None
            and k.family is Family.CONVOLUTION
            and any(s in k.function for s in _GENERAL_CONVOLUTIONS)
            for k in facts.kernels
        ],
        bool,
    )
