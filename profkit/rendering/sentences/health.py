"""What the health section says of a recording and of numbers that contradict each other."""

from __future__ import annotations

from typing import Any, Final

from profkit.rendering.sentences.labels import share_label
from profkit.rendering.sentences.memory import HISTORY_CLOCK
from profkit.rendering.sentences.wording import Params, Table, say
from profkit.units import duration_text

__all__ = ["FINDINGS"]


def _warm_up_steps(params: Params) -> str:
    first = "The first step was" if params["count"] == 1 else "The first {count} steps were"
    return say(f"{first} left out as warm-up: slower than the rest of the {{steps}}.", params)


def _clock_went_back(params: Params) -> str:
    if "device" in params:
        return say(HISTORY_CLOCK, params)
    seen = [
        say(text, params)
        for name, text in (
            (
                "operations",
                "{operations:operation} started before an earlier launch on the same stream and thread",
            ),
            ("calls", "{calls:call} started before a call of the same thread with a smaller id"),
            ("steps", "{steps:step} started before the previous step"),
        )
        if params[name]
    ]
    return f"The clock went back: {'; '.join(seen)}. Do not trust idle times, or times around there."


def _clock_dropped(params: Params) -> str:
    since = "From {step}" if params["step"] else "From {since_ns} after the start"
    return say(
        f"{since} on, the same kernels on the same shapes take {{slowdown_share}} longer: the GPU became slower. "
        "A power or temperature limit probably lowers its clock: watch clock, power and temperature during a run.",
        params,
    )


def _efficiency_over_105(params: Params) -> str:
    seen = [
        say(text, params)
        for name, text in (
            ("kernels", "{kernels:kernel} (up to {highest_share})"),
            ("copies", "{copies:copy or memset|copies and memsets}"),
        )
        if params[name]
    ]
    impossible = (
        " {impossible} of them cannot be right, and their work is ignored." if params["impossible"] else ""
    )
    return say(
        f"{' and '.join(seen)} exceed {{limit_share}} of the GPU's peak, so they show no efficiency. "
        "Either the algorithm needs less arithmetic, or shapes, times or peaks (--peaks) are wrong."
        + impossible,
        params,
    )


def _step_outlier(params: Params) -> str:
    text = "{count:step} took much longer than the median of {median_ns}; {name} took {longest_ns}."
    return say(f"{text} {_changed_share(params, 'grew')} most, by {{more_ns}}{_mean(params)}.", params)


def _steps_shorter(params: Params) -> str:
    text = "{count:step} took much less than the median of {median_ns}; {name} took {shortest_ns}."
    return say(f"{text} {_changed_share(params, 'shrank')} most, by {{less_ns}}{_mean(params)}.", params)


def _changed_share(params: Params, verb: str) -> str:
    label = share_label(str(params["share"])).lower()
    return f"{label[0].upper()}{label[1:]} {verb}"


def _mean(params: Params) -> str:
    return "" if params["count"] == 1 else " on average"


def _no_steps(params: Params) -> str:
    first = (
        "first GPU operation after the weights were copied"
        if params.get("weights")
        else "first GPU operation"
    )
    text = f"No steps are marked and none repeat, so the window goes from the {first} to the last. "
    outside = [
        f"{{{key}}} of {name}"
        for key, name in (("startup_ns", "start-up"), ("teardown_ns", "tear-down"))
        if params.get(key)
    ]
    if outside:
        text += f"{' and '.join(outside)} {'are' if len(outside) > 1 else 'is'} outside it. "
    return say(text + "Mark a range named step, or pass --step NAME.", params)


def _steps_differ(params: Params) -> str:
    kinds: Any = params["kinds"]
    counts: Any = params["counts"]
    medians: Any = params["medians_ns"]
    bounds: Any = params["bounds"]
    each = [
        f"{count} {kind or 'unnamed'} of {duration_text(ns)}, mostly {share_label(bound).lower()}"
        for kind, count, ns, bound in zip(kinds, counts, medians, bounds, strict=True)
    ]
    return f"The steps are of different kinds: {'; '.join(each)} (median lengths). The shares of the window mix them."


def _runs_set_aside(params: Params) -> str:
    one = params["count"] == 1
    text = "{count:file} left out ({names}): recorded at another time than {newest}, so from another run or workload. "
    return say(text + f"Analyse {'it' if one else 'each'} alone, or use profkit compare.", params)


def _importer_lost_rows(params: Params) -> str:
    if params["version"]:
        why = (
            "The importer of nsys {version} is older than CUDA {cuda}, and drops calls that it does not know"
        )
    else:
        why = "An importer older than the CUDA runtime drops calls that it does not know"
    return say(
        f"Rows are missing from the nsys export. {why}. "
        "Export the .nsys-rep again with a newer nsys, or record with torch.profiler.",
        params,
    )


FINDINGS: Final[Table] = {
    "counters-only": "Nsight Compute runs each kernel by itself: times and bounds of the {count:kernel} are measured, "
    "but not idle time, order, overlap or phases.",
    "counters-matched": "Hardware counters of {count} of the {counted:kernel} in {file} match kernels of the timeline, "
    "which take {time_share} of its kernel time. Their bounds rest on measured bytes.",
    "counters-unlike": "The {counted:kernel} in {file} are not those of the timeline, so their counters are not used. "
    "Run ncu on the same step of the same program.",
    "kernels-without-launch": "{count} of {kernels:kernel} have no launch record: their time counts, their phase is unknown.",
    "launches-captured": "{count:launch} captured into CUDA graphs instead of run: no kernel record is missing for them.",
    "launches-unstarted": "{count:launch} at the end had not started when the recording ended, so they have no kernel record.",
    "launches-without-kernel": "GPU activity is missing: {count:launch} without a kernel record. "
    "The recording was cut, or CUPTI lost records.",
    "kernel-before-launch": "{count:operation} started before the launch call, by up to {most_ns}: "
    "the clocks of host and GPU disagree.",
    "no-torch": "PyTorch did not run, so the report gives facts and no advice. "
    "Mark parts of the program with NVTX ranges to tell them apart.",
    "no-phases": 'No phases are marked. Mark them with @profkit.phase("forward").',
    "no-ranges": "No ranges mark parts of the program. torch.profiler.record_function or NVTX ranges would tell them apart.",
    "time-without-phase": "{share} of the GPU's busy time was launched outside every phase.",
    "phases-too-deep": "{count:phase} nested deeper than {deepest} levels count for the outer phases. "
    "Check that the program closes every range.",
    "ranges-too-deep": "GPU work in {count:range} nested deeper than {deepest} levels counts for the outer ranges. "
    "Check that the program closes every range.",
    "steps-without-work": "{count} of {steps:step} launched nothing on a GPU. "
    "They are empty, the recording was cut, or CUPTI lost records.",
    "no-steps": _no_steps,
    "steps-by-period": "No steps are marked: {count} were found by the repetition of their launches. "
    "Mark a range named step, or pass --step NAME, to be sure.",
    "steps-differ": _steps_differ,
    "cycles-joined": "{count:file} follow each other on one GPU, so they are read as one. "
    "The time between them belongs to no step.",
    "runs-set-aside": _runs_set_aside,
    "importer-lost-rows": _importer_lost_rows,
    "file-repeated": "{count:file} given twice: each recording is read once.",
    "steps-damaged": "Records are missing from {count} of {steps:step}: the host took as long as in the others, "
    "or launched work that is lost. They are left out.",
    "step-outlier": _step_outlier,
    "steps-shorter": _steps_shorter,
    "warm-up-steps": _warm_up_steps,
    "busy-over-100": "Impossible times: {count:operation} overlap later ones on the same stream, "
    "{written_ns} as recorded where {possible_ns} are possible. "
    "Totals use the recorded times. The longest is {longest}.",
    "clock-dropped": _clock_dropped,
    "slowed-by-collectives": "{count:kernel} take longer beside a collective than alone, {lost_ns} in all: "
    "both share memory bandwidth and multiprocessors. Most of it is {kernel}, {slowdown_share} slower.",
    "clock-went-back": _clock_went_back,
    "correlation-clash": "{count:launch id} used twice in one process, so phase and step of their operations are a guess. "
    "Two recordings may share the file.",
    "efficiency-over-105": _efficiency_over_105,
}
