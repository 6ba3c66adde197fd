"""Summaries of many files to one report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from profkit.advice import MOST_DEVICES
from profkit.advice.order import order_of
from profkit.memory import fullest, overlap, trace_memory_later
from profkit.model import Finding
from profkit.model.report import Report
from profkit.model.report_memory import Memory
from profkit.model.report_time import Timeline
from profkit.model.report_verdict import AdviceRow
from profkit.model.rows import replace
from profkit.report.assembly import report_of
from profkit.report.file_summary import FileSummary
from profkit.report.joining import Joined, Told
from profkit.report.part import Part
from profkit.timeline.steps import steps_left_out

__all__ = ["Merged", "common_left_out", "snapshot_told"]


def common_left_out(files: Sequence[FileSummary]) -> NDArray[np.bool_]:
    """Which steps the report leaves out; files that left out others are to be done again."""
    return steps_left_out(
        [f.step_device_ns for f in files], [f.kinds for f in files], [f.damaged for f in files]
    )


def snapshot_told(files: Sequence[FileSummary]) -> tuple[int, int | None] | None:
    """The snapshot whose memory is told, and the timeline that was recorded at the same time; None without a snapshot.

    One that was recorded during another file comes before the others, and of those the one with the highest peak.
    """
    at_once = {
        at: next((b for b, other in enumerate(files) if _at_once(snapshot, other)), None)
        for at, snapshot in enumerate(files)
        if snapshot.memory is not None and not snapshot.part.traces
    }
    known = [at for at, other in at_once.items() if other is not None] or list(at_once)
    if not known:
        return None
    peaks = {at: memory.peak_allocated_bytes or 0 for at in known if (memory := files[at].memory)}
    told = max(known, key=lambda at: peaks[at])
    other = at_once[told]
    return told, other if other is not None and files[other].part.traces else None


def _at_once(snapshot: FileSummary, other: FileSummary) -> bool:
    span, identity = snapshot.history_span, other.identity
    return span is not None and identity is not None and identity.timed and overlap(span, identity.span)


@dataclass(frozen=True, eq=False)
class Merged:
    """Files whose timelines are put together, of the same leading steps left out."""

    files: Sequence[FileSummary]
    joined: Joined
    first_trace: Sequence[int]
    """The number of the first trace of each file."""

    @classmethod
    def of(cls, files: Sequence[FileSummary]) -> Merged:
        """Put the timelines of some files together."""
        first = list(accumulate((len(f.part.traces) for f in files), initial=0))[:-1]
        return cls(files, Joined.of(Part.together([f.part for f in files])), first)

    def shown(self) -> set[int]:
        """The files whose advice and timeline the report has: those of the devices that did most."""
        work = [(-ns, at) for at in range(len(self.files)) for ns in self._paces_ns(at)]
        busiest = self.busiest
        return {at for _, at in sorted(work)[:MOST_DEVICES]} | ({busiest} if busiest is not None else set())

    def _paces_ns(self, file: int) -> list[int]:
        """For each device of a file, how much it has to do with the step's length."""
        found = self.files[file]
        return found.own_ns if self.joined.part.exchanged.devices > 1 else found.work_ns

    @property
    def busiest(self) -> int | None:
        """The file of the device that was busy longest."""
        busy = [max((d.busy_ns for t in f.part.traces for d in t.devices), default=-1) for f in self.files]
        return busy.index(max(busy)) if busy and max(busy) >= 0 else None

    def offset_ns(self, file: int) -> int:
        """What to add to a file's times to have report times."""
        return self.joined.offsets[self.first_trace[file]] if self.files[file].part.traces else 0

    def own_memory(self) -> Memory | None:
        """That of the fullest timeline, in the report's times."""
        return fullest(
            [
                trace_memory_later(f.memory, self.offset_ns(at))
                for at, f in enumerate(self.files)
                if f.memory and f.part.traces
            ]
        )

    def told(self, memory: Told, shown: Mapping[int, Told]) -> Told:
        """What the files shown tell together.

        Args:
            memory: What is told of the memory.
            shown: What each of them tells.
        """
        return Told(
            memory=memory.memory,
            fit=memory.fit,
            advice=_advice(
                [shown[at] for at in sorted(shown, key=lambda at: -max(self._paces_ns(at), default=0))]
            ),
            timeline=self._timeline(shown),
        )

    def report(self, told: Told, findings: Sequence[Finding] = ()) -> Report:
        """One report, whose tables are those of all files in one process.

        Args:
            told: What a few files tell for all.
            findings: What was found of the files together.
        """
        method = replace(
            next((f for f in self.files if f.part.traces), self.files[0]).method,
            steps_found=[count for f in self.files for count in f.method.steps_found],
            events=sum(f.method.events for f in self.files),
        )
        return report_of(self.joined, [f.facts for f in self.files], told, findings, method)

    def _timeline(self, told: Mapping[int, Told]) -> Timeline | None:
        at = self.busiest
        made = told[at].timeline if at is not None and at in told else None
        if at is None or made is None:
            return None
        return replace(made, device=made.device + self.joined.first_device[self.first_trace[at]])


def _advice(told: Iterable[Told]) -> list[AdviceRow]:
    """Each advice once, from the first file that has it; prices of the first alone, for which what-if answers."""
    found: dict[str, AdviceRow] = {}
    for at, each in enumerate(told):
        for row in each.advice:
            if not at or row.speedup is None:
                found.setdefault(row.id, row)
    return sorted(found.values(), key=order_of)
