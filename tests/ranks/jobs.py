"""Jobs of several ranks spelled out in code: each rank computes, meets the others in a collective, and goes on."""

from dataclasses import dataclass, replace

import numpy as np

from profkit.model import Collectives, Process, Trace
from tests.builders import BACKWARD, GEMM, MAIN, TraceBuilder

MS = 1_000_000
US = 1_000
EPOCH = 1_790_000_000_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMM_STREAM = 17


@dataclass
class Rank:
    """How one rank of a job differs from the others."""

    number: int
    compute_ns: tuple[int, ...] = (10 * MS,)
    """The kernel before each collective of a step."""
    sleep_ns: int = 0
    """The host sleeps so long at the start of every step."""
    sleeps_in: tuple[int, ...] | None = None
    """... or of these steps only."""
    clock_ns: int = 0
    """What the rank's clock shows more than the common time."""
    epoch_ns: int | None = EPOCH
    first_lost: int = 0
    """Leading collectives that its recording lacks."""
    lost: tuple[int, ...] = ()
    """Others that it lacks, by number."""


def job(ranks, *, steps=3, transfer_ns=500 * US, marked=True, name=ALL_REDUCE, ends_ns=None, **columns):
    """The traces of a job: in each step every rank runs a kernel, then a collective that waits for the last rank.

    Args:
        ranks: The ranks.
        steps: Steps that are recorded.
        transfer_ns: How long a collective takes once all are in it.
        marked: Whether steps are marked.
        name: The collective's kernel.
        ends_ns: What is added to the end of a rank's collective, by rank.
        columns: What the file says of every collective (`Collectives`).
    """
    free = dict.fromkeys([r.number for r in ranks], 0)
    builders = {r.number: TraceBuilder(format="kineto") for r in ranks}
    told = {r.number: 0 for r in ranks}
    meetings = len(ranks[0].compute_ns)
    for step in range(steps):
        began = dict(free)
        for at in range(meetings):
            enter = {r.number: _compute(builders[r.number], r, free[r.number], at, step) for r in ranks}
            last = max(enter.values())
            for rank in ranks:
                end = last + transfer_ns + (ends_ns or {}).get(rank.number, 0)
                free[rank.number] = end + 10 * US
                number = step * meetings + at
                if number >= rank.first_lost and number not in rank.lost:
                    clock = rank.clock_ns
                    launch = (enter[rank.number] - 20 * US + clock, enter[rank.number] - 10 * US + clock)
                    builders[rank.number].kernel(
                        enter[rank.number] + clock,
                        end + clock,
                        launch=launch,
                        thread=BACKWARD,
                        name=name,
                        stream=COMM_STREAM,
                    )
                    told[rank.number] += 1
        if marked:
            for rank in ranks:
                builders[rank.number].range(
                    began[rank.number] + rank.clock_ns,
                    free[rank.number] - 5 * US + rank.clock_ns,
                    f"ProfilerStep#{step + 1}",
                )
    return [_finished(builders[r.number].trace(), r, columns) for r in ranks]


def _compute(builder, rank, free, at, step):
    """A kernel on the compute stream that no other of the step is like; when it is over, the collective can start."""
    sleeps = at == 0 and (rank.sleeps_in is None or step in rank.sleeps_in)
    start = free + 60 * US + (rank.sleep_ns if sleeps else 0)
    end = start + rank.compute_ns[at]
    clock = rank.clock_ns
    launch = (start - 40 * US + clock, start - 30 * US + clock)
    builder.kernel(start + clock, end + clock, launch=launch, thread=MAIN, name=f"{GEMM}_{at}")
    return end


def _finished(trace: Trace, rank: Rank, columns) -> Trace:
    collectives = np.flatnonzero(trace.operations.stream == COMM_STREAM)
    strings = list(trace.strings)
    said = Collectives.empty()
    if columns:
        texts = {"name", "dtype", "group"}
        values = {}
        for key, value in columns.items():
            if key in texts:
                strings.append(value)
                value = len(strings) - 1
            values[key] = np.full(len(collectives), value)
        said = Collectives.of(len(collectives), operation=collectives, **values)
    return replace(
        trace,
        strings=strings,
        collectives=said,
        processes=[Process(100 + rank.number, rank.number)],
        source=replace(trace.source, name=f"rank{rank.number}.json", rank=rank.number),
        unix_epoch_ns=rank.epoch_ns,
    )
