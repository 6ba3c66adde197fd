"""Advice with a price: what to change in a step, what that saves by the replay, and when it does not hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profkit.advice import (
    arithmetic,
    compiling,
    distributed,
    host_waits,
    recording,
    streams,
    structure,
    updating,
)
from profkit.advice.rule import Case, Evidence, Rule
from profkit.model.report_memory import Memory
from profkit.model.result import Row
from profkit.simulation.predict import Change, find_step
from profkit.timeline.view import TraceView
from profkit.units import duration_text

__all__ = ["MOST_DEVICES", "RULES", "WORTH_SAYING", "advise"]

RULES: Final[tuple[Rule, ...]] = (
    *arithmetic.RULES,
    *compiling.RULES,
    *updating.RULES,
    *host_waits.RULES,
    *structure.RULES,
    *distributed.RULES,
    *streams.RULES,
    *recording.RULES,
)

WORTH_SAYING: Final = 0.01
"""What saves less of the step is not said."""

_AS_LIKELY_WORSE: Final = 0.9
_HARDLY_BETTER: Final = 1.03
"""What may as well make the step a tenth longer must promise more than this."""

_CLEARLY_BETTER: Final = 1.05

_LITTLE: Final = 1 / 3
"""Of what an advice saves by itself: with less left beside the best one, both take the same time away."""

MOST_DEVICES: Final = 4
"""Ranks of one program do the same: those that did most are looked at."""


def advise(
    views: Sequence[TraceView], memory: Memory | None = None, plain_step_ns: int | None = None
) -> list[Row]:
    """What to do about the recorded steps, the largest saving first.

    Args:
        views: The analysed traces.
        memory: The report's memory section, where a snapshot came with them.
        plain_step_ns: The step's time without a recorder, where known.

    Returns:
        Rows of ``advice[]``: ``saving_ns`` is of one step, without the recorder's own cost; ``speedup`` is the
        step's time over what it would be, ``before_ns`` over ``after_ns``. All are None for advice whose worth a recording cannot tell. Savings of
        several rows do not add up: ``profkit whatif`` combines them.
    """
    found: dict[str, _Found] = {}
    for view, device in _devices(views):
        step = find_step(view, device, plain_step_ns)
        if step is None:
            continue
        case = Case(view, device, step, memory, views)
        for rule in RULES:
            evidence = rule.find(case)
            row = _priced(case, rule, evidence) if evidence else None
            if row is None or evidence is None:
                continue
            if not view.steps.count:
                row = _of_a_whole(row)
            if rule.id not in found or (row["saving_ns"] or 0) >= (found[rule.id].row["saving_ns"] or 0):
                found[rule.id] = _Found(row, case, evidence.changes or ())
    best_first = sorted(found.values(), key=lambda each: -(each.row["saving_ns"] or 0))
    for each in best_first[1:]:
        _beside_the_best(best_first[0], each)
    return [each.row for each in best_first]


@dataclass(frozen=True)
class _Found:
    row: Row
    case: Case
    changes: Sequence[Change]


def _beside_the_best(best: _Found, other: _Found) -> None:
    """Say of an advice whether the best one leaves it little to save: both may take the same time away."""
    if not best.changes or not other.changes or best.case is not other.case:
        return
    order = [rule.id for rule in RULES]
    pair = sorted((best, other), key=lambda each: order.index(each.row["id"]))
    played, bound = best.case.step.changed([change for each in pair for change in each.changes])
    more = best.row["after_ns"] - max(played.step_ns, bound)
    if more < _LITTLE * other.row["saving_ns"]:
        gain = (
            f"{duration_text(more)} further gain"
            if more >= WORTH_SAYING * best.row["before_ns"]
            else "no further gain"
        )
        other.row["why"] += f" It overlaps with “{best.row['title']}”: {gain} after that."


def _priced(case: Case, rule: Rule, evidence: Evidence) -> Row | None:
    row = rule.row(evidence)
    if evidence.changes is None:
        return row
    price = case.step.predict_where_worth(evidence.changes, WORTH_SAYING)
    if price is None or (price.low < _AS_LIKELY_WORSE and price.likely < _HARDLY_BETTER):
        return None
    row["saving_ns"] = round(price.saving_ns)
    row["speedup"] = {"low": price.low, "likely": price.likely, "high": price.high}
    row["before_ns"], row["after_ns"] = round(price.before_ns), round(price.after_ns)
    row["limit"] = price.limit
    if price.low < 1.0:
        # The saving is no larger than what the estimate may be off by.
        row["confidence"] = "low" if price.likely < _CLEARLY_BETTER else _at_most_medium(row["confidence"])
    return row


def _at_most_medium(confidence: str) -> str:
    return "medium" if confidence == "high" else confidence


def _of_a_whole(row: Row) -> Row:
    """Without marked steps the replayed step is the whole recording, start and all: say so, and trust it less."""

    def told(text: str) -> str:
        return re.sub(r"\b(?:in )?(?:a|per|each) step\b", "in all", text).replace("the step", "the recording")

    evidence = [told(line) for line in row["evidence"]]
    return {**row, "why": told(row["why"]), "evidence": evidence, "confidence": "low"}


def _devices(views: Sequence[TraceView]) -> list[tuple[TraceView, int]]:
    """The devices that did most: ranks of one program do the same."""
    every = [(v, d) for v in views for d in range(len(v.trace.devices))]
    busy = [
        int(((v.trace.operations.end_ns - v.trace.operations.start_ns)[v.trace.operations.device == d]).sum())
        for v, d in every
    ]
    order = np.argsort(-np.array(busy, np.int64), kind="stable")[:MOST_DEVICES]
    return [every[at] for at in order.tolist()]
