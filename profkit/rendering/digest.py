"""What all renderers tell: the same rows, in the same order, on the same scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from profkit.errors import printable
from profkit.model.result import Result, Row
from profkit.rendering.words import SEVERITIES, SHARES, severity_of
from profkit.units import count_text, duration_text, noun_text, percent_text

__all__ = [
    "Scale",
    "device_names",
    "facts",
    "findings_by_weight",
    "health_note",
    "kept_steps",
    "kernels_by_name",
    "number_of",
    "parts_of",
    "phase_tree",
    "scale_of",
    "share_text",
    "what_to_record",
    "where_text",
]


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


def kept_steps(result: Result) -> int:
    """How many steps the window counts."""
    return sum(bool(step.get("kept")) for step in result.window.get("steps") or ())


def scale_of(result: Result) -> Scale:
    """One step of one device where the report has steps, else the window of one device."""
    steps = kept_steps(result)
    devices = max(len(result.devices), 1)
    words = [word for word, many in (("step", steps > 0), ("device", devices > 1)) if many]
    return Scale(max(steps, 1) * devices, f"per {' and '.join(words)}" if words else "in all")


def parts_of(shares: Mapping[str, int] | None) -> list[tuple[str, int, float]]:
    """The shares that are not zero as (name, ns, fraction of their sum), in the order in which they are drawn."""
    given = {name: number_of(ns) for name, ns in (shares or {}).items()}
    total = sum(given.values())
    names = [*SHARES, *sorted(set(given) - set(SHARES))]
    return [(name, int(given[name]), given[name] / total) for name in names if given.get(name)]


def findings_by_weight(result: Result) -> list[Row]:
    """What the health check found, the worst first, each with ``severity`` as a word."""
    found = [row | {"severity": severity_of(row)} for row in result.health.get("findings") or ()]
    return sorted(found, key=lambda row: -SEVERITIES.index(row["severity"]))


def health_note(result: Result) -> str:
    """What the health of the recording means for the rest of the report, in a few words."""
    worst = max(
        (SEVERITIES.index(severity_of(row)) for row in result.health.get("findings") or ()), default=0
    )
    if SEVERITIES[worst] == "error":
        return "the verdict cannot be trusted"
    return "some numbers are incomplete" if worst else "nothing that changes a number"


def phase_tree(phases: Iterable[Row]) -> list[tuple[int, Row]]:
    """The phases with their depth, children after their parent, each level in the order given.

    A phase's parent is the longest other path that its own path continues: a name may hold a slash itself.
    """
    rows = {str(row.get("path")): row for row in phases}
    children: dict[str | None, list[str]] = {}
    for path in rows:
        children.setdefault(_parent(path, rows), []).append(path)
    ordered: list[tuple[int, Row]] = []
    stack = [(0, path) for path in reversed(children.get(None, []))]
    while stack:
        depth, path = stack.pop()
        ordered.append((depth, rows[path]))
        stack.extend((depth + 1, child) for child in reversed(children.get(path, [])))
    return ordered


def kernels_by_name(result: Result) -> list[Row]:
    """The kernel table with the launch shapes of a name united, most expensive first.

    The bound is the one with most time; the efficiency is that of the launches on this side (a sum of terms
    over a sum of durations, so a mean weighted by time).
    """
    groups: dict[str, list[Row]] = {}
    for row in result.kernels:
        groups.setdefault(row["name"], []).append(row)
    return sorted(map(_united, groups.values()), key=lambda row: (-row["total_ns"], row["name"]))


def what_to_record(verdict: Row) -> str | None:
    """What to record instead, where the verdict's sentence has not said it already."""
    instead = verdict.get("instead")
    return None if not instead or str(instead).strip(". ") in str(verdict.get("sentence")) else str(instead)


def facts(result: Result) -> list[str]:
    """What was looked at, in a few words each: cards, files, steps, and the verdict that is close behind."""
    cards: dict[str, int] = {}
    for device in result.devices:
        cards[device.get("name") or "unnamed device"] = (
            cards.get(device.get("name") or "unnamed device", 0) + 1
        )
    found = [f"{count} × {name}" if count > 1 else name for name, count in cards.items()]
    found += [_input_text(row) for row in result.inputs[:4]]
    if len(result.inputs) > 4:
        found.append(f"and {noun_text(len(result.inputs) - 4, 'more file')}")
    steps = result.window.get("steps") or []
    kept = kept_steps(result)
    if steps:
        found.append(
            f"{kept} of {len(steps)} steps counted" if kept < len(steps) else noun_text(kept, "step")
        )
    verdict = result.verdict
    if runner_up := verdict.get("runner_up"):
        found.append(f"close behind: {runner_up.get('bound')} with {share_text(runner_up.get('share'))}")
    return found


def share_text(share: float | None) -> str:
    """A share of one as per cent; one that would print as nothing is ``<0.1 %``."""
    return "<0.1 %" if share is not None and 0 < share < 0.0005 else percent_text(share)


def no_advice(result: Result) -> str | None:
    """What to say where there is a verdict and nothing to do about it; None where there is advice, or no device."""
    if result.advice or not any(row.get("busy_ns") for row in result.devices):
        return None
    if not result.window.get("steps"):
        return "Nothing is advised: no steps are marked, and no known change would clearly shorten the whole recording."
    return "Nothing is advised: no change that profkit knows would save 1 % of this step."


def gain_text(row: Row, label: str) -> str | None:
    """What an advice saves, with the times that it is the difference of; None where it has no price."""
    if not row.get("saving_ns"):
        return None
    text = f"saves {duration_text(row['saving_ns'])} {label}"
    if row.get("before_ns") and row.get("after_ns"):
        text += (
            f" ({duration_text(row['before_ns'])} → {duration_text(row['after_ns'])} without the recorder)"
        )
    return text


def code_lines(code: Any) -> list[str]:
    """Code as lines that keep their indentation, and hold no control characters."""
    lines = str(code or "")[:2_000].splitlines()
    return [" " * (len(line) - len(line.lstrip(" "))) + printable(line.strip()) for line in lines]


def device_names(result: Result) -> dict[int | None, str]:
    """The devices by id: ``rank 3`` where each is of a rank of its own, else ``device 3``; a single one needs no name."""
    ids, ranks = ([device.get(key) for device in result.devices] for key in ("id", "rank"))
    if len(ids) < 2:
        return {}
    by_rank = None not in ranks and len(set(ranks)) == len(ranks)
    return {i: f"rank {rank}" if by_rank else f"device {i}" for i, rank in zip(ids, ranks, strict=True)}


def where_text(*parts: Any) -> str:
    """The parts that are known, joined with a middle dot."""
    return " · ".join(str(part) for part in parts if part not in (None, ""))


def number_of(value: Any) -> float:
    """A number of a table, 0 where it is unknown: for sums and bar lengths only, never to be shown."""
    return value if isinstance(value, int | float) and value == value else 0


def _parent(path: str, rows: Mapping[str, Row]) -> str | None:
    end = path.rfind("/")
    while end > 0:
        if path[:end] in rows:
            return path[:end]
        end = path.rfind("/", 0, end)
    return None


def _united(rows: list[Row]) -> Row:
    total = sum(row["total_ns"] for row in rows)
    count = sum(row["count"] for row in rows)
    by_bound: dict[str, int] = {}
    for row in rows:
        by_bound[row["bound"]] = by_bound.get(row["bound"], 0) + row["total_ns"]
    bound = max(by_bound, key=lambda name: by_bound[name])
    side = [row for row in rows if row["bound"] == bound and row.get("efficiency") is not None]
    time = sum(row["total_ns"] for row in side)
    efficiency = sum(row["efficiency"] * row["total_ns"] for row in side) / time if time else None
    flagged = sum(row["total_ns"] for row in side if row.get("unsaturated"))
    return rows[0] | {
        "total_ns": total,
        "count": count,
        "mean_ns": total / count if count else None,
        "share": sum(number_of(row.get("share")) for row in rows),
        "bound": bound,
        "efficiency": efficiency,
        "unsaturated": flagged * 2 > time if time else None,
    }


def _input_text(row: Row) -> str:
    tool = " ".join(str(part) for part in (row.get("tool"), row.get("tool_version")) if part)
    return f"{row.get('path')} ({tool or row.get('format')})"
