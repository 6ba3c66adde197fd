"""Which recordings are of one device, which are one recording twice, and which are of another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from profkit.model import Finding, OperationKind, Operations, RangeKind, Ranges, Severity, Trace
from profkit.model.memory_history import MemoryHistory
from profkit.model.succession import one_after_another
from profkit.readers.registry import role_of
from profkit.roofline.kernel_names import classify
from profkit.timeline.view import Span, span_of

__all__ = ["Grouping", "Identified", "Identity", "grouped", "identified", "identity_of", "joined_recording"]

_ALIKE: Final = 0.5
"""Recordings of one program share so much of their time by the names of what ran."""

_NAMES_SHOWN: Final = 4


@dataclass(frozen=True, eq=False)
class Identity:
    """What a recording is of, small enough to be sent about."""

    name: str
    """The file's base name."""
    format: str
    ranks: tuple[int | None, ...]
    processes: tuple[int, ...]
    """What the operating system calls the processes that worked."""
    devices: frozenset[tuple[int, str | None, str | None]]
    """Ordinal, name and uuid of those that worked."""
    span: Span
    """From its first to its last event, in Unix time where that is known."""
    timed: bool
    """Whether Unix time is known."""
    work_ns: Mapping[str, int]
    """The time of kernels by name; of a recording without a device, of operators."""
    times: bytes
    """A digest of when they ran."""

    @property
    def subject(self) -> tuple[object, ...]:
        """What is the same of all recordings of one device; what it did may differ."""
        return self.format, self.ranks, self.processes, self.devices, self.timed

    def is_before(self, other: Identity) -> bool:
        """Whether it was over when the other began; not known without Unix times of both or of neither."""
        return self.timed == other.timed and self.span[1] <= other.span[0]

    def is_like(self, other: Identity) -> bool:
        """Whether both spend most of their time in the same things."""
        totals = [max(sum(each.work_ns.values()), 1) for each in (self, other)]
        shared = sum(
            min(ns / totals[0], other.work_ns[name] / totals[1])
            for name, ns in self.work_ns.items()
            if name in other.work_ns
        )
        return shared >= _ALIKE

    def repeats(self, other: Identity) -> bool:
        """Whether both are the same recording, however it is packed."""
        return (self.subject, self.span, self.times) == (other.subject, other.span, other.times)

    def excludes(self, other: Identity) -> bool:
        """Whether they cannot both be of one run, though nothing says that they are of different ranks."""
        if self.format != other.format or self._has_other_ranks(other):
            return False
        apart = self.is_before(other) or other.is_before(self)
        return apart and (self._shares_device(other) or not self.is_like(other))

    def _has_other_ranks(self, other: Identity) -> bool:
        known = None not in (*self.ranks, *other.ranks)
        return known and set(self.ranks).isdisjoint(other.ranks)

    def _shares_device(self, other: Identity) -> bool:
        return any(_is_same_device(a, b) for a in self.devices for b in other.devices)


def _is_same_device(
    one: tuple[int, str | None, str | None], other: tuple[int, str | None, str | None]
) -> bool:
    if one[2] is not None and other[2] is not None:
        return one[2] == other[2]
    return one[0] == other[0]


def identity_of(recording: Trace | MemoryHistory) -> Identity | None:
    """What a recording is of; None where it has no timeline of its own, or nothing happens in it."""
    if isinstance(recording, MemoryHistory) or role_of(recording.source.format) == "counters":
        return None
    work_ns, span = _work_ns(recording), span_of(recording)
    if not work_ns:
        return None
    epoch = recording.unix_epoch_ns
    processes = [recording.processes[at] for at in np.unique(recording.operations.process).tolist()]
    processes = processes or list(recording.processes)
    devices = [recording.devices[at] for at in np.unique(recording.operations.device).tolist()]
    return Identity(
        name=recording.source.name,
        format=recording.source.format,
        ranks=tuple(p.rank if p.rank is not None else recording.source.rank for p in processes),
        processes=tuple(sorted(p.pid for p in processes)),
        devices=frozenset((d.ordinal, d.name, d.uuid) for d in devices),
        span=(span[0] + (epoch or 0), span[1] + (epoch or 0)),
        timed=epoch is not None,
        work_ns=work_ns,
        times=blake2b(_worked(recording).start_ns.tobytes(), digest_size=16).digest(),
    )


def _worked(trace: Trace) -> Operations | Ranges:
    return trace.operations if len(trace.operations) else trace.ranges


def _work_ns(trace: Trace) -> dict[str, int]:
    table = _worked(trace)
    if isinstance(table, Ranges):
        chosen = table.kind == RangeKind.OPERATOR
    else:
        chosen = np.isin(table.kind, (OperationKind.KERNEL, OperationKind.GRAPH))
        chosen = chosen if chosen.any() else np.ones(len(table), bool)
    length = (table.end_ns - table.start_ns)[chosen]
    total = np.bincount(table.name[chosen] + 1, weights=length, minlength=1)
    work_ns = {trace.strings[at - 1] if at else "": int(total[at]) for at in np.flatnonzero(total).tolist()}
    # How long a collective takes is for most of it how late the other ranks are.
    classes = zip(work_ns, classify(list(work_ns)), strict=True)
    own = [name for name, kernel in classes if not kernel.is_collective]
    return {name: work_ns[name] for name in own or work_ns}


@dataclass(frozen=True)
class Grouping:
    """Which of several recordings are read together, by their numbers."""

    groups: Sequence[Sequence[int]]
    """Those of each group follow each other on one device."""
    findings: Sequence[Finding]


@dataclass(frozen=True, eq=False)
class _Chain:
    """Recordings of one device, in the order of time."""

    members: list[int]
    last: Identity

    def excludes(self, other: _Chain) -> bool:
        return self.last.excludes(other.last)


def grouped(identities: Sequence[Identity | None]) -> Grouping:
    """Group recordings by what they are of.

    Args:
        identities: One a recording; None for one that stands by itself.
    """
    known = [(at, identity) for at, identity in enumerate(identities) if identity is not None]
    known.sort(key=lambda pair: pair[1].span)
    chains: list[_Chain] = []
    repeated: list[str] = []
    for at, identity in known:
        if any(identity.repeats(chain.last) for chain in chains):
            repeated.append(identity.name)
            continue
        before = [chain for chain in chains if _is_next(chain, identity)]
        if before:
            chains.remove(before[0])
        chains.append(_Chain([*(before[0].members if before else ()), at], identity))
    kept, aside = _of_one_run(chains)
    groups = [[at] for at, identity in enumerate(identities) if identity is None]
    groups += [chain.members for chain in kept]
    return Grouping(
        sorted(groups, key=min),
        [
            *([Finding("file-repeated", Severity.WARNING, count=len(repeated))] if repeated else ()),
            *_joined_finding(kept),
            *_aside_finding(identities, kept, aside),
        ],
    )


def _is_next(chain: _Chain, identity: Identity) -> bool:
    last = chain.last
    return last.subject == identity.subject and last.is_before(identity) and last.is_like(identity)


def _of_one_run(chains: Sequence[_Chain]) -> tuple[list[_Chain], list[_Chain]]:
    """The newest recordings and those that can be of the same run; and the others."""
    kept: list[_Chain] = []
    aside: list[_Chain] = []
    for chain in sorted(chains, key=lambda chain: chain.last.span[1], reverse=True):
        (aside if any(chain.excludes(other) for other in kept) else kept).append(chain)
    return kept, aside


def _joined_finding(chains: Sequence[_Chain]) -> list[Finding]:
    files = sum(len(chain.members) for chain in chains if len(chain.members) > 1)
    return [Finding("cycles-joined", Severity.INFO, count=files)] if files else []


def _aside_finding(
    identities: Sequence[Identity | None], kept: Sequence[_Chain], aside: Sequence[_Chain]
) -> list[Finding]:
    if not aside:
        return []
    names = [each.name for chain in aside for at in chain.members if (each := identities[at]) is not None]
    read = next(chain.last.name for chain in kept if any(chain.excludes(other) for other in aside))
    return [
        Finding(
            "runs-set-aside",
            Severity.WARNING,
            count=len(names),
            params={"names": sorted(names)[:_NAMES_SHOWN], "newest": read},
        )
    ]


@dataclass(frozen=True)
class Identified:
    """The recordings of one run."""

    recordings: Sequence[Trace | MemoryHistory]
    """Those of one device as one."""
    read: Sequence[Sequence[Trace | MemoryHistory]]
    """Those that each was made from, in the order of time; none of another run."""
    findings: Sequence[Finding]


def identified(recordings: Sequence[Trace | MemoryHistory]) -> Identified:
    """Find out which recordings are of one run, and join those that follow each other on one device."""
    found = grouped([identity_of(recording) for recording in recordings])
    groups = [[recordings[at] for at in group] for group in found.groups]
    return Identified(
        recordings=[joined_recording(group) for group in groups],
        read=groups,
        findings=found.findings,
    )


def joined_recording(group: Sequence[Trace | MemoryHistory]) -> Trace | MemoryHistory:
    """A group of recordings as one."""
    traces = [recording for recording in group if isinstance(recording, Trace)]
    return one_after_another(traces) if len(traces) > 1 else group[0]
