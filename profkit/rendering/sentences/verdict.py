"""The verdict in words: what limits the step, what may make that wrong, and what to record instead."""

from __future__ import annotations

from typing import Final

from profkit.model.findings import Fact
from profkit.model.report import Report
from profkit.model.report_verdict import Verdict
from profkit.rendering.sentences.labels import share_label
from profkit.rendering.sentences.memory import memory_sentence
from profkit.rendering.sentences.ranks import straggler_caveats, straggler_sentence
from profkit.rendering.sentences.wording import Table, say
from profkit.units import duration_text, percent_text

__all__ = ["verdict_caveats", "verdict_remedy", "verdict_sentence"]

_BOUNDS: Final = {
    "compute": "{subject} is compute-bound: the GPU spends {share} of {time} in compute-bound kernels",
    "memory": "{subject} is memory-bound: the GPU spends {share} of {time} in memory-bound kernels and copies",
    "launch": "{subject} is launch-bound: launch overhead takes {share} of {time}, {how}",
    "host_work": "{subject} is bound by host work: the GPU is idle for {share} of {time} while the host does other work",
    "sync": "{subject} is bound by synchronisation: the GPU is idle after host synchronisation for {share} of {time}",
    "input": "{subject} is input-bound: the GPU waits for data for {share} of {time}",
    "communication": "{subject} is communication-bound: exposed communication takes {share} of {time}",
    "transfer": "{subject} is bound by host copies: exposed copies to or from the host take {share} of {time}",
    "other": "The GPU is idle for {share} of {time}, mostly {how}",
    "unclassified": "The bottleneck is unknown: {share} of {time} is GPU work that this file does not identify",
}

_CAUSES: Final = {
    "host": "mostly waiting for the host to launch",
    "queue": "mostly launch gaps between very short kernels",
    "small_kernels": "mostly kernels too short to do useful work",
    "initialisation": "because CUDA initialises or loads kernels",
    "allocation": "because of memory allocation (cudaMalloc, cudaFree)",
    "compilation": "because kernels are compiled",
    "capture": "because CUDA graphs are captured",
    "profiler": "because of the profiler itself",
    "dependency": "waiting for other streams, events or copies",
    "tail": "after the last kernel",
    "unknown": "for a reason that the file does not show",
}

_UNDECIDED: Final[Table] = {}

_REMEDIES: Final[Table] = {}

_DOUBTS: Final[Table] = {}


def verdict_sentence(report: Report) -> str:
    """The verdict with its number, as one sentence."""
    verdict = report.verdict
    if verdict.undecided is not None or verdict.bound == "unknown":
        return _undecided_sentence(report)
    return straggler_sentence(verdict) or _bound_sentence(report, verdict)


def verdict_remedy(report: Report) -> str | None:
    """What to record instead, where the files cannot decide."""
    fact = report.verdict.undecided
    return _said(_REMEDIES, fact) if fact is not None else None


def verdict_caveats(report: Report) -> list[str]:
    """What may make the verdict another one."""
    said = [_said(_DOUBTS, fact) for fact in report.verdict.doubts]
    return [*said, *straggler_caveats(report.verdict)]


def _said(table: Table, fact: Fact) -> str:
    return say(table[fact.code], fact.params)


def _undecided_sentence(report: Report) -> str:
    if report.memory is not None and not report.devices:
        return memory_sentence(report.memory)
    fact = report.verdict.undecided
    reason = _said(_UNDECIDED, fact) if fact is not None else "no time was recorded"
    return f"This recording cannot show the bottleneck: {reason}."


def _bound_sentence(report: Report, verdict: Verdict) -> str:
    subject, time = _subject(report)
    text = _BOUNDS[verdict.bound].format(
        subject=subject, time=time, share=percent_text(verdict.share), how=_CAUSES[verdict.cause or "unknown"]
    )
    close = verdict.runner_up
    if close is None:
        return f"{text}."
    return f"{text}; {share_label(close.bound).lower()} is close behind with {percent_text(close.share)}."


def _subject(report: Report) -> tuple[str, str]:
    """What the sentence is about, and how long it takes: the unprofiled step, the recorded one, or the recording."""
    step, verdict = report.step, report.verdict
    if verdict.step_count is None:
        return "The recording", duration_text(report.window.device_ns / (verdict.device_count or 1))
    if step is not None and step.unprofiled_ns is not None:
        return "The step", f"its {duration_text(step.unprofiled_ns.likely)}"
    each = report.window.device_ns / (verdict.step_count or 1) / (verdict.device_count or 1)
    return "The step", f"its {duration_text(each)}"
