"""The verdict in words: what limits the step, what may make that wrong, and what to record instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from profkit.model.findings import Fact
from profkit.model.report import Report
from profkit.model.report_verdict import Verdict
from profkit.rendering.sentences.labels import share_label
from profkit.rendering.sentences.memory import memory_sentence
from profkit.rendering.sentences.numerics import numerics_headline
from profkit.rendering.sentences.ranks import straggler_caveats, straggler_sentence
from profkit.rendering.sentences.wording import Params, Table, say
from profkit.units import duration_text, percent_text

__all__ = ["HARDLY_ANY", "verdict_caveats", "verdict_remedy", "verdict_sentence"]

_BOUNDS: Final = {
    "compute": "{subject} is compute-bound: the GPU spends {share} of {time} in compute-bound kernels",
    "memory": "{subject} is memory-bound: the GPU spends {share} of {time} in memory-bound kernels and copies",
    "launch": "{subject} is launch-bound: launch overhead takes {share} of {time}, {how}",
    "host_work": "{subject} is bound by host work: the GPU is idle during it for {share} of {time}",
    "sync": "{subject} is bound by synchronisation: the GPU is idle after host synchronisation for {share} of {time}",
    "input": "{subject} is input-bound: the GPU waits for data for {share} of {time}",
    "communication": "{subject} is communication-bound: exposed communication takes {share} of {time}",
    "transfer": "{subject} is bound by host copies: exposed host copies take {share} of {time}",
    "other": "Other idle time takes {share} of {time}, mostly {how}",
    "unclassified": "The bottleneck is unknown: {share} of {time} is GPU work that this file does not identify",
}

_CAUSES: Final = {
    "host": "mostly waiting for the host to launch",
    "queue": "mostly queue latency between very short kernels",
    "small_kernels": "mostly kernels too short to be useful",
    "initialisation": "because the GPU runtime initialises or loads kernels",
    "allocation": "because of memory allocation (calls like cudaMalloc)",
    "compilation": "because kernels are compiled",
    "capture": "because CUDA graphs are captured",
    "profiler": "because of the profiler itself",
    "dependency": "waiting for other streams, events or copies",
    "tail": "after the last kernel",
    "unknown": "for a reason that the file does not show",
}

_UNDECIDED: Final[Table] = {
    "memory-only": "a memory snapshot has no kernel times",
    "counters-only": "hardware counters of single kernels show no idle time",
    "no-kernel-records": "its {launches:launch has|launches have} no kernel record, so all GPU activity is missing",
    "no-gpu-events": "it has no GPU events",
    "no-events": "it has no CPU or GPU events",
    "impossible-times": "most GPU times are impossible, because operations overlap later ones on the same stream",
    "graphs-opaque": "most time is in CUDA graphs recorded as a whole",
    "kernels-unrecognised": "most GPU time is in unrecognised kernels",
    "steps-damaged": "records are missing from {damaged} of its {steps:step}",
    "steps-without-work": "{idle} of its {steps:step} launched nothing on a GPU",
    "kernels-lost": "{lost:launch has|launches have} no kernel record, more than the {kernels} that have one",
    "graphs-lost": "{graphs:CUDA graph launch hides|CUDA graph launches hide} about {hidden:kernel} without a record, "
    "more than the {kernels} recorded, so its idle time is not real",
}

_REMEDIES: Final[Table] = {
    "memory-only": "Record a trace of the same step too.",
    "numerics-only": "For times, record a trace of the same step too: profkit record torch -- python train.py",
    "counters-only": "Record a trace of the same step too, and analyse both: profkit analyze TRACE COUNTERS.",
    "no-kernel-records": "Record again without another profiler, and stop after torch.cuda.synchronize().",
    "no-gpu-events": "Record with ProfilerActivity.CUDA, or with nsys profile -t cuda,nvtx.",
    "no-events": "Record a few steps while the model trains.",
    "impossible-times": "Record it again.",
    "graphs-opaque": "Record with nsys profile --cuda-graph-trace=node.",
    "kernels-unrecognised": "Record with record_shapes=True.",
    "steps-damaged": "Record it again, with an nsys that is as new as the CUDA runtime, and fewer steps at once.",
    "steps-without-work": "Record steps that launch GPU work, each from start to end.",
    "kernels-lost": "Record fewer steps at once.",
    "graphs-lost": "Record fewer steps at once.",
}

_BOUND_WORDS: Final = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "launch": "launch-bound",
    "host_work": "bound by host work",
    "sync": "bound by synchronisation",
    "input": "input-bound",
    "communication": "communication-bound",
    "transfer": "bound by host copies",
}


def _step_estimated(params: Params) -> str:
    bound = str(params["recorded_bound"])
    words = _BOUND_WORDS.get(bound, f"bound by {share_label(bound).lower()}")
    low, high = (duration_text(int(str(params[name]))) for name in ("low_ns", "high_ns"))
    return say(
        f"Without the profiler, the step takes an estimated {low if low == high else f'{low} to {high}'}; "
        f"with it, {{step}} took {{recorded_ns}} and was {words}. Pass the measured time with --plain-step.",
        params,
    )


_HOST_PARTS: Final = {
    "input": "loading data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer",
    "communication": "collectives on the host",
    "rest": "the rest",
}


_HOST_PARTS_TOLD: Final = 3
"""In the headline; the others are told below it."""


def _host_only(params: Params) -> str:
    parts = sorted(_HOST_PARTS, key=lambda part: -float(str(params[f"{part}_share"])))
    shown = [f"{_HOST_PARTS[p]} {{{p}_share}}" for p in parts if params[f"{p}_share"]][:_HOST_PARTS_TOLD]
    what = "A step takes {step_ns}" if params["steps"] else "The recording takes {step_ns}"
    return say(f"{what} on the CPU alone: {', '.join(shown)}.", params)


HARDLY_ANY: Final = 0.05
"""Of a part of the step: its busiest operator does not explain it."""


def _host_part(params: Params) -> str:
    names, times = params["operators"], params["operator_times"]
    assert isinstance(names, Sequence)
    assert isinstance(times, Sequence)
    seen = [f"{name} {duration_text(int(ns))}" for name, ns in zip(names, times, strict=True)]
    part = _HOST_PARTS[str(params["part"])]
    per = "per step" if params["steps"] else "in all"
    verb = "take" if part.startswith("collectives") else "takes"
    text = say(f"{part[0].upper()}{part[1:]} {verb} {{part_ns}} {per} ({{part_share}})", params)
    if seen and int(times[0]) < HARDLY_ANY * int(str(params["part_ns"])):
        return f"{text}; the longest operator in it is {seen[0]}."
    return f"{text}: {', '.join(seen)}." if seen else f"{text}."


_EXPORT_AGAIN: Final = (
    "Export the report again with an nsys that is as new as the CUDA runtime, or record with torch.profiler."
)
_OF_NSYS: Final = {
    "no-kernel-records": _EXPORT_AGAIN,
    "kernels-lost": _EXPORT_AGAIN,
    "no-gpu-events": "Record with nsys profile -t cuda,nvtx.",
    "kernels-unrecognised": "Record the same step with torch.profiler and record_shapes=True, and analyse both files.",
}
_OF_TORCH: Final = {
    "no-gpu-events": "Record with ProfilerActivity.CUDA.",
    "steps-damaged": "Record it again, with fewer steps at once.",
}
_BY_FORMAT: Final[Mapping[str, Mapping[str, str]]] = {"nsys": _OF_NSYS, "kineto": _OF_TORCH}
_WITHOUT_TORCH: Final = {
    "kernels-unrecognised": "Measure the kernels with ncu, and analyse both: profkit analyze TRACE COUNTERS.",
}
"""What is said differently by what recorded the files, and of programs without PyTorch."""


_DOUBTS: Final[Table] = {
    "host-part": _host_part,
    "profiler-slows-host": "Profiling slows the host, so some idle time may be the profiler's own cost. "
    "Pass the step time without a profiler (--plain-step) to separate the two.",
    "step-estimated": _step_estimated,
}


def verdict_sentence(report: Report) -> str:
    """The verdict with its number, as one sentence."""
    verdict = report.verdict
    if verdict.undecided is not None or verdict.bound == "unknown":
        return _undecided_sentence(report)
    told = _bound_sentence(report, verdict) + (_all_steps_sentence(report) or _pace_sentence(report))
    return straggler_sentence(verdict) or told


def verdict_remedy(report: Report) -> str | None:
    """What to record instead, where the files cannot decide."""
    fact = report.verdict.undecided
    if fact is None or fact.code not in _REMEDIES:
        return None
    if _on_another_device(report):
        return "The host times below still hold."
    if any(finding.code == "no-torch" for finding in report.health.findings) and fact.code in _WITHOUT_TORCH:
        return _WITHOUT_TORCH[fact.code]
    formats = {each.format for each in report.inputs}
    words = _BY_FORMAT.get(formats.pop(), {}) if len(formats) == 1 else {}
    return words.get(fact.code) or _said(_REMEDIES, fact)


def _on_another_device(report: Report) -> bool:
    fact, codes = report.verdict.undecided, {finding.code for finding in report.health.findings}
    return fact is not None and fact.code == "no-gpu-events" and "other-accelerator" in codes


def verdict_caveats(report: Report) -> list[str]:
    """What may make the verdict another one."""
    step = "it" if report.verdict.step_count == 1 else "the median step"
    said = [say(_DOUBTS[fact.code], {**fact.params, "step": step}) for fact in report.verdict.doubts]
    return [*said, *straggler_caveats(report.verdict)]


def _said(table: Table, fact: Fact) -> str:
    return say(table[fact.code], fact.params)


def _undecided_sentence(report: Report) -> str:
    if report.memory is not None and not report.devices:
        return memory_sentence(report.memory)
    fact = report.verdict.undecided
    if fact is not None and fact.code == "host-only":
        return _host_only(fact.params)
    if fact is not None and fact.code == "numerics-only":
        return numerics_headline(report.numerics)
    reason = _said(_UNDECIDED, fact) if fact is not None else "no time was recorded"
    if _on_another_device(report):
        reason = "profkit does not read the events of its device"
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


_UNLIKE_THE_MEDIAN: Final = 1.1
"""Steps whose mean exceeds the median one by more are not told by the median one alone."""


def _all_steps_sentence(report: Report) -> str:
    """What all steps together spend most on, where that is not what the median one does; else nothing."""
    verdict, recorded = report.verdict, report.step.recorded_ns if report.step is not None else None
    steps, bound = verdict.step_count or 0, verdict.recorded_bound
    if not recorded or not steps or bound is None or bound == "unknown" or bound == verdict.bound:
        return ""
    mean = report.window.device_ns / steps / (verdict.device_count or 1)
    if mean <= _UNLIKE_THE_MEDIAN * recorded:
        return ""
    share = verdict.shares[bound] / max(sum(verdict.shares.values()), 1)
    label = share_label(bound).lower()
    return f" Yet over all {steps} steps, of {duration_text(mean)} on average, {label} takes {percent_text(share)}."


_RESOURCES: Final = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "device_overhead": "the fixed time of kernels",
    "host": "the host",
    "input": "loading data",
    "transfer": "host copies",
    "communication": "communication",
}

_RESOURCE_OF_SHARE: Final = {"sync": "host", "host_work": "host"}
_RESOURCE_OF_LAUNCH: Final = {"host": "host", "queue": "device_overhead", "small_kernels": "device_overhead"}


def _pace_sentence(report: Report) -> str:
    """What sets the pace, where that is not what the step spends most of its time on; else nothing."""
    bound, pace = report.verdict.bound, report.pace
    resource = _RESOURCE_OF_SHARE.get(bound, bound)
    if bound == "launch":
        resource = _RESOURCE_OF_LAUNCH.get(str(report.verdict.cause), "host")
    if pace in ("unknown", resource) or resource in report.between:
        return ""
    if pace == "balanced":
        return _balanced_sentence(report)
    saving = next(row.saving_if_twice_as_fast_ns for row in report.limits if row.resource == pace)
    assert saving is not None
    what = _RESOURCES[pace]
    return f" Yet {what} sets the pace: twice as fast, it would save {duration_text(saving.likely)} per step."


def _balanced_sentence(report: Report) -> str:
    """That two resources set the pace in turns, or that none does: the second may save nothing, whatever the host's speed."""
    first, second = report.between
    savings = {row.resource: row.saving_if_twice_as_fast_ns for row in report.limits}
    most, least = savings.get(first), savings.get(second)
    if least is None or least.high:
        return f" Both {_RESOURCES[first]} and {_RESOURCES[second]} set its pace."
    if most is None or not most.likely:
        return " No single resource sets its pace."
    would = f"{_RESOURCES[first]} would save most, {duration_text(most.likely)} per step"
    return f" No single resource sets its pace: twice as fast, {would}."


def _subject(report: Report) -> tuple[str, str]:
    """What the sentence is about, and how long it takes: the unprofiled step, the recorded one, or the recording."""
    step, verdict = report.step, report.verdict
    if verdict.step_count is None:
        return "The recording", duration_text(report.window.device_ns / (verdict.device_count or 1))
    if step is not None and step.unprofiled_ns is not None:
        return "The step", f"its {duration_text(step.unprofiled_ns.likely)}"
    if step is not None and step.recorded_ns is not None:
        return "The step", f"its {duration_text(step.recorded_ns)}"
    each = report.window.device_ns / (verdict.step_count or 1) / (verdict.device_count or 1)
    return "The step", f"its {duration_text(each)}"
