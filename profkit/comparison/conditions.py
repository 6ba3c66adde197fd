"""What differs between two sides besides the program: it is said first, and limits what may be concluded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from profkit.comparison.likeness import shared_families, unlike
from profkit.comparison.rows import Effect, SetupWarning
from profkit.comparison.side import Side, kept_steps
from profkit.comparison.work_done import Work
from profkit.model.findings import Param, Severity
from profkit.model.report import InputRow
from profkit.readers.registry import WITHOUT_TIMES, format_named, role_of

__all__ = ["setup_warnings"]

_ORDER: Final[tuple[Effect, ...]] = ("forbids", "host cost", "weakens", "note")
_OPTIONS: Final = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules", "cuda_graph_trace", "memory_usage")  # fmt: skip
_VERSIONS: Final = ("torch", "cuda", "cuda_runtime_version", "cuda_driver_version", "driver", "cpu")
_GREW: Final = 0.1
"""A model whose parameters changed by this logarithm is another one."""
_FEW: Final = 3
_MOVED: Final = 0.1
"""With more of the matrix products' time in other types, the type is worth telling."""


def setup_warnings(before: Side, after: Side, work: Work) -> list[SetupWarning]:
    """The differences of the setup, what forbids a conclusion first."""
    rows = [
        *_devices(before, after),
        *_programs(before, after),
        *_untimed(before, after),
        *_work(work),
        *_recorders(before, after),
        *_versions(before, after),
        *_steps(before, after),
        *_types(before, after),
        *_health(before, after),
    ]
    return sorted(rows, key=lambda row: _ORDER.index(row.effect))


def _row(code: str, effect: Effect, **params: Param) -> SetupWarning:
    return SetupWarning(code=code, effect=effect, params=params)


def _devices(before: Side, after: Side) -> Iterator[SetupWarning]:
    names = [
        {row.name for report in side.reports for row in report.devices if row.name}
        for side in (before, after)
    ]
    if all(names) and names[0] != names[1]:
        yield _row("gpu", "forbids", before=_listed(names[0]), after=_listed(names[1]))
    counts = [{len(report.devices) for report in side.timed} for side in (before, after)]
    if before.on_host != after.on_host:
        yield _row("gpu", "forbids")
    elif counts[0] != counts[1]:
        yield _row("devices", "weakens", before=_listed(counts[0]), after=_listed(counts[1]))


def _programs(before: Side, after: Side) -> Iterator[SetupWarning]:
    if unlike(before, after):
        yield _row("unlike", "forbids", shared_share=shared_families(before, after))


def _untimed(before: Side, after: Side) -> Iterator[SetupWarning]:
    for side, word in ((before, "before"), (after, "after")):
        untimed = [report for report in side.reports if not side.has_time(report)]
        if untimed and len(untimed) < len(side.reports):
            files = _listed(row.path for report in untimed for row in report.inputs)
            yield _row("no-times", "note", side=word, files=files)


def _work(work: Work) -> Iterator[SetupWarning]:
    other_model = work.parameters is not None and abs(math.log(work.parameters)) > _GREW
    if work.ratio != 1.0:
        yield _row("batch", "forbids", ratio=work.ratio, other_model=other_model)
    elif work.flop is not None and abs(math.log(work.flop)) > 0.05:
        yield _row("work", "note", ratio=work.flop)
    if work.ratio == 1.0 and other_model:
        yield _row("parameters", "note", ratio=work.parameters)


def _recorders(before: Side, after: Side) -> Iterator[SetupWarning]:
    tools = [{row.format for row in _timelines(side)} for side in (before, after)]
    if tools[0] != tools[1]:
        yield _row("format", "host cost", before=_listed(tools[0]), after=_listed(tools[1]))
        return
    for option in _OPTIONS:
        values = [_facts(side, option) for side in (before, after)]
        if values[0] != values[1]:
            effect: Effect = "note" if option == "memory_usage" else "host cost"
            told = {"before": _listed(values[0]), "after": _listed(values[1])}
            yield _row("profiler-option", effect, option=option, **told)
    tables = {
        "operators": [any(report.operators for report in side.reports) for side in (before, after)],
        "metrics": [any(report.utilisation for report in side.reports) for side in (before, after)],
    }
    for table, there in tables.items():
        if there[0] != there[1]:
            yield _row("profiler-option", "host cost", table=table, side="after" if there[1] else "before")
    versions = [{row.tool_version for row in side.inputs if row.tool_version} for side in (before, after)]
    if all(versions) and versions[0] != versions[1]:
        known = [format_named(tool) for tool in sorted(tools[0])]
        whose = {each.versioned_by for each in known if each}
        yield _row(
            "version",
            "note",
            of=whose.pop() if len(whose) == 1 else "recorder",
            before=_listed(versions[0]),
            after=_listed(versions[1]),
        )


def _versions(before: Side, after: Side) -> Iterator[SetupWarning]:
    for fact in _VERSIONS:
        values = [_facts(side, fact) - {"none"} for side in (before, after)]
        if all(values) and values[0] != values[1]:
            effect: Effect = "weakens" if fact == "cpu" else "note"
            yield _row("version", effect, of=fact, before=_listed(values[0]), after=_listed(values[1]))


def _steps(before: Side, after: Side) -> Iterator[SetupWarning]:
    counts = [side.steps for side in (before, after)]
    if not (before.total_ns or after.total_ns):
        return
    if not any(counts):
        yield _row("steps", "weakens", least=0)
        return
    if not all(counts):
        yield _row("steps", "forbids", side="after" if counts[1] else "before")
        return
    if counts[0] != counts[1]:
        yield _row("steps", "note", before=counts[0], after=counts[1])
    if min(counts) < _FEW:
        yield _row("steps", "weakens", least=min(counts))
    left_out = [
        sum(not step.kept for report in side.reports for step in report.window.steps)
        for side in (before, after)
    ]
    if left_out[0] != left_out[1]:
        yield _row("warm-up", "note", before=left_out[0], after=left_out[1])
    for word, side in (("before", before), ("after", after)):
        names = [step.name for report in side.reports for step in kept_steps(report) if step.excess]
        if names:
            yield _row("outlier", "note", side=word, steps=_listed(names[:3]))


def _types(before: Side, after: Side) -> Iterator[SetupWarning]:
    shares = [_type_shares(side) for side in (before, after)]
    if not all(shares):
        return
    moved = sum(abs(shares[0].get(t, 0) - shares[1].get(t, 0)) for t in {*shares[0], *shares[1]}) / 2
    if moved > _MOVED:
        first, second = (_largest(each) for each in shares)
        yield _row("dtype", "note", before=first, after=second)


def _largest(shares: Mapping[str, float]) -> list[str | int]:
    """The three largest, each a type and its percentage."""
    largest = sorted(shares.items(), key=lambda pair: -pair[1])[:3]
    return [item for name, share in largest for item in (name, round(100 * share))]


def _type_shares(side: Side) -> dict[str, float]:
    time: Counter[str] = Counter()
    for row in side.kernels:
        if row.family in ("gemm", "convolution") and row.dtype:
            time[row.dtype] += row.total_ns
    return {dtype: ns / time.total() for dtype, ns in time.items() if ns}


def _health(before: Side, after: Side) -> Iterator[SetupWarning]:
    for word, side in (("before", before), ("after", after)):
        bad = [f for r in side.reports for f in r.health.findings if f.severity == Severity.ERROR]
        if bad:
            told = {**bad[0].params, "side": word, "finding": bad[0].code, "count": bad[0].count}
            yield SetupWarning(code="health", effect="weakens", params=told)


def _facts(side: Side, name: str) -> set[str]:
    return {row.facts.get(name, "none") for row in _timelines(side)}


def _timelines(side: Side) -> Iterator[InputRow]:
    """The recordings whose times are compared: snapshots and counters have none of the step."""
    return (row for row in side.inputs if role_of(row.format) not in WITHOUT_TIMES)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values})) or "none"
