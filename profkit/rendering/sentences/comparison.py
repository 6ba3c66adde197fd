"""What a comparison and a gate say: the verdict, what differs in the setup, and what is found about each limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from profkit.comparison.rows import (
    Comparison,
    Effect,
    Judgement,
    LimitResult,
    NoiseCure,
    PartChange,
    SetupWarning,
)
from profkit.model.findings import Fact, Finding, Param, Severity
from profkit.rendering.sentences.labels import cause_term, share_label
from profkit.rendering.sentences.numerics import numerics_sentence
from profkit.rendering.sentences.wording import Params, Table, Template, say
from profkit.units import bytes_text, duration_text, noun_text, percent_text

__all__ = [
    "LIMITS",
    "REASONS",
    "SETUP",
    "comparison_sentence",
    "effect_label",
    "limit_sentence",
    "part_label",
    "reason_sentence",
    "setup_sentence",
    "signed_text",
]

_TOLD: Final = 3
"""Parts that the sentence names, at most."""
_BLIND: Final = 0.05
"""With more noise than this share of the step, no change means little; so much of the profiler is worth telling."""
_WORTH_TELLING: Final = 0.03
"""A part below this share of the difference explains nothing."""

_EFFECTS: Final[Mapping[Effect, str]] = {
    "forbids": "no conclusion",
    "host cost": "idle time does not compare",
    "weakens": "less certain",
    "note": "note",
}

_VERSION_OF: Final = {
    "pytorch": "version of PyTorch",
    "recorder": "version of the recorder",
    "cuda_runtime_version": "CUDA runtime",
    "cuda_driver_version": "CUDA driver",
    "cuda": "CUDA version",
    "cpu": "CPU",
}


def _gpu(params: Params) -> str:
    if "before" not in params:
        return "Only one side has device times. Record both with GPU activity"
    return say("Another GPU: {before} before, {after} after", params)


def _batch(params: Params) -> str:
    ratio = float(str(params["ratio"]))
    what = "Another model size" if params["other_model"] else "Another batch size"
    times = f"{ratio:.3g} times" if ratio > 1 else f"1/{1 / ratio:.3g} of"
    return (
        f"{what} (or shapes): each launch does {times} the work it did before. "
        "Record both with the same batch, or compare the time per sample"
    )


def _profiler_option(params: Params) -> str:
    if "table" in params:
        what = "operators" if params["table"] == "operators" else "GPU metrics"
        return say(f"Only the recording {{side}} has {what}, which cost host time", params)
    return say(
        "The profiler option {option} was {before} before and {after} after, which changes the cost on the host",
        params,
    )


def _version(params: Params) -> str:
    of = str(params["of"])
    return say(f"Another {_VERSION_OF.get(of, of)}: {{before}} before, {{after}} after", params)


def _steps(params: Params) -> Template:
    if "side" in params:
        return "Only the recording {side} has steps. Mark them in both"
    if "before" in params:
        return "{before:step} before, {after} after; times are per step"
    if params["least"] == 0:
        return (
            "No steps are marked, so whole recordings are compared, which may hold different amounts of work"
        )
    return "{least:counted step} cannot show the noise. Record ten"


def _dtype(params: Params) -> str:
    before, after = (_percentages(params[side]) for side in ("before", "after"))
    return f"Other data types in matmuls: {before} of their time before, {after} after; results differ in precision"


def _percentages(pairs: Param) -> str:
    each = list(pairs) if isinstance(pairs, Sequence) else []
    return ", ".join(f"{name} {share} %" for name, share in zip(each[::2], each[1::2], strict=True))


def _health(params: Params) -> str:
    from profkit.rendering.sentences import finding_message  # the catalogue of all topics, this one included

    count = params["count"]
    code, number = str(params["finding"]), count if isinstance(count, int) else 1
    finding = Finding(code=code, severity=Severity.ERROR, count=number, params=params)
    try:
        message = finding_message(finding)
    except KeyError:  # a report that was saved by another version
        message = code.replace("-", " ")
    return f"The recording {params['side']} is damaged: {message}"


SETUP: Final[Table] = {
    "gpu": _gpu,
    "unlike": "Unlike programs: they share {shared_share} of their busy time by kernel family, "
    "and no operators, kernels or marks. Compare recordings of one program",
    "devices": "Another number of devices: {before} before, {after} after; times are per device",
    "no-times": "Left out of the times {side}, because it has no step: {files}",
    "batch": _batch,
    "work": "The matmuls of a step take {ratio} times the FLOP they took before",
    "parameters": "The optimizer's launches cover {ratio} times as many elements as before",
    "format": "Another recorder ({before} before, {after} after), which costs the host a different amount",
    "profiler-option": _profiler_option,
    "version": _version,
    "steps": lambda params: say(_steps(params), params),
    "warm-up": "Warm-up: {before:leading step} left out before, {after} after",
    "outlier": "Far longer than the other steps {side}: {steps}",
    "dtype": _dtype,
    "health": _health,
}
"""What differs in the setup, by code."""

REASONS: Final[Table] = {
    **SETUP,
    "no-step-times": "A recording has no step times",
    "busy-disagrees": "The recorders cost the host different amounts, and by the device's busy time alone "
    "({before_ns} before, {after_ns} after) the verdict would be '{verdict}'",
    "only-profiled": "Without a profiler the step would be {verdict}: {before_ns} before, {after_ns} after",
}
"""Why sides are not comparable, by code."""

LIMITS: Final[Table] = {
    "step": "the step takes {now_ns}, the limit is {allowed}",
    "step-over-baseline": "{before_ns} → {after_ns} per step ({delta}), the limit is {allowed}, the noise ±{noise_ns}",
    "phase": "{of} takes {now_ns} of GPU time, the limit is {allowed}",
    "phase-over-baseline": "{of} went from {before_ns} to {after_ns} of GPU time ({delta}), the limit is {allowed}, "
    "the noise ±{noise_ns}",
    "memory": "the peak is {now_bytes}, the limit is {allowed}",
    "memory-over-baseline": "the peak went from {before_bytes} to {after_bytes}, the limit is {allowed}",
    "launches": "{now:kernel} per step, the limit is {allowed}",
    "launches-over-baseline": "{before} → {after} kernels per step, the limit is {allowed}",
    "busy": "the device is busy for {busy_share} of the step, the limit is {allowed}",
    "no-step-times": "the report has no step times",
    "no-baseline": "there is no baseline",
    "not-comparable": "the report and its baseline are not comparable",
    "no-such-phase": "the report has no phase '{of}'",
    "no-such-phase-before": "the baseline has no phase '{of}'",
    "no-device-times": "the report has no device times",
    "no-memory": "the report has no memory. Record a snapshot too: memory=True",
    "no-memory-before": "the baseline has no memory",
    "no-kernels": "the report has no kernels",
    "no-kernels-before": "the baseline has no kernels",
}
"""What is found about a limit, by code."""


def setup_sentence(row: SetupWarning) -> str:
    """A difference of the setup."""
    return say(SETUP[row.code], row.params)


def reason_sentence(reason: Fact) -> str:
    """Why sides are not comparable."""
    return say(REASONS[reason.code], reason.params)


def effect_label(effect: Effect) -> str:
    """What a difference of the setup does to the conclusion."""
    return _EFFECTS[effect]


def limit_sentence(row: LimitResult) -> str:
    """What is found about a limit, and what would tell where the noise hides it."""
    delta = row.params.get("delta_ns")
    more: dict[str, Param] = {"of": row.of, "allowed": row.allowed}
    if isinstance(delta, int):
        more["delta"] = signed_text(delta)
    text = say(LIMITS[row.code], {**row.params, **more})
    if row.outcome != "unknown":
        return f"{row.limit}: {text}"
    cure = f". {_cure(row.cure)}" if row.cure else ""
    return f"{row.limit}: cannot judge: {text}{cure}"


def _cure(cure: NoiseCure) -> str:
    ways = [noun_text(cure.steps, "step")] if cure.steps else []
    ways += [noun_text(cure.recordings, "recording")] if cure.recordings else []
    if not ways:
        return "The noise is larger than the limit, and more steps or recordings may not change that"
    return f"The noise is larger than the limit: about {' or '.join(ways)} on each side would be enough"


def comparison_sentence(comparison: Comparison) -> str:
    """The verdict with its numbers and what explains it, then what to know of it."""
    judged, memory, numerics = comparison.step, comparison.memory, comparison.numerics
    if numerics is not None and not (judged.before_ns or judged.after_ns):
        return numerics_sentence(numerics)
    peak = memory.peak_allocated_bytes if memory else None
    if not (judged.before_ns or judged.after_ns) and peak and peak.before and peak.after:
        sizes = f"{bytes_text(round(peak.before))} → {bytes_text(round(peak.after))}"
        return f"No times to compare, only memory: the peak is {sizes} allocated ({_share_text(peak.after / peak.before - 1)})."
    return f"{_verdict(comparison)}{_remark(comparison)}{_unprofiled(judged)}"


def _verdict(comparison: Comparison) -> str:
    judged, delta = comparison.step, comparison.step.delta_ns
    change = "from nothing" if judged.change is None else _share_text(judged.change)
    times = f"{duration_text(judged.before_ns)} → {duration_text(judged.after_ns)} per step ({change}"
    of = " of the busy time" if judged.evidence == "busy" else ""
    noise = f"noise{of} ±{duration_text(judged.noise_ns)}"
    if judged.incomparable is not None:
        return f"Not comparable: {reason_sentence(judged.incomparable)}. The step is {times})."
    if comparison.verdict == "no change":
        return f"No change beyond the noise: {times}, {noise})."
    told = [
        f"{_cause(row)} {signed_text(row.delta_ns)}"
        for row in _comparable(comparison)[:_TOLD]
        if row.delta_ns * delta > 0 and abs(row.delta_ns) >= _WORTH_TELLING * abs(delta)
    ]
    because = f"; most of it: {', '.join(told)}" if told else ""
    return f"{comparison.verdict.capitalize()}: {times}, {noise}){because}."


def _cause(row: PartChange) -> str:
    label = part_label(row.name, row.kind)
    if row.kernel is None:
        return label
    return f"{'new' if row.delta_ns > 0 else 'dropped'} kernel {row.kernel} ({label})"


def _comparable(comparison: Comparison) -> Sequence[PartChange]:
    """The parts that may be said to explain it: without idle time, where the recorders cost the host other amounts."""
    other_cost = any(row.effect == "host cost" for row in comparison.warnings)
    return [row for row in comparison.parts if not (other_cost and row.kind == "idle")]


def _remark(comparison: Comparison) -> str:
    """What to know of a step that did not change: why it may not have, and what would tell more."""
    judged = comparison.step
    if comparison.verdict != "no change" or not judged.before_ns:
        return ""
    remarks = []
    if judged.hidden_ns:
        more = "longer" if judged.hidden_ns > 0 else "shorter"
        remarks.append(
            f"The device is busy {duration_text(abs(judged.hidden_ns))} {more}, but idle time hides it."
        )
    kernels = comparison.kernels
    if kernels and all(row.matched_by == "name" and row.count_before == row.count_after for row in kernels):
        remarks.append("Both sides run the same kernels, equally often.")
    if judged.noise_ns > _BLIND * judged.before_ns:
        remarks.append("Steps spread widely: record each side several times (--before, --after).")
    return "".join(f" {remark}" for remark in remarks)


def _unprofiled(judged: Judgement) -> str:
    """The step without the profiler's cost, where that is known and large."""
    steps = ((judged.before_ns, judged.unprofiled_before_ns), (judged.after_ns, judged.unprofiled_after_ns))
    if not any(step - left > _BLIND * step for step, left in steps):
        return ""
    was, now = (duration_text(left) for _, left in steps)
    return f" Without the profiler's cost: {was} → {now}."


def _share_text(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{percent_text(abs(share))}"


def signed_text(ns: float) -> str:
    """A difference of times with its sign: ``+1.23 ms``."""
    return f"{'+' if ns > 0 else '−' if ns < 0 else '±'}{duration_text(abs(ns))}"


_LABELS: Final = {
    "gemm": "matmuls",
    "elementwise": "pointwise kernels",
    "copy": "casts and copies",
    "norm": "norm kernels",
    "memcpy": "device copies",
    "memset": "memsets",
    "graph": "opaque graphs",
    "other": "other kernels",
}


def part_label(name: str, kind: str) -> str:
    """What a part is called in text."""
    if kind == "host":
        return "host time"
    if kind == "share":
        return f"share {share_label(name).lower()}"
    if kind == "idle":
        return f"idle: {cause_term(name).label.lower()}"
    label = _LABELS.get(name, name)
    return label if kind != "kernels" or "kernels" in label or name in _LABELS else f"{label} kernels"
