"""Recordings of one program that follow each other, put one behind the other."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from profkit.verification.events import Call, Op, Recording

__all__ = ["joined"]


def joined(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings, with each that begins when another of its processes and devices was over added to that one."""
    found: list[Recording] = []
    for recording in recordings:
        before = next((other for other in found if _follows(recording, other)), None)
        if before is None:
            found.append(recording)
        else:
            _add(before, recording)
    return found


def _follows(later: Recording, earlier: Recording) -> bool:
    if (later.origin is None) != (earlier.origin is None) or _subject(later) != _subject(earlier):
        return False
    return earlier.edges()[1] + (earlier.origin or 0) <= later.edges()[0] + (later.origin or 0)


def _subject(recording: Recording) -> tuple[object, ...]:
    ops = recording.ops
    return recording.only_gives_operators, {op.process for op in ops}, {op.device for op in ops}


def _add(whole: Recording, part: Recording) -> None:
    """Move the events of a part to the clock of the whole, with correlation ids that the whole does not have."""
    shift = (part.origin or 0) - (whole.origin or 0)
    launched: list[Op | Call] = [*part.ops, *part.calls]
    ids = [each.correlation for each in (*launched, *whole.ops, *whole.calls)]
    first = max(ids, default=0) - min(ids, default=0) + 1
    for event in part.events():
        event.start += shift
        event.end += shift
    for each in launched:
        each.correlation += first if each.correlation else 0
    part.others = array("q", [time + shift for time in part.others])
    whole.resumed.append(part.edges()[0])
    whole.ops += part.ops
    whole.calls += part.calls
    whole.spans += part.spans
    whole.others.extend(part.others)
    whole.autograd |= part.autograd
    for thread, times in part.others_of.items():
        whole.others_of.setdefault(thread, array("q")).extend(time + shift for time in times)
    for thread, names in part.thread_names.items():
        whole.thread_names.setdefault(thread, names)
    whole.processes += [process for process in part.processes if process not in whole.processes]
    whole.devices += [device for device in part.devices if device not in whole.devices]
