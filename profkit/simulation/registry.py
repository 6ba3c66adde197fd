"""The changes of a recorded step by name, in the order in which they are made, and what each needs of a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from profkit.hardware import Gpu
from profkit.simulation import debugging, parallel
from profkit.simulation import preconditions as needs
from profkit.simulation.change_help import CHANGE_HELP
from profkit.simulation.compiled_regions import compile_once, join_regions
from profkit.simulation.copies import load_with, pack_copies, pin_memory, small_uploads
from profkit.simulation.fusion import compile_model
from profkit.simulation.launching import capture, keep_memory, lift_waits, stack_reads
from profkit.simulation.layouts import (
    channels_last,
    fuse_attention,
    keep_activations,
)
from profkit.simulation.loops import repeated, vectorise
from profkit.simulation.optimizers import drop_gradients, foreach_optimizer, fuse_optimizer
from profkit.simulation.other_gpu import OtherGpu
from profkit.simulation.precision import align_matrices, autocast, to_fp32, use_tf32
from profkit.simulation.predict import Change, Step

__all__ = ["CHANGES", "LOADER_WORKERS", "ON", "Registered", "changes_named", "refusal"]

LOADER_WORKERS: Final = "loader-workers"
"""The change that takes a number: the processes that prepare batches."""
ON: Final = "on"
"""The change that takes a GPU."""

Unmet = Callable[[Step, Collection[str]], str | None]


class Registered(NamedTuple):
    """A change of the registry."""

    change: Change
    help: str
    """What it does, as an order."""
    unmet: Unmet
    """Why a step cannot have it beside other changes, or None where it can."""


_PRICED: Final[dict[str, tuple[Change, Unmet]]] = {
    "fp32": (to_fp32, needs.doubles),
    "no-checkpointing": (keep_activations, needs.recomputation),
    "fused-attention": (fuse_attention, needs.attention_by_hand),
    "channels-last": (channels_last, needs.planar_images),
    "aligned": (align_matrices, needs.misaligned_products),
    "tf32": (use_tf32, needs.fp32_products),
    "bf16": (autocast, needs.wide_types),
    "no-scaler": (debugging.drop_scaler, needs.any_of(debugging.scaler_kernels, "no GradScaler runs")),
    "foreach-optimizer": (foreach_optimizer, needs.optimizer_of_single_tensors),
    "fused-optimizer": (fuse_optimizer, needs.unfused_optimizer),
    "set-to-none": (drop_gradients, needs.zeroed_gradients),
    "vectorised-loops": (vectorise, needs.any_of(repeated, "no Python loop over a tensor was found")),
    "no-anomaly-mode": (debugging.drop_anomaly_checks, needs.any_of(debugging.anomaly_checks, "anomaly mode is off")),
    "stacked-reads": (stack_reads, needs.values_read_one_by_one),
    "no-sync": (lift_waits, needs.waits),
    "no-graph-breaks": (join_regions, needs.breaks),
    "no-recompilation": (compile_once, needs.recompilation),
    "compile": (compile_model, needs.eager_kernels),
    "pinned": (pin_memory, needs.pageable_batches),
    "packed-copies": (pack_copies, needs.any_of(small_uploads, "few small copies to the device")),
    "no-allocation": (keep_memory, needs.driver_allocations),
    "no-launch-blocking": (
        debugging.launch_freely, needs.any_of(debugging.finished_in_call, "launches do not wait for their kernels")
    ),
    "garbage-collection": (
        debugging.collect_later, needs.any_of(debugging.collections_of, "no collection of garbage was recorded in the step")
    ),
    "bf16-collectives": (parallel.narrow_collectives, needs.of_ranks(parallel.wide_collectives, "the collectives are in 16 bits")),
    "larger-buckets": (parallel.merge_buckets, needs.of_ranks(parallel.small_buckets, "no small collectives of gradients")),
    "no-unused-search": (
        parallel.stop_search, needs.any_of(parallel.unused_searches, "no needless search for unused parameters was found")
    ),
    "last-reduction": (
        parallel.reduce_last, needs.any_of(parallel.early_reductions, "no gradients are reduced in several micro-steps")
    ),
    "prefetched-parameters": (
        parallel.prefetch_parameters, needs.of_ranks(parallel.parameter_gathers, "no sharded parameters are gathered")
    ),
    "overlapped-collectives": (
        parallel.overlap_collectives,
        needs.any_of(parallel.collectives_on_compute_stream, "no collective runs on the compute stream"),
    ),
    "overlapped-copies": (
        parallel.overlap_copies, needs.any_of(parallel.copies_on_compute_stream, "no pinned copy runs on the compute stream")
    ),
    "cuda-graphs": (capture, needs.launches_without_waits),
}  # fmt: skip

CHANGES: Final[dict[str, Registered]] = {
    name: Registered(_PRICED[name][0], text, _PRICED[name][1])
    for name, text in CHANGE_HELP.items()
    if name in _PRICED
}
"""Earlier ones change what later ones see."""


def refusal(step: Step, name: str, others: Collection[str] = ()) -> str | None:
    """Why a step cannot have a change, or None where it can.

    Args:
        step: The recorded step.
        name: A key of `CHANGES`, `LOADER_WORKERS` or `ON`.
        others: Changes that are made with it: without its waits, a step can be a graph.
    """
    others_of = {LOADER_WORKERS: needs.fetching, ON: needs.known_gpu}
    unmet = others_of[name] if name in others_of else CHANGES[name].unmet
    return unmet(step, others)


def changes_named(
    names: Iterable[str], loader_workers: int | None = None, gpu: Gpu | None = None
) -> list[Change]:
    """The changes of these names, in the order of the table.

    Args:
        names: Keys of `CHANGES`.
        loader_workers: Processes that prepare batches beside the step; None leaves loading as it is.
        gpu: The GPU that the step runs on, last; None is its own.
    """
    wanted = set(names)
    chosen = [each.change for name, each in CHANGES.items() if name in wanted]
    loading = [load_with(loader_workers)] if loader_workers is not None else []
    return [*loading, *chosen, *([OtherGpu(gpu)] if gpu is not None else [])]
