"""Advice with a price: what to change in a step, what that saves by the replay, and when it does not hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.advice import (
    arithmetic,
    compiling,
    distributed,
    host_lines,
    host_waits,
    recording,
    streams,
    structure,
    updating,
)
from profkit.advice.audience import audience_of, suited
from profkit.advice.order import order_of
from profkit.advice.rule import Case, Evidence, Rule
from profkit.model.names import Level
from profkit.model.report_memory import FitRow, Memory
from profkit.model.report_verdict import AdviceRow
from profkit.model.rows import Interval
from profkit.model.rows import replace as with_fields
from profkit.simulation.answer import busiest_devices
from profkit.simulation.exchanged import Exchanged
from profkit.simulation.predict import Change, Step, find_step
from profkit.simulation.registry import changes_named
from profkit.timeline.view import TraceView
from profkit.units import duration_text

__all__ = ["MOST_DEVICES", "RULES", "WORTH_SAYING", "advise", "of_job"]

RULES: Final[tuple[Rule, ...]] = (
    *arithmetic.RULES,
    *compiling.RULES,
    *updating.RULES,
    *host_waits.RULES,
    *host_lines.RULES,
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
    views: Sequence[TraceView],
    memory: Memory | None = None,
    fit: Sequence[FitRow] = (),
    exchanged: Exchanged | None = None,
) -> list[AdviceRow]:
    """What to do about the recorded steps: first what saves most for its work, as far as that is sure.

    Args:
        views: The analysed traces.
        memory: The report's memory section, where a snapshot came with them.
        fit: What each change would do to the memory of the step, where that is known.
        exchanged: The collectives of all traces of the job, where there are others than these.

    Returns:
        Rows of ``advice[]``: ``saving_ns`` is of one step, without the recorder's own cost; ``speedup`` is the
        step's time over what it would be, ``before_ns`` over ``after_ns``. All are None for advice whose worth a recording cannot tell. Savings of
        several rows do not add up: ``profkit whatif`` combines them.
    """
    found: dict[str, _Found] = {}
    exchanged = exchanged or Exchanged.of(views)
    paces: Step | None = None
    for view, device in busiest_devices(views, exchanged)[:MOST_DEVICES]:
        step = find_step(view, device, exchanged)
        if step is None:
            continue
        paces = paces or step
        case = Case(view, device, step, memory, fit)
        audience = audience_of(view)
        for rule in filter(None, (suited(each, audience) for each in RULES)):
            evidence = rule.find(case)
            if evidence and evidence.changes is not None and step is not paces:
                continue  # What-if answers for the device that sets the pace.
            row = _priced(case, rule, evidence) if evidence and rule.id not in found else None
            if row is None or evidence is None:
                continue
            if not view.steps.count:
                row = _of_a_whole(row)
            found[rule.id] = _Found(row, case, _changes(evidence))
    best_first = sorted(found.values(), key=lambda each: order_of(each.row))
    return [
        each.row if each is best_first[0] else _beside_the_best(best_first[0], each) for each in best_first
    ]


@dataclass(frozen=True)
class _Found:
    row: AdviceRow
    case: Case
    changes: Sequence[Change]


def _beside_the_best(best: _Found, other: _Found) -> AdviceRow:
    """The advice, which says if the best one leaves it little to save: both may take the same time away."""
    if not best.changes or not other.changes or best.case is not other.case:
        return other.row
    order = [rule.id for rule in RULES]
    pair = sorted((best, other), key=lambda each: order.index(each.row.id))
    after_ns = best.case.step.after_ns([change for each in pair for change in each.changes])
    more = (best.row.after_ns or 0) - after_ns
    if more < _LITTLE * (other.row.saving_ns or 0):
        gain = (
            f"{duration_text(more)} further gain"
            if more >= WORTH_SAYING * (best.row.before_ns or 0)
            else "no further gain"
        )
        told = f" It overlaps with “{best.row.title}”: {gain} after that."
        return with_fields(other.row, why=other.row.why + told)
    return other.row


def _changes(evidence: Evidence) -> list[Change]:
    return changes_named(evidence.changes or (), evidence.loader_workers)


def _priced(case: Case, rule: Rule, evidence: Evidence) -> AdviceRow | None:
    row = rule.row(evidence)
    if evidence.changes is None:
        return row
    if not case.step.unprofiled.is_understood:
        return None
    price = case.step.predict_where_worth(_changes(evidence), WORTH_SAYING)
    if price is None or (price.low < _AS_LIKELY_WORSE and price.likely < _HARDLY_BETTER):
        return None
    confidence = row.confidence
    if price.low < 1.0:
        # The saving is no larger than what the estimate may be off by.
        confidence = "low" if price.likely < _CLEARLY_BETTER else _at_most_medium(confidence)
    return with_fields(
        row,
        saving_ns=round(price.saving_ns),
        speedup=Interval(low=price.low, likely=price.likely, high=price.high),
        before_ns=round(price.before_ns),
        after_ns=round(price.after_ns),
        limit=price.limit,
        confidence=confidence,
    )


def of_job(row: AdviceRow, step_ns: Interval | None) -> AdviceRow:
    """The advice told of the step of all devices together, as the report's first lines are: the gain stays."""
    if step_ns is None or row.speedup is None or not row.before_ns:
        return row
    before = round(step_ns.likely)
    after = round(step_ns.likely / row.speedup.likely)
    return with_fields(row, before_ns=before, after_ns=after, saving_ns=before - after)


def _at_most_medium(confidence: Level) -> Level:
    return "medium" if confidence == "high" else confidence


def _of_a_whole(row: AdviceRow) -> AdviceRow:
    """Without marked steps the replayed step is the whole recording, start and all: say so, and trust it less."""

    def told(text: str) -> str:
        return re.sub(r"\b(?:in )?(?:a|per|each) step\b", "in all", text).replace("the step", "the recording")

    evidence = [told(line) for line in row.evidence]
    return with_fields(row, why=told(row.why), evidence=evidence, confidence="low")
