"""What all renderers tell: the same rows, in the same order, on the same scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from profkit.errors import printable
from profkit.model.findings import Severity
from profkit.model.names import SHARES, KernelBound, Shares
from profkit.model.report import AdviceRow, KernelRow, PhaseRow, Report, SyncRow
from profkit.model.report_time import Idle
from profkit.rendering.document import Document, Finding, Verdict
from profkit.rendering.input_lines import input_lines
from profkit.rendering.kernel_labels import told_apart
from profkit.rendering.sentences.first_action import first_action
from profkit.rendering.sentences.labels import LAUNCH_PARTS, share_label
from profkit.units import count_text, duration_text, noun_text, percent_text

__all__ = [
    "confidence_text",
    "KernelSum",
    "Scale",
    "code_lines",
    "device_names",
    "facts",
    "filled_by",
    "findings_by_weight",
    "change_text",
    "gain_text",
    "headline_of",
    "health_note",
    "kept_steps",
    "kernels_by_name",
    "launch_parts",
    "memory_findings",
    "no_advice",
    "number_of",
    "operators_by_name",
    "parts_of",
    "phase_tree",
    "recorded_beside",
    "recorded_label",
    "scale_of",
    "share_text",
    "syncs_by_cost",
    "what_to_record",
    "where_text",
]


_LEAST_SHARE: Final = 0.0005
"""A share below prints as 0.0 %."""

_MOST_SHOWN: Final = 20
"""Kernels of one table."""

_FILLS: Final = 0.1
"""What fills less of a cause's idle time is not told beside it."""


@dataclass(frozen=True)
class Scale:
    """Durations are divided by this before they are shown, so that a reader sees one step of one device."""

    divisor: int
    label: str
    """``per step``, ``per step and device``, ``per device`` or ``in all``."""

    def __call__(self, ns: float | None) -> float | None:
        """A sum over the window's steps and devices as what one of them takes."""
        return None if ns is None else ns / self.divisor

    @property
    def saved(self) -> str:
        """Of what an advice saves: a step, or the recording where no steps are marked."""
        return "per step" if "step" in self.label else "in all"

    def count(self, count: int | None) -> str:
        """A count over the window as what one step of one device has, with a decimal where it is no whole number."""
        if count is None or count % self.divisor == 0:
            return count_text(None if count is None else count // self.divisor)
        return f"{count / self.divisor:,.1f}".replace(",", "\u202f")


@dataclass(frozen=True)
class KernelSum:
    """A kernel with all its launch shapes."""

    name: str
    """Its name for people."""
    total_ns: int
    count: int
    mean_ns: float | None
    share: float
    bound: KernelBound
    """The bound of most of its time."""
    efficiency: float | None
    """That of the launches with this bound, weighted by time."""
    unsaturated: bool
    """Whether most of the time with this bound is unsaturated."""


def kept_steps(report: Report) -> int:
    """How many steps the window counts."""
    return sum(step.kept for step in report.window.steps)


def scale_of(report: Report) -> Scale:
    """One step of one device where the report has steps, else the window of one device."""
    steps = kept_steps(report)
    devices = max(len(report.devices), 1)
    words = [word for word, many in (("step", steps > 0), ("device", devices > 1)) if many]
    return Scale(max(steps, 1) * devices, f"per {' and '.join(words)}" if words else "in all")


def parts_of(shares: Mapping[Any, int]) -> list[tuple[str, int, float]]:
    """The shares as (name, ns, fraction of their sum), in the order in which they are drawn, but for specks."""
    total = sum(shares.values())
    order = (*SHARES, "profiler")
    parts = [(name, shares[name], shares[name] / total) for name in order if shares.get(name)]
    return [part for part in parts if part[2] >= _LEAST_SHARE]


def findings_by_weight(report: Document) -> list[Finding]:
    """What the health check found, the worst first."""
    return sorted(report.health.findings, key=lambda row: -row.severity.rank)


def memory_findings(report: Document) -> list[Finding]:
    """What was found about the program's memory that neither the health check nor a failed allocation tells."""
    told = {finding.code for finding in report.health.findings} | {"out-of-memory"}
    return [row for row in (report.memory.findings if report.memory else ()) if row.code not in told]


def health_note(report: Document) -> str:
    """What the health of the recording means for the rest of the report, in a few words."""
    worst = max((row.severity for row in report.health.findings), default=Severity.INFO)
    if worst is Severity.ERROR:
        return "the verdict cannot be trusted"
    return "some results are incomplete" if worst is Severity.WARNING else "no issue affects the results"


def phase_tree(phases: Iterable[PhaseRow]) -> list[tuple[int, PhaseRow]]:
    """The phases with their depth, children after their parent, each level in the order given.

    A phase's parent is the longest other path that its own path continues: a name may hold a slash itself.
    """
    rows = {row.path: row for row in phases}
    children: dict[str | None, list[str]] = {}
    for path in rows:
        children.setdefault(_parent(path, rows), []).append(path)
    ordered: list[tuple[int, PhaseRow]] = []
    stack = [(0, path) for path in reversed(children.get(None, []))]
    while stack:
        depth, path = stack.pop()
        ordered.append((depth, rows[path]))
        stack.extend((depth + 1, child) for child in reversed(children.get(path, [])))
    return ordered


def kernels_by_name(report: Document) -> list[KernelSum]:
    """The kernel table with the launch shapes of a name united, most expensive first.

    The bound is the one with most time; the efficiency is that of the launches on this side (a sum of terms
    over a sum of durations, so a mean weighted by time).
    """
    groups: dict[str, list[KernelRow]] = {}
    for row in report.kernels:
        groups.setdefault(row.name, []).append(row)
    ordered = sorted(groups.items(), key=lambda named: (-sum(row.total_ns for row in named[1]), named[0]))
    # Only what is shown is told apart: the others have no row that it could be mistaken for.
    labels = [rows[0].short_name or name for name, rows in ordered]
    shown = told_apart(labels[:_MOST_SHOWN], [name for name, _ in ordered[:_MOST_SHOWN]])
    labels[:_MOST_SHOWN] = shown
    return [_united(label, rows) for label, (_, rows) in zip(labels, ordered, strict=True)]


def headline_of(report: Document) -> tuple[Mapping[Any, int], Scale]:
    """What the verdict's bar shows: the step without a profiler where there are steps, else the window; and its scale."""
    verdict, scale = report.verdict, scale_of(report)
    if verdict.unprofiled_shares is None or report.step is None:
        return _with_profiler(report, verdict.shares), scale
    one = Scale(1, scale.label)
    if report.step.source == "recorded":
        return _with_profiler(report, verdict.unprofiled_shares), one
    return verdict.unprofiled_shares, one


def recorded_beside(report: Document) -> str | None:
    """The step as it was recorded, where the verdict is of the step without a profiler."""
    step = report.step
    if step is None or step.source == "recorded" or not step.recorded_ns:
        return None
    shares = report.verdict.shares
    parts = sorted(parts_of(_with_profiler(report, shares)), key=lambda part: -part[1])
    shown = ", ".join(f"{share_label(name).lower()} {share_text(fraction)}" for name, _, fraction in parts)
    scale = scale_of(report)
    # The shares are of all steps: beside their mean length, not the median one.
    mean = f"{duration_text(scale(sum(shares.values())))} {scale.label}"
    return f"With the profiler: {mean}{' on average' if kept_steps(report) > 1 else ''}; {shown}."


def recorded_label(report: Report) -> str:
    """What idle times are of: they are those of the recording, also where the verdict is of the step without a profiler."""
    step, label = report.step, scale_of(report).label
    return label if step is None or step.source == "recorded" else f"{label}, with the profiler"


def _with_profiler(report: Document, shares: Shares) -> Mapping[Any, int]:
    """Shares as they were recorded, the profiler's time told from other idle time."""
    other = max(report.verdict.shares["other"], 1)
    profiler = round(shares["other"] * min(report.idle.by_cause.get("profiler", 0) / other, 1.0))
    return {**shares, "other": shares["other"] - profiler, "profiler": profiler}


def launch_parts(report: Document) -> str | None:
    """What launch overhead consists of in the steps as they were recorded; of an estimated step that is not known."""
    if report.step is not None and report.step.source == "estimated":
        return None
    launch, scale = report.verdict.launch, scale_of(report)
    parts = [(label.lower(), getattr(launch, name)) for name, label in LAUNCH_PARTS.items()]
    shown = ", ".join(f"{label} {duration_text(scale(ns))}" for label, ns in parts if ns)
    # The bar may be of another step: a sentence of its own, since these add up to the mean of the recorded ones.
    mean = ", on average" if kept_steps(report) > 1 else ""
    return f"Launch overhead as recorded{mean}: {shown} {scale.label}." if "," in shown else None


def filled_by(idle: Idle, cause: str, scale: Scale) -> str:
    """What the host did for most of a cause's idle time: ``train.py:9 tokens_of 15.0 ms``; empty where it is not known."""
    rows = [row for row in idle.by_range if row.cause == cause and row.ns > _FILLS * idle.by_cause[row.cause]]
    return ", ".join(f"{row.name} {duration_text(scale(row.ns))}" for row in rows[:3])


def syncs_by_cost(report: Document) -> list[SyncRow]:
    """Waits of the host, the most costly first."""
    return sorted(report.syncs, key=lambda row: (-number_of(row.cost_ns), -row.blocked_ns))


def what_to_record(verdict: Verdict) -> str | None:
    """What to record instead, where the verdict's sentence has not said it already."""
    remedy = verdict.remedy
    return None if not remedy or remedy.strip(". ") in verdict.sentence else remedy


def facts(report: Document) -> list[str]:
    """What was looked at, in a few words each: GPUs, files, steps, and the verdict that is close behind."""
    gpus: dict[str, int] = {}
    for device in report.devices:
        name = device.name or "unnamed device"
        gpus[name] = gpus.get(name, 0) + 1
    found = [f"{count} × {name}" if count > 1 else name for name, count in gpus.items()]
    files = input_lines(report.inputs)
    found += [f"{name} ({tool})" for name, tool in files[:4]]
    if len(files) > 4:
        found.append(f"and {noun_text(len(files) - 4, 'more file')}")
    if report.method.options.phase:
        found.append(f"tables of phase {report.method.options.phase} only")
    steps, kept = report.window.steps, kept_steps(report)
    if steps:
        found.append(
            f"{kept} of {len(steps)} steps counted" if kept < len(steps) else noun_text(kept, "step")
        )
    if report.step is not None and report.step.mfu and report.step.hfu:
        again = f", HFU {share_text(report.step.hfu)}" if report.step.hfu > report.step.mfu else ""
        found.append(f"MFU {share_text(report.step.mfu)}{again} of the peak of the types used")
    if runner_up := report.verdict.runner_up:
        found.append(
            f"close behind: {share_label(runner_up.bound).lower()} with {share_text(runner_up.share)}"
        )
    return found


def share_text(share: float | None) -> str:
    """A share of one as per cent; one that would print as nothing is ``<0.1 %``."""
    return "<0.1 %" if share is not None and 0 < share < _LEAST_SHARE else percent_text(share)


def no_advice(report: Document) -> str | None:
    """What to say where no advice has a price: what to do all the same, or why there is none; None where there is advice."""
    if report.advice:
        return None
    if action := first_action(report):
        return action
    if report.verdict.bound == "unknown" or not any(row.busy_ns for row in report.devices):
        return None
    if any(finding.code == "no-torch" for finding in report.health.findings):
        return "No advice: profkit advises on PyTorch programs, and this is not one."
    if not report.window.steps:
        return "No advice: no steps are marked, and no rule found a change that would clearly shorten the whole recording."
    return "No advice: no rule found a change that clearly pays. profkit whatif prices every change that can be made."


def gain_text(report: Document, row: AdviceRow) -> str | None:
    """What an advice saves, with the times that it is the difference of; None where it has no price."""
    if not row.saving_ns:
        return None
    text = f"saves {duration_text(row.saving_ns)} {scale_of(report).saved}"
    change = change_text(report, row)
    return f"{text} ({change})" if change else text


def change_text(report: Document, row: AdviceRow) -> str | None:
    """The times before and after an advice, and whether they are without the profiler; None where it has none."""
    if not (row.before_ns and row.after_ns):
        return None
    plain = " without the profiler" if report.step and report.step.source != "recorded" else ""
    return f"{duration_text(row.before_ns)} → {duration_text(row.after_ns)}{plain}"


def code_lines(code: str) -> list[str]:
    """Code as lines that keep their indentation, and hold no control characters."""
    lines = code.expandtabs(4).splitlines()
    return [" " * (len(line) - len(line.lstrip(" "))) + printable(line.strip()) for line in lines]


def device_names(report: Document) -> dict[int, str]:
    """The devices by id: ``rank 3`` where each is of a rank of its own, else ``device 3``; a single one needs no name."""
    if len(report.devices) < 2:
        return {}
    ranks = [device.rank for device in report.devices]
    by_rank = None not in ranks and len(set(ranks)) == len(ranks)
    return {row.id: f"rank {row.rank}" if by_rank else f"device {row.id}" for row in report.devices}


def confidence_text(confidence: str) -> str | None:
    """How sure the verdict is; None where there is none to be sure of."""
    return None if confidence == "unknown" else f"confidence: {confidence}"


def where_text(*parts: object) -> str:
    """The parts that are known, joined with a middle dot."""
    return " · ".join(str(part) for part in parts if part not in (None, ""))


def operators_by_name(report: Document) -> list[tuple[str, int, int, int]]:
    """Name, self time, time and calls of the host's operators in all phases together, most self time first."""
    found: dict[str, list[int]] = {}
    for row in report.operators:
        sums = found.setdefault(row.name, [0, 0, 0])
        for at, value in enumerate((row.host_self_ns, row.host_ns, row.count)):
            sums[at] += int(number_of(value))
    return sorted(((name, *sums) for name, sums in found.items()), key=lambda row: (-row[1], row[0]))  # type: ignore[misc]


def number_of(value: float | None) -> float:
    """A number of a table, 0 where it is unknown: for sums and bar lengths only, never to be shown."""
    return value if value is not None and value == value else 0


def _parent(path: str, rows: Mapping[str, PhaseRow]) -> str | None:
    end = path.rfind("/")
    while end > 0:
        if path[:end] in rows:
            return path[:end]
        end = path.rfind("/", 0, end)
    return None


def _united(label: str, rows: Sequence[KernelRow]) -> KernelSum:
    total = sum(row.total_ns for row in rows)
    count = sum(row.count for row in rows)
    by_bound: dict[KernelBound, int] = {}
    for row in rows:
        by_bound[row.bound] = by_bound.get(row.bound, 0) + row.total_ns
    bound = max(by_bound, key=lambda name: by_bound[name])
    side = [row for row in rows if row.bound == bound and row.efficiency is not None]
    time = sum(row.total_ns for row in side)
    flagged = sum(row.total_ns for row in side if row.unsaturated)
    return KernelSum(
        name=label,
        total_ns=total,
        count=count,
        mean_ns=total / count if count else None,
        share=sum(number_of(row.share) for row in rows),
        bound=bound,
        efficiency=sum(number_of(row.efficiency) * row.total_ns for row in side) / time if time else None,
        unsaturated=flagged * 2 > time,
    )
