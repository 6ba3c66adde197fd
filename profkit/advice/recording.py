"""Rules about memory and the recording itself: room for larger batches, memory too short, warm-up, idle streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profkit.advice.rule import Case, Evidence, Rule
from profkit.model import RangeKind
from profkit.model.report_memory import FitRow
from profkit.model.states import State
from profkit.timeline.steps import WARM_UP_RATIO
from profkit.timeline.window_table import states_of
from profkit.units import bytes_text, duration_text, noun_text, percent_text

__all__ = ["RULES"]

_STARVED = 0.6
_IDLE = 0.15
"""Of the step: a device that is busy for less has room for a larger batch, whatever its memory."""
_ROOM = 0.5
_SHORT = 0.92
_FEWEST_FRAMES = 50
_COLD = 0.3
"""Of the window, for what the first uses of libraries and kernels take."""
_HOST_COUNTS = 0.8
"""Of the step: from here on the device waits for the host now and then."""


def _batch(case: Case) -> Evidence | None:
    used = case.memory_used
    played = case.step.unchanged
    busy = played.device_busy_ns / max(case.step.plain_ns, 1.0)
    if busy > (_STARVED if used is not None else _IDLE) or (used is not None and used > _ROOM):
        return None
    # Fetching and the program's own work may grow with the batch; a single step may be cold.
    if case.view.kept_count < 2 or case.step.program.kept_ns.sum() > 0.5 * case.step.plain_ns:
        return None
    memory = (
        f"{percent_text(used)} of its memory is used"
        if used is not None
        else "the file does not show how much of its memory is free"
    )
    return Evidence(
        f"The device is busy for {percent_text(busy)} of the step, and {memory}. A larger batch costs the host almost "
        "nothing, so throughput grows until the step is GPU-bound.",
        [f"device busy {duration_text(played.device_busy_ns)} of {duration_text(case.step.plain_ns)}"],
        None,
        "medium" if used is not None else "low",
    )


def _memory_short(case: Case) -> Evidence | None:
    memory, used = case.memory, case.memory_used
    if memory is None:
        return None
    # Smaller activations cure neither fragmentation nor what is held outside the allocator.
    short = [row for row in memory.oom if row.kind in ("full", "limit")]
    if short:
        wanted = [f"wanted {bytes_text(row.requested_bytes)}" for row in short[:2]]
        why = f"Memory ran out {noun_text(len(short), 'time')}.{_what_fits(case.fit)}"
        return Evidence(why, wanted, None)
    if memory.oom or used is None or used < _SHORT:
        return None
    peak = [f"peak {bytes_text(memory.peak_reserved_bytes)}"]
    why = f"{percent_text(used)} of the memory is reserved at the peak.{_what_fits(case.fit)}"
    return Evidence(why, peak, None)


_MAKES_ROOM: Final = {
    "bf16": "Autocast to bf16",
    "fused-attention": "Fused attention",
    "recompute": "Recomputing all layers",
    "fused-optimizer": "The fused optimizer",
    "optimizer": "8-bit Adam",
}


def _what_fits(fit: Sequence[FitRow]) -> str:
    """The change after which the step surely fits and is shortest; where none is sure, the one with the lowest peak."""
    before_bytes = max((sum(each.before_bytes for each in row.by_category) for row in fit), default=0)
    changes = [row for row in fit if row.change in _MAKES_ROOM and row.peak_bytes.likely < before_bytes]
    if not changes:
        return ""
    sure = [row for row in changes if row.fits]
    best = (
        min(sure, key=lambda row: row.step_ns.likely)
        if sure
        else min(changes, key=lambda row: row.peak_bytes.likely)
    )
    result = "fits" if sure else "has the lowest peak of one change, which may not be enough"
    return (
        f" {_MAKES_ROOM[best.change]} {result}: {bytes_text(best.peak_bytes.likely)} instead of "
        f"{bytes_text(before_bytes)} at the peak, and {duration_text(best.step_ns.likely)} per step."
    )


def _fragmented(case: Case) -> Evidence | None:
    """Free memory alone is the allocator's cache; it is torn only where CUDA was asked although enough was free."""
    allocator = case.memory.allocator if case.memory else None
    reserved = case.memory.peak_reserved_bytes if case.memory else None
    if allocator is None or not reserved or allocator.expandable_segments.on:
        return None
    lost, regrowths = allocator.fragmentation_at_peak_bytes or 0, allocator.regrowths
    if lost < 0.2 * reserved or not regrowths:
        return None
    return Evidence(
        f"{bytes_text(lost)} of {bytes_text(reserved)} reserved was free even at the reserved peak. CUDA was asked for "
        f"more {regrowths} times although as much was free in blocks that did not fit.",
        [f"fragmentation {bytes_text(lost)}"],
        None,
    )


def _warm_up(case: Case) -> Evidence | None:
    view = case.view
    steps = view.kept_count
    if not view.steps.count:
        return _first_uses(case)
    length = view.steps.tile_ns[case.device, view.kept_steps]
    if steps >= 3 and length[0] <= WARM_UP_RATIO * float(np.median(length[1:])):
        return None
    if steps >= 2 and length.max() <= 1.3 * length.min():
        return None
    counted = (
        f"Only one step is counted, of {duration_text(float(length[0]))}: it may still be warm-up."
        if steps == 1
        else f"Only {steps} steps are counted, of {duration_text(float(length.min()))} to "
        f"{duration_text(float(length.max()))}: one of them may still be warm-up."
    )
    return Evidence(
        counted,
        [view.steps.names[int(np.argmax(view.kept_steps))]],
        None,
        "low",
    )


def _first_uses(case: Case) -> Evidence | None:
    spent = int(states_of(case.view, case.device)[State.INITIALISATION])
    window = case.view.windows[case.device].total_ns
    if spent < _COLD * window:
        return None
    return Evidence(
        f"For {duration_text(spent)} of {duration_text(window)}, the host sets up libraries and loads kernels: these are "
        "first uses, which later iterations do not repeat.",
        [f"initialisation: {duration_text(spent)}"],
        None,
        "high",
    )


def _stacks(case: Case) -> Evidence | None:
    ranges, (since, until) = case.view.trace.ranges, case.host_span
    frames = (ranges.kind == RangeKind.PYTHON) & (ranges.start_ns >= since) & (ranges.start_ns < until)
    count, played = int(frames.sum()), case.step.unchanged
    if count < _FEWEST_FRAMES or played.host_ns < _HOST_COUNTS * case.step.plain_ns:
        return None
    what = "step" if case.view.steps.count else "recording"
    return Evidence(
        f"The recorder wrote {noun_text(count, 'Python frame')} in the {what}. The GPU waits for the host, and recording stacks slows the host.",
        [f"{noun_text(count, 'frame')} in the {what}"],
        None,
        "low",
    )


_SETTINGS = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"

RULES = (
    Rule(
        "larger-batch", "Use a larger batch", _batch,
        "Double the batch as long as the step time hardly grows, and scale the learning rate.",
        "DataLoader(dataset, batch_size=2 * n)",
        "Throughput grows, and the device is busy for more of the step.",
        ("Convergence may need a small batch.", "A single step takes longer."),
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
    Rule(
        "checkpoint-activations", "Make room with activation checkpointing", _memory_short,
        "Checkpoint the blocks: activations take less memory, and the forward pass runs twice.",
        "x = checkpoint(block, x, use_reentrant=False)",
        "The peak is lower, and the step takes up to a third longer.",
        ("It costs time: first try expandable segments, and a smaller batch with accumulation.",),
        "https://docs.pytorch.org/docs/stable/checkpoint.html",
    ),
    Rule(
        "fragmentation", "Let memory segments grow", _fragmented,
        "Use expandable segments, and allocate large buffers first.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
        "Reserved memory comes close to allocated memory.", (), _SETTINGS,
    ),
    Rule(
        "warm-up", "Record after more warm-up", _warm_up,
        "Let a few steps pass before recording, and record at least three.",
        'with profkit.record("runs/today", warmup=5, steps=3) as recorder: ...',
        "The counted steps take about the same time.", (), "https://docs.pytorch.org/docs/stable/profiler.html",
    ),
    Rule(
        "profiler-stacks", "Measure times without Python stacks", _stacks,
        "Leave with_stack off when you measure times. Turn it on to find call sites.",
        "torch.profiler.profile(record_shapes=True)   # not: with_stack=True",
        "The trace has no Python frames, and the device is idle for less time.", (), "https://docs.pytorch.org/docs/stable/profiler.html",
    ),
)  # fmt: skip
