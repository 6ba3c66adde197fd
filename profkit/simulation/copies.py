"""Data on its way: loader workers, copies from pinned memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import CopyKind
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts

__all__ = [
    "SMALL_COPY_BYTES", "copies_between", "load_with", "on_own_stream", "pack_copies", "pageable_copies", "pin_memory", "small_uploads",
]  # fmt: skip

_PINNED_BYTES_PER_S: Final = 50e9
"""PCIe 5 x16; measured 55 GB/s on an H200 host (reports/calibration). An older link is not made faster."""
_FEW_BYTES: Final = 64 * 1024
SMALL_COPY_BYTES: Final = 4096
_FEWEST_SMALL: Final = 8
_PACKED: Final = 0.3
"""Of the host's time for each small copy: packing 8 to 128 tensors of 16 numbers (``stack``) and taking them apart (``unbind``)
took 0.28 to 0.62 of copying each on a CPU, whose copies call no driver."""
_FETCH_NS: Final = 200_000
"""What taking a finished batch from a worker's queue takes."""


def load_with(workers: int) -> Callable[[EditedStep], None]:
    """Batches are made by processes beside the step: it waits only where they are too slow together."""

    def change(edited: EditedStep) -> None:
        fetching = float(edited.input_ns.sum())
        fetch = min(_FETCH_NS, fetching)
        left = fetch / fetching if fetching else 0.0
        edited.gap_ns -= edited.input_ns * (1 - left)
        edited.input_ns = edited.input_ns * left
        edited.least_ns = max(edited.least_ns, fetching / max(workers, 1))

    return change


def copies_between(facts: StepFacts) -> NDArray[np.bool_]:
    """Copies between host and device of more than a few bytes."""
    operations, rows = facts.view.trace.operations, facts.program.row
    kinds = np.isin(operations.copy_kind[rows], (CopyKind.HTOD, CopyKind.DTOH))
    found: NDArray[np.bool_] = kinds & (operations.bytes[rows] > _FEW_BYTES)
    return found


def on_own_stream(chosen: NDArray[np.bool_]) -> Callable[[EditedStep], None]:
    """Some copies run on a stream of their own, for the step that follows."""

    def change(edited: EditedStep) -> None:
        edited.stream[chosen & edited.alive] = edited.stream.max() + 1

    return change


def small_uploads(facts: StepFacts) -> NDArray[np.bool_]:
    """Copies of a few bytes to the device, if they are many."""
    operations, rows = facts.view.trace.operations, facts.program.row
    found: NDArray[np.bool_] = (
        (operations.copy_kind[rows] == CopyKind.HTOD)
        & (operations.bytes[rows] <= SMALL_COPY_BYTES)
        & (operations.bytes[rows] >= 0)
    )
    return found if found.sum() >= _FEWEST_SMALL else np.zeros(facts.count, bool)


def pack_copies(edited: EditedStep) -> None:
    """Small copies in one."""
    chosen = edited.facts.once(small_uploads)
    edited.drop(chosen & (np.cumsum(chosen) > 1), host=_PACKED)


def pageable_copies(facts: StepFacts) -> NDArray[np.bool_]:
    """Copies of more than a few bytes from memory that the driver must stage."""
    operations, rows = facts.view.trace.operations, facts.program.row
    upload = operations.copy_kind[rows] == CopyKind.HTOD
    strings = facts.view.trace.strings
    named = np.array(
        ["pageable" in strings[i].lower() if i >= 0 else False for i in operations.name[rows].tolist()], bool
    )
    staged = (operations.pageable[rows] == 1) | named
    large: NDArray[np.bool_] = operations.bytes[rows] > _FEW_BYTES
    found: NDArray[np.bool_] = upload & staged & large
    return found


def pin_memory(edited: EditedStep) -> None:
    """Uploads from pinned memory on a stream of their own, ahead of the step that needs them."""
    facts = edited.facts
    chosen = pageable_copies(facts) & edited.alive
    if not chosen.any():
        return
    sizes = facts.view.trace.operations.bytes[facts.program.row].astype(float)
    edited.retime(chosen, sizes / _PINNED_BYTES_PER_S * 1e9)
    edited.stream[chosen] = edited.stream.max() + 1
    edited.early_ns[chosen] = 0
    tokens = np.unique(facts.token[chosen])
    edited.own_ns[tokens] = np.minimum(edited.own_ns[tokens], edited.usual_launch_ns)
    edited.held[tokens] = False
    # The wait of a blocking copy follows its launch.
    calls = facts.program.call
    waiting = np.flatnonzero(edited.waits)
    blocked = waiting[np.isin(calls[waiting], calls[tokens]) | np.isin(waiting, tokens + 1)]
    edited.waits[blocked] = False
    edited.own_ns[blocked] = 0
