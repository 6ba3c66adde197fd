"""torch.compile: which kernels become one, the bytes that remain, and what the host still does."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import DTYPE_BYTES
from profkit.model import CopyKind
from profkit.model.kernel_class import Family
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.optimizers import gradients_accumulated

__all__ = ["compile_for_device", "compile_model", "fusible", "fusible_groups", "remaining_bytes"]

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

_FUSED: Final = (
    Family.ELEMENTWISE,
    Family.RANDOM,
    Family.COPY,
    Family.FILL,
    Family.NORM,
    Family.SOFTMAX,
    Family.REDUCE,
)
_ROWWISE: Final = (Family.NORM, Family.SOFTMAX, Family.REDUCE)
_LOSS: Final = ("cross_entropy", "nll_loss", "NllLoss", "log_softmax", "LogSoftmax", "mse_loss", "MseLoss")
_TENSORS: Final = 3.0
"""Large tensors that a fused chain moves at most: two read, one written."""
_ROW_AT_LEAST: Final = 16
"""Elements of a row that is summarised by one: what works on means and scales of rows joins the kernel over the rows."""
_FORWARD: Final = 0.25
"""What entering a graph takes without gradients, in those of the constant: without it, eight compiled pairs are 46 % off and not 22 %."""
_CONVOLVED: Final = 0.25
"""Of the matrix operations: with more convolutions, compiled code hardly helps the host (densenet_inference: 20.4 ms before and
23.9 after; where the host is the limit, an EfficientNet and a ConvNeXt came to 0.84 to 1.05, two ResNets to 1.5)."""
_HALF: Final = 0.5
"""What such a step keeps of the launches that are gone: between nothing and all of them, as it was measured."""


def fusible(facts: StepFacts) -> Flags:
    """Kernels of forward and backward that a compiler fuses with their neighbours."""
    model = ~facts.optimizer & ~facts.zeroing & ~facts.compiled
    operations, rows = facts.view.trace.operations, facts.program.row
    copies = (operations.copy_kind[rows] == CopyKind.DTOD) & facts.innermost("aten::copy_")
    found: Flags = (facts.of_family(*_FUSED) | copies) & model & ~facts.named("AccumulateGrad")
    return found


def compile_model(edited: EditedStep) -> None:
    """Fuse the chains between matrix products; the loss and the optimizer stay outside."""
    facts = edited.facts
    outside = facts.compiled | facts.optimizer | facts.zeroing
    gone, twice = _fuse_chains(edited, outside)
    convolved = facts.of_family(Family.CONVOLUTION).sum() > _CONVOLVED * facts.matrix.sum()
    edited.drop(gone, host=_HALF if convolved else 0.0)
    inside = np.flatnonzero(edited.alive & ~outside)
    if len(inside) and not convolved:
        _launch_compiled(edited, inside)
    for row in twice:
        # Partial sums, then theirs: two kernels (gpt_bf16_compile has three times the reductions of gpt_bf16).
        edited.add(row, edited.constants.start_ns, edited.constants.light_launch * edited.usual_launch_ns)


def compile_for_device(edited: EditedStep) -> None:
    """The same with a host that gains nothing by it."""
    before_ns = float(edited.gap_ns.sum() + edited.own_ns.sum())
    compile_model(edited)
    slower = max(before_ns / max(float(edited.gap_ns.sum() + edited.own_ns.sum()), 1.0), 1.0)
    edited.gap_ns, edited.own_ns = edited.gap_ns * slower, edited.own_ns * slower


def _fuse_chains(edited: EditedStep, outside: Flags) -> tuple[Flags, list[int]]:
    """Fuse what can be: the kernels that are then gone, and those that become two."""
    facts = edited.facts
    gone, twice = np.zeros(facts.count, bool), []
    for group in fusible_groups(edited, outside):
        gone[_fuse(edited, group)] = True
        if len(group) == 1 and _sums_columns(facts, int(group[0])):
            twice.append(int(group[0]))
    return gone, twice


def fusible_groups(edited: EditedStep, outside: Flags) -> Iterator[NDArray[np.int64]]:
    """The kernels of each fused one, those of one row as well.

    Args:
        edited: The step.
        outside: What is not compiled; a loss puts its chain there too.
    """
    facts = edited.facts
    chosen = fusible(facts) & edited.alive
    # Where nothing but the loss is computed, it is what is compiled.
    loss = (facts.named(*_LOSS) | facts.of_family(Family.LOSS)) & facts.matrix.any()
    for segment in _segments(edited, chosen, edited.alive & ~outside):
        if loss[segment].any():
            outside[segment] = True
        else:
            yield from _groups(facts, segment)


def _launch_compiled(edited: EditedStep, inside: NDArray[np.int64]) -> None:
    """The host's time of compiled graphs: launches that are all alike, and entering the graph, backward again."""
    facts, constants = edited.facts, edited.constants
    # What is compiled in part is entered already.
    entry = 0.0 if facts.compiled.any() else constants.compiled_entry * edited.usual_launch_ns
    forward = entry * math.sqrt(_FORWARD)
    span = np.unique(facts.token[inside])
    each = constants.light_launch * edited.usual_launch_ns
    # Convolutions and attention are called as before.
    library = np.unique(facts.token[facts.of_family(Family.CONVOLUTION, Family.ATTENTION)])
    others = span[1:][~np.isin(span[1:], library)]
    edited.give_host(others, np.minimum(each, edited.launching_ns[others]) + edited.pause_ns[others])
    # What the program does before the model is its own, the first launch is not.
    before = edited.host_ns(span[:1]) - edited.usual_launch_ns
    edited.give_host(span[:1], max(before, 0.0) + each)
    # What follows a wait for a value is entered anew.
    breaks = np.flatnonzero(edited.waits[: span.max()])
    edited.gap_ns[breaks[breaks > span.min()]] += forward
    edited.gap_ns[span[0]] += forward
    backward = inside[facts.backward[inside]]
    if len(backward) and entry:
        edited.gap_ns[facts.token[backward[0]]] += entry * math.sqrt(gradients_accumulated(facts))


def _segments(edited: EditedStep, chosen: Flags, model: Flags) -> Iterator[NDArray[np.int64]]:
    """Runs of kernels between matrix products, on one stream, in the order of their launches.

    Small memsets are part of the kernels after them, and losses of the chain around them.
    """
    facts = edited.facts
    small = np.array([k is None for k in facts.kernels], bool) & (facts.program.duration_ns < 2_000)
    losses = facts.of_family(Family.LOSS)
    joins = chosen | ((small | losses) & model)
    # Nothing is fused across a wait for a value: the graph ends there.
    waited = np.cumsum(edited.waits)[facts.token]
    run = np.cumsum(~joins) + waited * (facts.count + 1)
    for stream in np.unique(facts.program.stream).tolist():
        mine = joins & (facts.program.stream == stream)
        for at in np.unique(run[mine]).tolist():
            rows = np.flatnonzero(mine & (run == at))
            if chosen[rows].any():
                yield rows[chosen[rows] | losses[rows]]


def _groups(facts: StepFacts, segment: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """What `_alike` finds in a segment, looked for once."""
    known, key = facts.once(_none_yet), segment.tobytes()
    if key not in known:
        known[key] = list(_alike(facts, segment))
    return known[key]


def _none_yet(_: StepFacts) -> dict[bytes, list[NDArray[np.int64]]]:
    return {}


def _alike(facts: StepFacts, segment: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The parts of a segment over equally many elements: only those share a kernel.

    A sum over rows in the backward pass (gradients of bias and scale) goes the other way through the data than what is
    around it, and stays a kernel of its own; so do the statistics of a batch, which must be whole before they are used.
    """
    across = np.array([_sums_columns(facts, row) for row in segment.tolist()], bool) | _statistics(
        facts, segment
    )
    for row in segment[across].tolist():
        yield np.array([row])
    segment = segment[~across]
    for way in (segment[~facts.backward[segment]], segment[facts.backward[segment]]):
        yield from _alike_sizes(facts, way)


def _alike_sizes(facts: StepFacts, segment: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    sizes = facts.elements[segment]
    unknown = np.isnan(sizes)
    big = facts.program.duration_ns[segment] > 3_000
    key = np.where(unknown, np.where(big, -1.0, -2.0 - np.arange(len(segment))), _joined(sizes))
    for each in np.unique(key).tolist():
        yield segment[key == each]


def _joined(sizes: Floats) -> Floats:
    """The elements of each kernel, or of the largest around it whose rows it summarises, or whose halves it works on."""
    if not len(sizes) or np.isnan(sizes).all():
        return sizes
    largest = np.nanmax(sizes)
    spread = np.flatnonzero(sizes == largest)
    within = np.zeros(len(sizes), bool)
    within[spread[0] : spread[-1]] = True
    summary = within & (sizes > 1) & (sizes * _ROW_AT_LEAST <= largest)
    # Halves that are put together afterwards, as rotary positions are.
    halves = (sizes * 2 == largest) & (np.arange(len(sizes)) < spread[-1])
    return np.where(summary | halves, largest, sizes)


def _statistics(facts: StepFacts, segment: NDArray[np.int64]) -> Flags:
    """Kernels of a batch norm before its last, which applies what they found."""
    batch = np.array(
        [
            facts.family[r] is Family.NORM and any("batch_norm" in n for n in facts.operators[r])
            for r in segment.tolist()
        ],
        bool,
    )
    call = facts.operator_row[segment]
    return batch & np.append((call[:-1] == call[1:]), False) if len(segment) else batch


def _sums_columns(facts: StepFacts, row: int) -> bool:
    kernel = facts.kernels[row]
    scales = kernel is not None and "gammabeta" in kernel.function
    return bool(facts.backward[row]) and (facts.family[row] is Family.REDUCE or scales)


def _fuse(edited: EditedStep, group: NDArray[np.int64]) -> list[int]:
    """Let the first of a group do the work of all; returns the others."""
    facts, constants = edited.facts, edited.constants
    total = float(edited.duration_ns[group].sum())
    moved = edited.bytes[group]
    bandwidth = facts.gpu.bandwidth_bytes_per_s if facts.gpu else None
    if bandwidth and not np.isnan(moved).any() and not np.isnan(facts.elements[group]).any():
        left = remaining_bytes(edited, group)
        fused = constants.start_ns + left / (bandwidth * constants.memory) * 1e9
        edited.bytes[group[0]] = left
    else:
        # Each reads and writes about as much as the others: what one moves is left; of the longest, at least its output.
        fused = max(total / len(group), float(edited.duration_ns[group].max()) / 2)
    fused = min(total, max(fused, min(constants.start_ns, total)))
    edited.duration_ns[group[0]] = fused
    return [int(row) for row in group[1:]]


def _rowwise(facts: StepFacts, group: NDArray[np.int64]) -> bool:
    """Whether a group reduces rows and goes on: nothing waits for what it ends with, as a mean."""
    rows = group.tolist()
    last = rows[-1:] if facts.family[rows[-1]] is Family.REDUCE else []
    return any(facts.family[row] in _ROWWISE for row in rows[: len(rows) - len(last)])


def remaining_bytes(edited: EditedStep, group: NDArray[np.int64]) -> float:
    """The bytes of a group less the intermediates: each is neither read nor written.

    A value that is used twice is read twice in the recording, and once in the fused kernel: of a long chain, no more is left
    than two large tensors read and one written.
    """
    facts = edited.facts
    moved = edited.bytes[group]
    total, largest = float(moved.sum()), float(moved.max())
    tensors = [_result_bytes(facts, row) for row in group.tolist()]
    saved = sum(
        min(each * 2.0, float(edited.bytes[row]))
        for each, row in zip(tensors[:-1], group[:-1].tolist(), strict=True)
    )
    left = max(total - saved, largest * 0.5)
    whole = not (facts.trains and _rowwise(facts, group))
    # A chain that is the whole step starts from what the program was given.
    most = _TENSORS - (0.0 if facts.matrix.any() or facts.trains else 1.0)
    return min(left, most * statistics.median(tensors)) if whole and len(group) > 1 else left


def _result_bytes(facts: StepFacts, row: int) -> float:
    kernel = facts.kernels[row]
    dtype = (kernel.out_dtype or kernel.dtype if kernel else None) or "fp32"
    return float(facts.elements[row]) * DTYPE_BYTES.get(dtype, 4.0)
