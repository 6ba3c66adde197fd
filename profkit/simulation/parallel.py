"""What is done among ranks: which collectives are gradients, parameters or messages, and each kind done better."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.kernel_class import Family
from profkit.ranks.collective_table import describe_communication
from profkit.simulation.collectives import asked_earlier, beside_kernels, shrunk
from profkit.simulation.copies import copies_between, on_own_stream, pageable_copies
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.exchanged import transfer_ns
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.launching import without_ranges
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = [
    "all_to_alls_of",
    "SEARCH", "SMALL_NS", "collectives_of", "collectives_on_compute_stream", "copies_on_compute_stream", "counts_of", "early_reductions",
    "forward_passes", "gradients_of", "kernel_named", "merge_buckets", "messages_of", "narrow_collectives",
    "of_one_rank", "on_compute_stream", "overlap_collectives", "overlap_copies", "parameter_gathers", "prefetch_parameters", "ranges_named",
    "reduce_last", "small_buckets", "stop_search", "transfer_of", "unused_searches", "wide_collectives", "wrapper_of",
]  # fmt: skip

_WRAPPERS: Final[Mapping[str, str]] = {
    "fsdp2": r"FSDP::.*|fsdp::.*",
    "fsdp": r"FullyShardedDataParallel\..*",
    "ddp": r"DistributedDataParallel\..*|torch\.distributed\.ddp\.reducer::.*",
}
SEARCH: Final = "torch.distributed.ddp.reducer::search_unused_parameters"
_WHOLE: Final = re.compile(r"nccl\w{0,64}_[iu](?:32|64)(?:_|\b)")
_ACCUMULATED: Final = "torch::autograd::AccumulateGrad"
SMALL_NS: Final = 60_000
"""Latency limits what is shorter, not bandwidth."""
_MERGED: Final = 8

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


def collectives_of(facts: StepFacts) -> Flags:
    """Operations of the step in which all ranks of a group take part."""
    found: Flags = facts.of_family(Family.COMMUNICATION) & ~facts.once(messages_of)
    return found


def messages_of(facts: StepFacts) -> Flags:
    """Sends and receives between two ranks, as the stages of a pipeline have."""
    return _of_kind(facts, "send_recv")


def all_to_alls_of(facts: StepFacts) -> Flags:
    """Collectives in which each rank sends something else to every other."""
    return _of_kind(facts, "all_to_all")


def _of_kind(facts: StepFacts, kind: str) -> Flags:
    described = describe_communication(facts.view)
    chosen = np.array([key[0] == kind for key in described.keys] or [False])[described.kind]
    found: Flags = np.isin(facts.program.row, described.rows[chosen])
    return found


def of_one_rank(facts: StepFacts) -> bool:
    """Whether collectives of only one rank were recorded: what of them is waiting for another rank is unknown."""
    return facts.exchanged.devices < 2


def transfer_of(facts: StepFacts) -> Floats:
    """What each collective takes once all ranks are there."""
    return transfer_ns(facts.exchanged, facts.view, facts.program)


def wrapper_of(facts: StepFacts) -> str:
    """What shares the model among the ranks, by its ranges, else by its collectives: ``ddp``, ``fsdp``, ``fsdp2`` or ""."""
    for wrapper, ranges in _WRAPPERS.items():
        if ranges_named(facts, ranges).any():
            return wrapper
    both = kernel_named(facts, "reducescatter").any() and kernel_named(facts, "allgather").any()
    return "fsdp2" if both else ""


def ranges_named(facts: StepFacts, wanted: str) -> Flags:
    """Ranges whose name matches, whole."""
    pattern, trace = re.compile(wanted), facts.view.trace
    return matching(trace.strings, trace.ranges.name, lambda name: pattern.fullmatch(name) is not None)


def kernel_named(facts: StepFacts, word: str) -> Flags:
    """Operations of the step with a word in their kernel's name."""
    names = facts.view.trace.names(facts.view.trace.operations.name[facts.program.row])
    return np.array([word in n.lower().replace("_", "") for n in names], bool)


def wide_collectives(facts: StepFacts) -> Flags:
    """Those of 32-bit elements, or of a type that is not known."""
    found: Flags = facts.once(collectives_of) & np.isin(facts.dtype.astype(str), ("fp32", ""))
    return found


def narrow_collectives(edited: EditedStep) -> None:
    """Half the bytes take half the transfer; waiting for a late rank stays."""
    facts = edited.facts
    shrunk(facts.once(wide_collectives), 0.5 * facts.once(transfer_of))(edited)


def parameter_gathers(facts: StepFacts) -> Flags:
    """All-gathers of sharded parameters."""
    sharded = kernel_named(facts, "reducescatter").any() or facts.once(wrapper_of).startswith("fsdp")
    found: Flags = facts.once(collectives_of) & kernel_named(facts, "allgather")
    return found if sharded else np.zeros(facts.count, bool)


def prefetch_parameters(edited: EditedStep) -> None:
    """Parameters are gathered a layer ahead."""
    facts = edited.facts
    asked_earlier(facts.once(parameter_gathers), facts.once(transfer_of))(edited)


def unused_searches(facts: StepFacts) -> Flags:
    """Rows of `Trace.ranges`: DDP's searches for unused parameters within the step, if none is unused.

    The flags that are reduced are one a parameter: with fewer gradients, some parameters are unused.
    """
    ranges, (since, until) = facts.view.trace.ranges, facts.host_span
    searches = ranges_named(facts, SEARCH)
    inside: Flags = searches & (ranges.start_ns >= since) & (ranges.start_ns < until)
    flags, gradients = _flags(facts.view), gradients_of(facts, searches)
    return np.zeros_like(inside) if 0 < gradients < flags else inside


def gradients_of(facts: StepFacts, searches: Flags) -> float:
    """Gradients of a step, by the nodes that accumulate them; 0 is unknown."""
    return float(ranges_named(facts, _ACCUMULATED).sum() / max(searches.sum(), 1))


def counts_of(facts: StepFacts) -> Flags:
    """Collectives of whole numbers, by what the file says or by the kernel's name."""
    trace, rows = facts.view.trace, facts.program.row
    said = trace.collectives.operation[_whole_numbers(facts.view)]
    names = trace.names(trace.operations.name[rows])
    whole = np.isin(rows, said) | np.array([bool(_WHOLE.search(n)) for n in names], bool)
    found: Flags = facts.once(collectives_of) & whole
    return found


def stop_search(edited: EditedStep) -> None:
    """No search, and no reduction of its result."""
    without_ranges(edited.facts.once(unused_searches))(edited)
    edited.drop(edited.facts.once(counts_of))


def _whole_numbers(view: TraceView) -> Flags:
    names = ("int", "int32", "long", "int64")
    return matching(view.trace.strings, view.trace.collectives.dtype, lambda name: name.lower() in names)


def _flags(view: TraceView) -> int:
    """Elements of the largest collective of whole numbers; 0 is unknown."""
    return int(view.trace.collectives.in_elements[_whole_numbers(view)].max(initial=0))


def small_buckets(facts: StepFacts) -> Flags:
    """Short collectives that may be those of DDP: no other wrapper, and mostly in the backward pass."""
    small = facts.once(collectives_of) & (facts.program.duration_ns < SMALL_NS)
    wrapper = facts.once(wrapper_of)
    backward = not facts.trains or bool(2 * (small & facts.backward).sum() >= small.sum())
    gradients = wrapper == "ddp" if wrapper else backward
    return small if gradients else np.zeros(facts.count, bool)


def merge_buckets(edited: EditedStep) -> None:
    """Several in one: what longer ones take beyond the shortest, which has the least to send, is bandwidth, and stays."""
    facts = edited.facts
    small = facts.once(small_buckets)
    if not small.any():
        return
    first = small & (np.cumsum(small) % _MERGED == 1)
    transfer = facts.once(transfer_of)
    sent = np.where(small, transfer - transfer[small].min(), 0.0)
    bucket = np.where(small, np.cumsum(first), 0)
    kept = np.bincount(bucket, sent)[bucket] - sent
    edited.drop(small & ~first)
    edited.duration_ns = np.where(first, edited.duration_ns + kept, edited.duration_ns)


def forward_passes(facts: StepFacts) -> NDArray[np.int64]:
    """When DDP's forward passes of the step begin, in ns, ascending; none where no backward pass follows each.

    Two that follow each other are of two models.
    """
    ranges, launches, rows = facts.view.trace.ranges, facts.view.launches, facts.program.row
    since, until = launches.time_ns[rows].min(), launches.return_ns[rows].max()
    forward = ranges_named(facts, r"DistributedDataParallel\.forward")
    begun = np.sort(ranges.start_ns[forward & (ranges.start_ns >= since) & (ranges.start_ns < until)])
    launched = np.sort(launches.time_ns[rows][facts.backward])
    alternating = bool((np.diff(np.searchsorted(launched, begun)) > 0).all())
    return begun if alternating else begun[:0]


def early_reductions(facts: StepFacts) -> Flags:
    """Reductions of gradients in all micro-steps but the last."""
    chosen, passes = (
        np.flatnonzero(facts.once(collectives_of) & facts.backward),
        len(facts.once(forward_passes)),
    )
    early = np.zeros(facts.count, bool)
    if passes >= 2 and len(chosen) >= passes:
        early[chosen[: len(chosen) * (passes - 1) // passes]] = True
    return early


def reduce_last(edited: EditedStep) -> None:
    """Gradients are reduced in the last micro-step only."""
    edited.drop(edited.facts.once(early_reductions))


def on_compute_stream(facts: StepFacts) -> Flags:
    """Operations on the stream where kernels take most time."""
    stream = facts.program.stream
    kernels = np.array([k is not None and not k.is_collective for k in facts.kernels], bool)
    if not kernels.any():
        return kernels
    time = np.bincount(stream[kernels], facts.program.duration_ns[kernels])
    found: Flags = stream == int(np.argmax(time))
    return found


def collectives_on_compute_stream(facts: StepFacts) -> Flags:
    """Collectives that no kernel of their own stream can overlap with."""
    communication = np.array([k is not None and k.is_collective for k in facts.kernels], bool)
    found: Flags = communication & facts.once(on_compute_stream)
    return found


def overlap_collectives(edited: EditedStep) -> None:
    """They run on a stream of their own."""
    beside_kernels(edited.facts.once(collectives_on_compute_stream))(edited)


def copies_on_compute_stream(facts: StepFacts) -> Flags:
    """Copies between host and device that no kernel of their own stream can overlap with."""
    found: Flags = copies_between(facts) & ~pageable_copies(facts) & facts.once(on_compute_stream)
    return found


def overlap_copies(edited: EditedStep) -> None:
    """They run on a stream of their own, for the step that follows."""
    on_own_stream(edited.facts.once(copies_on_compute_stream))(edited)
