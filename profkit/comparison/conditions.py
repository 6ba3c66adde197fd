"""What differs between two sides besides the program: it is said first, and limits what may be concluded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from profkit.comparison.side import Side, kept_steps
from profkit.comparison.work_done import Work
from profkit.model.result import Row
from profkit.units import percent_text

__all__ = ["FORBIDS", "HOST_COST", "NOTE", "WEAKENS", "setup_warnings"]

FORBIDS: Final = "forbids"
"""No conclusion: the sides do not do the same thing on the same GPU."""

HOST_COST: Final = "host cost"
"""The recorders slow the host differently: idle time cannot be compared, busy time can."""

WEAKENS: Final = "weakens"
"""The conclusion stands on less."""

NOTE: Final = "note"
"""Good to know; perhaps it is the change itself."""

_ORDER: Final = (FORBIDS, HOST_COST, WEAKENS, NOTE)
_OPTIONS: Final = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules", "cuda_graph_trace", "memory_usage")  # fmt: skip
_VERSIONS: Final = ("torch", "cuda", "cuda_runtime_version", "cuda_driver_version", "driver", "cpu")
_WORDS: Final = {
    "cuda_runtime_version": "CUDA runtime",
    "cuda_driver_version": "CUDA driver",
    "cuda": "CUDA",
    "cpu": "CPU",
}


def setup_warnings(before: Side, after: Side, work: Work) -> list[Row]:
    """The differences of the setup, what forbids a conclusion first.

    Returns:
        Rows ``{code, effect, message}``; effect is one of `FORBIDS`, `HOST_COST`, `WEAKENS`, `NOTE`.
    """
    checks: tuple[Callable[[], Iterator[Row]], ...] = (
        lambda: _devices(before, after),
        lambda: _untimed(before, after),
        lambda: _work(work),
        lambda: _recorders(before, after),
        lambda: _versions(before, after),
        lambda: _steps(before, after),
        lambda: _types(before, after),
        lambda: _health(before, after),
    )
    rows = [row for check in checks for row in check()]
    return sorted(rows, key=lambda row: _ORDER.index(row["effect"]))


def _row(code: str, effect: str, message: str) -> Row:
    return {"code": code, "effect": effect, "message": message}


def _devices(before: Side, after: Side) -> Iterator[Row]:
    names = [Counter(d["name"] for d in side.rows("devices") if d["name"]) for side in (before, after)]
    if all(names) and set(names[0]) != set(names[1]):
        yield _row("gpu", FORBIDS, f"Another GPU: {_listed(names[0])} before, {_listed(names[1])} after")
    counts = [[len(r.devices) for r in side.timed] for side in (before, after)]
    if before.on_host != after.on_host:
        yield _row("gpu", FORBIDS, "Only one side has device times: record both with the GPU's activity")
    elif set(counts[0]) != set(counts[1]):
        yield _row(
            "devices",
            WEAKENS,
            f"Another number of devices: {_listed(counts[0])} before, {_listed(counts[1])} after; times are per device",
        )


def _untimed(before: Side, after: Side) -> Iterator[Row]:
    for side, word in ((before, "before"), (after, "after")):
        untimed = [r for r in side.results if not side.has_time(r)]
        if untimed and len(untimed) < len(side.results):
            files = _listed(row["path"] for r in untimed for row in r.inputs)
            yield _row("no-times", NOTE, f"Left out of the times {word}, since it holds no step: {files}")


def _work(work: Work) -> Iterator[Row]:
    if work.ratio != 1.0:
        times = f"{work.ratio:.3g} times" if work.ratio > 1 else f"1/{1 / work.ratio:.3g} of"
        model = work.parameters is not None and abs(math.log(work.parameters)) > 0.1
        what = "Another model size" if model else "Another batch size"
        yield _row(
            "batch",
            FORBIDS,
            f"{what} (or shapes): each launch after does {times} the work of one before. "
            "Record both with the same batch, or judge the time per sample",
        )
    elif work.flop is not None and abs(math.log(work.flop)) > 0.05:
        yield _row(
            "work", NOTE, f"The matrix products of a step take {work.flop:.3g} times the FLOP of before"
        )
    if work.ratio == 1.0 and work.parameters is not None and abs(math.log(work.parameters)) > 0.1:
        yield _row(
            "parameters",
            NOTE,
            f"The optimizer's launches cover {work.parameters:.3g} times the elements of before",
        )


def _recorders(before: Side, after: Side) -> Iterator[Row]:
    tools = [
        sorted({str(r["format"]) for r in side.rows("inputs") if r["format"] != "snapshot"})
        for side in (before, after)
    ]
    if tools[0] != tools[1]:
        yield _row(
            "format",
            HOST_COST,
            f"Another recorder ({_listed(tools[0])} before, {_listed(tools[1])} after), which slows the host by "
            "another amount: idle time does not compare",
        )
    for option in _OPTIONS:
        values = [_facts(side, option) for side in (before, after)]
        if tools[0] == tools[1] and values[0] != values[1]:
            effect = NOTE if option == "memory_usage" else HOST_COST
            yield _row(
                "profiler-option",
                effect,
                f"The profiler's option {option} was {_listed(values[0])} before and {_listed(values[1])} after, "
                "which costs the host another amount of time",
            )
    for table, what in (("operators", "operators"), ("utilisation", "GPU metrics")):
        there = [any(getattr(r, table) for r in side.results) for side in (before, after)]
        if tools[0] == tools[1] and there[0] != there[1]:
            yield _row(
                "profiler-option",
                HOST_COST,
                f"Only the recording {'after' if there[1] else 'before'} has {what}, which costs the host time",
            )
    versions = [
        sorted({str(r["tool_version"]) for r in side.rows("inputs") if r["tool_version"]})
        for side in (before, after)
    ]
    if tools[0] == tools[1] and all(versions) and versions[0] != versions[1]:
        what = "PyTorch" if tools[0] == ["kineto"] else "the recorder"
        yield _row(
            "version",
            NOTE,
            f"Another version of {what}: {_listed(versions[0])} before, {_listed(versions[1])} after",
        )


def _versions(before: Side, after: Side) -> Iterator[Row]:
    for fact in _VERSIONS:
        values = [_facts(side, fact) - {"none"} for side in (before, after)]
        if all(values) and values[0] != values[1]:
            effect = WEAKENS if fact == "cpu" else NOTE
            yield _row(
                "version",
                effect,
                f"Another {_WORDS.get(fact, fact)}: {_listed(values[0])} before, {_listed(values[1])} after",
            )


def _steps(before: Side, after: Side) -> Iterator[Row]:
    counts = [side.steps for side in (before, after)]
    if not (before.total_ns or after.total_ns):
        return
    if not any(counts):
        yield _row(
            "steps",
            WEAKENS,
            "No steps are marked: whole recordings are compared, which may hold other amounts of work",
        )
        return
    if not all(counts):
        yield _row(
            "steps",
            FORBIDS,
            f"Only the side {'after' if counts[1] else 'before'} has steps. Mark them on both",
        )
        return
    if counts[0] != counts[1]:
        yield _row(
            "steps", NOTE, f"{counts[0]} steps are counted before, {counts[1]} after; times are per step"
        )
    if min(counts) < 3:
        yield _row(
            "steps",
            WEAKENS,
            f"{min(counts)} counted step{'s say' if min(counts) > 1 else ' says'} little of the noise. Record ten",
        )
    left_out = [
        sum(not s["kept"] for r in side.results for s in r.window["steps"]) for side in (before, after)
    ]
    if left_out[0] != left_out[1]:
        yield _row(
            "warm-up", NOTE, f"Warm-up: {left_out[0]} leading steps are left out before, {left_out[1]} after"
        )
    for word, side in (("before", before), ("after", after)):
        names = [str(s["name"]) for r in side.results for s in kept_steps(r) if s.get("note")]
        if names:
            yield _row("outlier", NOTE, f"Far longer than the other steps {word}: {_listed(names[:3])}")


def _types(before: Side, after: Side) -> Iterator[Row]:
    shares = [_type_shares(side) for side in (before, after)]
    if not all(shares):
        return
    moved = sum(abs(shares[0].get(t, 0) - shares[1].get(t, 0)) for t in {*shares[0], *shares[1]}) / 2
    if moved > 0.1:
        first, second = (
            ", ".join(f"{t} {percent_text(s)}" for t, s in sorted(each.items(), key=lambda x: -x[1])[:3])
            for each in shares
        )
        yield _row(
            "dtype",
            NOTE,
            f"Other data types in matrix products: {first} of their time before, {second} after; results differ in precision",
        )


def _type_shares(side: Side) -> dict[str, float]:
    time: Counter[str] = Counter()
    for row in side.rows("kernels"):
        if row["family"] in ("gemm", "convolution") and row["dtype"]:
            time[row["dtype"]] += row["total_ns"]
    return {dtype: ns / time.total() for dtype, ns in time.items() if ns}


def _health(before: Side, after: Side) -> Iterator[Row]:
    for word, side in (("before", before), ("after", after)):
        bad = [
            f["message"] for r in side.results for f in r.health["findings"] if f["severity"] in ("error", 2)
        ]
        if bad:
            yield _row("health", WEAKENS, f"The recording {word} is damaged: {bad[0]}")


def _facts(side: Side, name: str) -> set[str]:
    return {
        str((row.get("facts") or {}).get(name, "none"))
        for row in side.rows("inputs")
        if row["format"] != "snapshot"
    }


def _listed(values: Any) -> str:
    return ", ".join(sorted({str(value) for value in values})) or "none"
