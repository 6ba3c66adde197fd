"""Totals and what is said of them, worked out a second time from the raw files, and compared with a report.

The second way shares no line with the readers and the analysis beyond what takes off compression and the unpickler
that runs nothing: Python's own `json` and `sqlite3`, loops, dictionaries, whole numbers. It is slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from profkit.errors import ReadError
from profkit.model.findings import Finding, Param, Severity
from profkit.model.report import Report
from profkit.model.rows import replace as changed
from profkit.readers.registry import WITHOUT_TIMES, role_of
from profkit.readers.remote import shown_name
from profkit.rendering.document import Document
from profkit.rendering.document_of import said_findings
from profkit.rendering.sentences.verification import verification_lines
from profkit.verification.cycles import joined
from profkit.verification.events import Recording, UnreadError
from profkit.verification.figures import Figure, memory_figures, timeline_figures
from profkit.verification.inputs import read_input
from profkit.verification.snapshots import DeviceMemory
from profkit.verification.timeline import Timeline, left_out

__all__ = ["Verification", "verify", "with_verification"]


@dataclass
class Verification:
    """What was compared."""

    figures: list[Figure] = field(default_factory=list)
    """Names with both values."""
    unread: list[Finding] = field(default_factory=list)
    """Which files could not be compared, and why."""

    @property
    def differing(self) -> list[Figure]:
        """The figures of which report and files say different things."""
        return [figure for figure in self.figures if figure[1] != figure[2]]

    def lines(self) -> list[str]:
        """The result for a person: one line when all is well."""
        return verification_lines(len(self.figures), self.differing, self.unread)


def verify(
    report: Report,
    files: Sequence[str],
    *,
    step: str | None = None,
    device: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Work the totals of a report out again, from its files, and compare.

    Args:
        report: The report.
        files: The files that it was made of, in their order; those that it left out are skipped.
        step: The name of the steps that the report was asked for.
        device: The only device that the report was asked for.
        progress: Called with a few words before each file.
    """
    found = Verification()
    recordings: list[Recording] = []
    snapshots: list[list[DeviceMemory]] = []
    unread_timelines = False
    for file, format_ in _used(report, files):
        name = shown_name(file)
        if progress:
            progress(f"verifying {name} by brute force")
        try:
            read = read_input(file, step)
        except (UnreadError, ReadError) as error:
            found.unread.append(_unread(name, str(getattr(error, "problem", error))))
            unread_timelines |= getattr(error, "role", None) not in WITHOUT_TIMES
            continue
        except MemoryError:
            found.unread.append(_unread(name, None))
            unread_timelines = True
            continue
        if isinstance(read, list):
            snapshots.append(read)
        else:
            read.only_gives_operators = role_of(format_) == "operators"
            recordings.append(read)
    if snapshots:
        # A report has the memory of one snapshot: the one that it agrees with most is the one that it means.
        candidates = [memory_figures(report, devices) for devices in snapshots]
        found.figures += min(candidates, key=lambda figures: sum(f[1] != f[2] for f in figures))
    if any(row.code == "cycles-joined" for row in report.health.findings):
        recordings = joined(recordings)
    if recordings and not unread_timelines:
        found.figures += timeline_figures(report, _timelines(recordings, step, device, _damaged(report)))
    return found


def with_verification(document: Document, verification: Verification) -> Document:
    """The report with what was found as findings of its health."""
    wrong, compared = verification.differing, len(verification.figures)
    findings = list(verification.unread)
    if wrong:
        name, ours, theirs = wrong[0]
        params: Mapping[str, Param] = {
            "figures": compared,
            "name": name,
            "reported": str(ours),
            "recounted": str(theirs),
        }
        findings.insert(0, Finding("verification-failed", Severity.ERROR, count=len(wrong), params=params))
    elif compared:
        findings.insert(0, Finding("verified", Severity.INFO, count=compared))
    health, told = document.health, said_findings(findings)
    order = [*told, *health.findings] if wrong else [*health.findings, *told]
    return changed(document, health=changed(health, ok=health.ok and not wrong, findings=order))


def _unread(name: str, error: str | None) -> Finding:
    return Finding("not-verified", Severity.INFO, params={"file": name, "error": error})


def _used(report: Report, files: Sequence[str]) -> list[tuple[str, str]]:
    """The files that are in the report, with their formats; those that failed have no row in it."""
    left, used = list(files), []
    for row in report.inputs:
        file = next((f for f in left if row.path in (shown_name(f), "stdin" if f == "-" else None)), None)
        if file is not None:
            left.remove(file)
            used.append((file, row.format))
    return used


def _damaged(report: Report) -> set[int]:
    """The numbers of the steps that the report leaves out since records of them are missing."""
    found = [row.params["numbers"] for row in report.health.findings if row.code == "steps-damaged"]
    return {int(number) for numbers in found if isinstance(numbers, Sequence) for number in numbers}


def _timelines(
    recordings: Sequence[Recording], step: str | None, device: int | None, damaged: set[int]
) -> list[Timeline]:
    """The recordings that count: beside nsys exports, profiler traces only give shapes."""
    better = [recording for recording in recordings if not recording.only_gives_operators and recording.ops]
    timelines = [Timeline(recording, step, damaged=damaged) for recording in better or recordings]
    if device is not None:
        timelines = _only(timelines, device, step, damaged)
    stepped = [timeline.lengths() for timeline in timelines if timeline.number_of_steps and timeline.devices]
    count = min(map(len, stepped), default=0)
    kinds = next((timeline.kinds() for timeline in timelines if timeline.number_of_steps), [])
    total = [sum(lengths[number] for lengths in stepped) for number in range(count)]
    without = left_out(total, kinds[:count], {number for number in damaged if number < count})
    for timeline in timelines:
        # One step is always kept.
        all_out = len(without) >= timeline.number_of_steps
        timeline.left_out = without - {timeline.number_of_steps - 1} if all_out else without
    return timelines


def _only(timelines: Sequence[Timeline], device: int, step: str | None, damaged: set[int]) -> list[Timeline]:
    """The one device that was asked for: they are numbered over all recordings."""
    first = 0
    for timeline in timelines:
        at = device - first
        first += len(timeline.devices)
        if 0 <= at < len(timeline.devices):
            recording = timeline.recording
            ops = [op for op in recording.ops if op.device == timeline.devices[at]]
            return [
                Timeline(replace(recording, ops=ops, devices=[timeline.devices[at]]), step, damaged=damaged)
            ]
    return []
