"""Rules about how the model is written: layout, attention, recomputation, convolution algorithms, gradients of indices."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.model.kernel_class import Family
from profkit.roofline.operator_shapes import tensor_shapes
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.layouts import (
    general_convolutions,
    handmade_attention,
    laid_out,
    planar_norms,
    recomputed,
    transposes,
)
from profkit.units import bytes_text, percent_text

__all__ = ["RULES"]


def _layout(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = transposes(facts)
    norms = facts.of_family(Family.NORM)
    mostly = facts.share(norms & laid_out(facts)) > 0.5 * facts.share(norms) > 0
    if mostly or not facts.of_family(Family.CONVOLUTION).any():
        return None
    planes = planar_norms(facts)
    if facts.share(planes) >= max(0.05, facts.share(chosen)):
        return Evidence(
            f"Batch norm works on planes (NCHW), with one block per channel: {percent_text(facts.share(planes))} of the device's "
            "time. In channels_last it uses the whole GPU.",
            kernels_seen(facts, planes),
            ["channels-last"],
        )
    if facts.share(chosen) < 0.02:
        return None
    return Evidence(
        f"The convolution library converts tensors to its layout and back: {int(chosen.sum())} transposes, "
        f"{percent_text(facts.share(chosen))} of the device's time.",
        kernels_seen(facts, chosen),
        ["channels-last"],
        "high",
    )


def _attention(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = handmade_attention(facts)
    if not chosen.any():
        return None
    return Evidence(
        f"Attention is written by hand: products, mask and softmax over scores in memory take "
        f"{percent_text(facts.share(chosen))} of the device's time. A fused kernel keeps the scores on chip.",
        kernels_seen(facts, chosen),
        ["fused-attention"],
    )


def _checkpointing(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = recomputed(facts)
    used = case.memory_used
    if not chosen.any() or (used is not None and used > 0.7):
        return None
    room = (
        "memory would have to hold the activations"
        if used is None
        else f"only {percent_text(used)} of the memory is used"
    )
    return Evidence(
        f"{int(chosen.sum())} forward kernels run again during backward (activation checkpointing), "
        f"{percent_text(facts.share(chosen))} of the device's time; {room}.",
        kernels_seen(facts, chosen),
        ["no-checkpointing"],
        "low" if used is None else "medium",
    )


def _could_save(case: Case, chosen: NDArray[np.bool_]) -> bool:
    """Whether some kernels would shorten the step if they were twice as fast: not where the host is the limit."""
    faster = case.step.predict_where_worth(
        [lambda edited: edited.retime(chosen, edited.duration_ns * 0.5)], _SLIGHT
    )
    return faster is not None


def _benchmark(case: Case) -> Evidence | None:
    facts = case.facts
    slow = facts.once(general_convolutions)
    if facts.share(slow) < 0.03 or not _could_save(case, slow):
        return None
    return Evidence(
        f"Convolutions that take {percent_text(facts.share(slow))} of the device's time use general algorithms. cuDNN can try "
        "all of them once and keep the fastest.",
        kernels_seen(facts, slow),
        None,
        "low",
    )


def _indices(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = (
        facts.backward
        & facts.named("index_put", "_index_put_impl_", "IndexBackward")
        & facts.of_family(Family.SORT, Family.INDEX)
    )
    sorts = chosen & facts.of_family(Family.SORT)
    if not sorts.any() or facts.share(chosen) < _SLIGHT:
        return None
    return Evidence(
        f"Advanced indexing sums its gradient by sorting, which takes {percent_text(facts.share(chosen))} of the device's time.",
        kernels_seen(facts, chosen),
        None,
        "low",
    )


def _loss(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.named(*_CROSS_ENTROPY) & ~facts.compiled & ~facts.of_family(Family.GEMM)
    sizes = [_vocabulary(facts, row) for row in np.flatnonzero(chosen).tolist()]
    logits = max(sizes, default=(0, 0), key=lambda each: each[0] * each[1])
    if logits[1] < _LARGE_VOCABULARY or facts.share(chosen) < _LOSS or not _could_save(case, chosen):
        return None
    return Evidence(
        f"The loss over {logits[1]:,} classes reads and writes logits of {bytes_text(4.0 * logits[0] * logits[1])} several "
        f"times: {percent_text(facts.share(chosen))} of the device's time, and as much memory for each copy.",
        kernels_seen(facts, chosen),
        None,
    )


def _vocabulary(facts: StepFacts, row: int) -> tuple[int, int]:
    """Rows and classes of a loss's largest input; zeros where its shape is not recorded."""
    operator = int(facts.operator_row[row])
    text = int(facts.view.trace.ranges.shapes[operator]) if operator >= 0 else -1
    tensors = tensor_shapes(facts.view.trace.strings[text]) or () if text >= 0 else ()
    matrices = [(math.prod(shape[:-1]), shape[-1]) for shape in tensors if len(shape) >= 2]
    return max(matrices, default=(0, 0), key=lambda each: each[0] * each[1])


_CROSS_ENTROPY: Final = ("cross_entropy", "log_softmax", "LogSoftmaxBackward", "nll_loss", "NllLossBackward")
_LARGE_VOCABULARY: Final = 16_384
_LOSS: Final = 0.03
"""Of the device's time."""
_NOTABLE_GRIDS: Final = 0.1
_SLIGHT: Final = 0.01


def _grids(case: Case) -> Evidence | None:
    facts, gpu = case.facts, case.facts.gpu
    operations, rows = facts.view.trace.operations, facts.program.row
    if gpu is None or not gpu.sm_count:
        return None
    grid = np.ones(facts.count)
    for side in ("grid_x", "grid_y", "grid_z"):
        grid *= np.maximum(getattr(operations, side)[rows], 1)
    kernels = np.array([k is not None and not k.is_collective for k in facts.kernels], bool)
    known = operations.grid_x[rows] > 0
    # For batch norm over planes, another layout is the cure.
    kernels &= ~planar_norms(facts)
    chosen = kernels & known & (grid < gpu.sm_count / 2) & (facts.program.duration_ns > 20_000)
    # Of a step that waits for its host, a share of what the device does is next to nothing.
    of_step = facts.program.duration_ns[chosen].sum() / max(facts.program.step_ns, 1)
    if min(facts.share(chosen), of_step) < _NOTABLE_GRIDS:
        return None
    return Evidence(
        f"Kernels that take {percent_text(facts.share(chosen))} of the device's time have fewer blocks than half of its "
        f"{gpu.sm_count} multiprocessors. Most of the GPU is idle while they run.",
        kernels_seen(facts, chosen),
        None,
        "low",
    )


_CHECKPOINT = "https://docs.pytorch.org/docs/stable/checkpoint.html"

RULES = (
    Rule(
        "channels-last", "Keep images in channels_last", _layout,
        "Convert model and input once.",
        "model = model.to(memory_format=torch.channels_last)\nx = x.to(memory_format=torch.channels_last)",
        "No nchwToNhwc or nhwcToNchw kernels are left.",
        ("Channels should be multiples of 8.", "Operators without this layout convert back: look for new copies."),
        "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        change="channels-last",
    ),
    Rule(
        "fused-attention", "Use scaled_dot_product_attention", _attention,
        "Replace the products and the softmax with one call. For other masks, use FlexAttention.",
        "out = F.scaled_dot_product_attention(q, k, v)   # is_causal=True only where the mask is causal",
        "Flash, cuDNN or efficient attention kernels replace bmm and softmax.",
        ("Flash kernels take only 16-bit inputs, and no arbitrary mask.", "The attention weights are not returned."),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        change="fused-attention",
    ),
    Rule(
        "keep-activations", "Recompute less in backward", _checkpointing,
        "Remove checkpoint() where memory allows, or checkpoint every second block.",
        "x = block(x)   # not: checkpoint(block, x)",
        "Forward kernels run once. Watch the memory peak.",
        ("Memory grows by the activations of each block.",), _CHECKPOINT,
        change="no-checkpointing",
    ),
    Rule(
        "cudnn-benchmark", "Let cuDNN benchmark its algorithms", _benchmark,
        "Turn the benchmark on if sizes are the same in every step.",
        "torch.backends.cudnn.benchmark = True",
        "Other convolution kernels run, and the first step is slower.",
        ("cuDNN tries again for each new size, so changing sizes get slower.", "Results may differ in the last bits."),
        "https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark",
        change="cudnn-benchmark",
    ),
    Rule(
        "fused-loss", "Fuse the loss of the large vocabulary", _loss,
        "Compute head and loss together, chunk by chunk, so that all logits are never in memory at once; or compile the loss.",
        "loss_of = LigerFusedLinearCrossEntropyLoss()           # of liger_kernel\nloss = loss_of(head.weight, hidden, labels)             # not: cross_entropy(head(hidden), labels)",
        "No log_softmax and nll_loss kernels over the vocabulary, and a lower memory peak.",
        ("Code that reads the logits no longer has them.", "Compare the loss: sums are made in another order."),
        "https://github.com/linkedin/Liger-Kernel",
    ),
    Rule(
        "index-gradients", "Look up with embedding or index_select", _indices,
        "Use a row lookup, which has kernels of its own. Advanced indexing sorts the indices to sum its gradient.",
        "rows = F.embedding(ids, table)   # not: table[ids]",
        "The backward pass has no index_put, and no radix sort for short lists.", ("The gradient of embedding also sorts lists of more than 3072 rows.",), "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html",
    ),
    Rule(
        "small-grids", "Give the GPU more blocks at once", _grids,
        "Use larger batches, independent work on other streams, or operators over all items at once.",
        "x = torch.stack(items)   # one call over all",
        "The kernels above have more blocks.", ("A kernel with large tiles may use the GPU well with few blocks.",),
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html",
    ),
)  # fmt: skip
