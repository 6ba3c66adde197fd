"""Replay a program: the host runs its tokens, the device what they launch, until the period is steady."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.step_program import LAUNCH, Program

__all__ = [
    "DEVICE_ALONE",
    "QUEUE_DEPTH",
    "RecorderCost",
    "Replay",
    "replay",
    "slower_host",
    "without_recorder",
]

QUEUE_DEPTH: Final = 1_024
"""Launches that may wait on the device before a launch call blocks (seen as Command Buffer Full)."""

_ROUNDS: Final = 4
"""Times that a program is run, where it is not steady before."""

_SAME_NS: Final = 1e-3

DEVICE_ALONE: Final = 0.95
"""Of the plain step: what the replay is off by."""
_MOST_SLOWED: Final = 8.0
"""An estimate is no worse than that: a quarter of each host event is left at least."""


@dataclass(frozen=True)
class Replay:
    """What a replayed step took."""

    step_ns: float
    """The period between two steps, once steady."""
    device_busy_ns: float
    """The summed time of its operations."""
    host_ns: float
    """The host's own time, waits left out."""


def replay(program: Program) -> Replay:
    """The steady period of a program that is run over and over.

    An operation starts when its launch has returned (plus the launch latency), the operation before it on its
    stream and the one it waits for on another stream are done. A wait holds the host until the streams that it waits
    for are done, a copy that is held until its stream is.
    """
    ends, host = _run(program)
    device = float(program.duration_ns.sum())
    own = float((program.gap_ns + program.own_ns).sum())
    last, before = max(ends[-1], host[-1]), max(ends[-2], host[-2])
    # The first rounds still fill the queue; the distance of the last two is the period.
    return Replay(last - before, device, own)


def _run(program: Program) -> tuple[list[float], list[float]]:
    kind, gap, own = program.kind.tolist(), program.gap_ns.tolist(), program.own_ns.tolist()
    first, duration, stream = program.first.tolist(), program.duration_ns.tolist(), program.stream.tolist()
    lead, after, early = program.lead_ns.tolist(), program.after.tolist(), program.early_ns.tolist()
    latency, held, unawaited = program.latency_ns, program.held.tolist(), program.unawaited.tolist()
    free = [0.0] * (max(stream, default=0) + 1)
    history: list[float] = []
    host, done = 0.0, 0.0
    ends, hosts, last = [], [], list[float]()
    for _ in range(_ROUNDS):
        end = [0.0] * len(duration)
        for token in range(len(kind)):
            host += gap[token]
            if kind[token] != LAUNCH:
                awaited = _awaited(free, unawaited[token]) if unawaited[token] else done
                host = (awaited if awaited > host else host) + own[token]
                continue
            if held[token]:
                host = max(host, free[stream[first[token]]])
            host += own[token]
            if len(history) >= QUEUE_DEPTH and history[-QUEUE_DEPTH] > host:
                host = history[-QUEUE_DEPTH]
            for each in range(first[token], first[token + 1]):
                line = stream[each]
                ready = host + latency - (early[each] if early[each] < own[token] else own[token])
                ready = free[line] if free[line] > ready else ready
                if after[each] >= 0 and end[after[each]] > ready:
                    ready = end[after[each]]
                end[each] = free[line] = ready + lead[each] + duration[each]
                if end[each] > done:
                    done = end[each]
            history.append(done)
        ends.append(done)
        hosts.append(host)
        if _is_steady(end, last, hosts, done - host):
            break
        last = end
    return ends, hosts


def _awaited(free: list[float], lines: int) -> float:
    """When all streams are free but those of some bits."""
    return max((ns for line, ns in enumerate(free) if not lines >> line & 1), default=0.0)


def _is_steady(end: list[float], last: list[float], hosts: list[float], lag_ns: float) -> bool:
    """Whether a round was the one before, a period later: then the next one is too, as long as the queue has room."""
    if len(hosts) < 2 or lag_ns > hosts[-1] - hosts[-2]:
        return False
    period = hosts[-1] - hosts[-2]
    return all(abs(now - before - period) < _SAME_NS for now, before in zip(end, last, strict=True))


@dataclass(frozen=True)
class RecorderCost:
    """What a recorder took of the host's time, an estimate."""

    range_ns: float
    """For each range."""
    call_ns: float
    """For each call of the CUDA runtime or driver."""


def without_recorder(
    program: Program, cost: RecorderCost, plain_step_ns: int | None = None, host: float = 1.0
) -> Program:
    """The program as it would run without the recorder.

    Args:
        program: As recorded.
        cost: What the recorder took for each host event.
        plain_step_ns: The step's time without the recorder: then the host is scaled until the replay gives it, to what
            a replay is off by. Nearer is no better: of a step that waits for its device it hardly tells one host from
            another.
        host: A factor on the estimated time of the host.

    Returns:
        The program with a faster host, or as it was recorded where a known plain time is no shorter.
    """
    estimated = _without_recorder(program, cost, host)
    if plain_step_ns is None:
        return estimated
    length = replay(estimated).step_ns
    alone = replay(slower_host(program, 0.0)).step_ns
    least, most = DEVICE_ALONE * plain_step_ns, max(plain_step_ns / DEVICE_ALONE, alone * 1.02)
    if least <= length <= most:
        return estimated
    if replay(program).step_ns <= plain_step_ns:
        return program
    return _slowed_to(estimated, least if length < least else most)


def _slowed_to(program: Program, step_ns: float) -> Program:
    """The program with its host's time scaled, up or down, until the replay takes so long."""
    low, high = 0.0, 1.0
    while high < _MOST_SLOWED and replay(slower_host(program, high)).step_ns < step_ns:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if replay(slower_host(program, middle)).step_ns < step_ns else (low, middle)
        )
    return slower_host(program, (low + high) / 2)


def _without_recorder(program: Program, cost: RecorderCost, host: float) -> Program:
    """Take the recorder's time for its events off the gaps and calls that hold them; most of each is left."""
    taken = program.ranges * cost.range_ns + program.calls * cost.call_ns
    least = 0.25
    whole = program.gap_ns + program.own_ns
    left = np.maximum(whole - taken, whole * least) / np.maximum(whole, 1)
    return _times(program, left * host)


def slower_host(program: Program, factor: float) -> Program:
    """The program with the host's own time times a factor."""
    return _times(program, np.full(program.tokens, factor))


def _times(program: Program, factor: NDArray[np.float64]) -> Program:
    """Scale the host's own time; fetching data and the program's own work are not the recorder's doing and stay."""
    fixed = np.minimum(program.input_ns + program.work_ns, program.gap_ns)
    gap = fixed + ((program.gap_ns - fixed) * factor)
    return replace(program, gap_ns=gap.astype(np.int64), own_ns=(program.own_ns * factor).astype(np.int64))
