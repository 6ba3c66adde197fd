"""Rules about streams: copies and collectives that share the computing stream, what nothing orders, and what takes turns."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.model import CopyKind
from profkit.model.kernel_class import Family
from profkit.simulation.collectives import exposed_ns
from profkit.simulation.parallel import collectives_on_compute_stream, copies_on_compute_stream
from profkit.simulation.preconditions import graphed
from profkit.timeline.intervals import Intervals
from profkit.timeline.range_names import matching
from profkit.units import duration_text, noun_text, percent_text

__all__ = ["RULES"]

Flags = NDArray[np.bool_]

_ORDERS: Final = re.compile(r"WaitEvent|Synchronize|EventQuery|StreamQuery")
_NOTABLE = 0.02
"""Of the step."""
_TURNS = 0.1
_OVERLAPPED = 0.05
"""Of the smaller stream's time: with less beside the other's, two streams take turns."""


def _copies(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.once(copies_on_compute_stream)
    alone = float(exposed_ns(facts, chosen).sum())
    if alone < _NOTABLE * case.step.plain_ns:
        return None
    rest = case.step.plain_ns - alone
    little = (
        f" The rest of the step takes only {duration_text(rest)}, so no more can be hidden."
        if rest < alone
        else ""
    )
    return Evidence(
        f"Copies between host and device run on the compute stream, alone for {duration_text(alone)} of the step. On a "
        f"stream of their own, they can overlap with kernels.{little}",
        kernels_seen(facts, chosen),
        ["overlapped-copies"],
    )


def _collectives(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.once(collectives_on_compute_stream)
    alone = float(exposed_ns(facts, chosen).sum())
    if alone < _NOTABLE * case.step.plain_ns:
        return None
    return Evidence(
        f"Collectives run on the compute stream, alone for {duration_text(alone)} of the step. No kernel of that stream can "
        "overlap with them.",
        kernels_seen(facts, chosen),
        ["overlapped-collectives"],
        "low",
    )


def _turns(case: Case) -> Evidence | None:
    facts, gpu = case.facts, case.facts.gpu
    operations, rows = facts.view.trace.operations, facts.program.row
    kernels = np.array([k is not None and not k.is_collective for k in facts.kernels], bool)
    streams = np.unique(operations.stream[rows[kernels]])
    if gpu is None or not gpu.sm_count or len(streams) < 2:
        return None
    parts = [kernels & (operations.stream[rows] == each) for each in streams.tolist()]
    when = [Intervals.of(operations.start_ns[rows[p]], operations.end_ns[rows[p]]) for p in parts]
    order = np.argsort([-each.total_ns for each in when], kind="stable")
    first, second = (int(at) for at in order[:2])
    beside = when[first].intersection(when[second]).total_ns
    if beside > _OVERLAPPED * when[second].total_ns or when[second].total_ns < _TURNS * case.step.plain_ns:
        return None
    grid = np.ones(facts.count)
    for side in ("grid_x", "grid_y", "grid_z"):
        grid *= np.maximum(getattr(operations, side)[rows], 1)
    narrow = (grid < gpu.sm_count / 2) & (operations.grid_x[rows] > 0)
    if facts.share(parts[second] & narrow) < 0.5 * facts.share(parts[second]):
        return None
    return Evidence(
        f"Kernels on two streams rarely overlap, although those of the second "
        f"({percent_text(when[second].total_ns / case.step.plain_ns)} of the step) leave most of the GPU free. They wait for "
        "each other, or are launched too late.",
        kernels_seen(facts, parts[second]),
        None,
        "low",
    )


def _unordered(case: Case) -> Evidence | None:
    """Work on a side stream that nothing orders: no wait of a stream or of the host in the whole recording."""
    facts, trace = case.facts, case.view.trace
    operations, rows = trace.operations, facts.program.row
    if graphed(case.step) or not case.view.steps.count or len(case.view.waits):
        return None
    if matching(trace.strings, trace.calls.name, lambda name: _ORDERS.search(name) is not None).any() or len(
        trace.syncs
    ):
        return None
    stream, collective = operations.stream[rows], facts.of_family(Family.COMMUNICATION)
    kernels = np.array([k is not None for k in facts.kernels], bool) & ~collective
    known, counts = np.unique(stream[kernels], return_counts=True)
    if not len(known):
        return None
    aside = (stream != known[np.argmax(counts)]) & ~collective
    uploads = aside & (operations.copy_kind[rows] == CopyKind.HTOD)
    if not uploads.any():
        return None
    return Evidence(
        f"{noun_text(int(uploads.sum()), 'copy')} per step to the device run on a stream of their own. The file has no wait for "
        "them: neither cudaStreamWaitEvent nor a synchronisation. Kernels may read data that is only half copied.",
        kernels_seen(facts, uploads),
        None,
        "low",
    )


_STREAMS = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams"

RULES = (
    Rule(
        "copies-beside-kernels", "Copy on a separate stream", _copies,
        "Copy the next batch on a side stream during the current step, and wait for it before its use.",
        "with torch.cuda.stream(side):\n    following = batch.to(device, non_blocking=True)\ntorch.cuda.current_stream().wait_stream(side)   # before its use\nfollowing.record_stream(torch.cuda.current_stream())",
        "The copies overlap with kernels.",
        ("Host memory must be pinned.", "Without wait_stream and record_stream, the data may be half-written or reused."), _STREAMS,
        change="overlapped-copies",
    ),
    Rule(
        "collectives-beside-kernels", "Overlap collectives with the backward pass", _collectives,
        "Use DistributedDataParallel, or start each collective with async_op=True as soon as its gradient is ready.",
        "work = dist.all_reduce(grad, async_op=True)   # on NCCL's own stream\n...                                           # backward goes on\nwork.wait()",
        "Collectives run on their own stream and overlap with backward kernels.",
        ("Collectives that start after the whole backward pass have nothing to overlap with.",), "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        change="overlapped-collectives",
    ),
    Rule(
        "unordered-copies", "Wait for the copies of the other stream", _unordered,
        "Let the computing stream wait before it uses what was copied, and tell the allocator that it does.",
        "torch.cuda.current_stream().wait_stream(side)   # before the batch is used\nbatch.record_stream(torch.cuda.current_stream())",
        "cudaStreamWaitEvent appears once per step.",
        ("A file that was cut or filtered may lack the calls that wait.",), _STREAMS,
    ),
    Rule(
        "streams-take-turns", "Overlap the two streams", _turns,
        "Launch both sides before waiting for either, and wait once at the end. Keep work off the default stream if other streams wait for it.",
        "side.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(side):\n    b = right(x)\na = left(x)                                  # launched before anything waits\ntorch.cuda.current_stream().wait_stream(side)",
        "The timeline shows kernels of both streams at the same time.",
        ("Where one kernel fills the GPU, two at a time are no faster.", "In a host-bound step, both sides are launched one after the other anyway."), _STREAMS,
    ),
)  # fmt: skip
