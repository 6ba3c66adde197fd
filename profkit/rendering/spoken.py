"""TRANSITIONAL: the sentences of a `Result`, until the analysis returns a typed report and `document_of` says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec

from profkit.model import report_memory, report_ranks
from profkit.model.report import Threshold
from profkit.model.report_time import StepRow
from profkit.model.report_verdict import AdviceRow, Step, Verdict
from profkit.model.result import Result
from profkit.rendering import document
from profkit.rendering.sentences import (
    finding_message,
    oom_explanation,
    parallelism_evidence,
    step_note,
    threshold_words,
    verdict_caveats,
    verdict_remedy,
    verdict_sentence,
)

__all__ = ["spoken"]


def spoken(result: Result) -> Result:
    """The result with the sentences of all codes that have none yet."""
    memory = _memory(result.memory) if isinstance(result.memory, report_memory.Memory) else result.memory
    health = {**result.health, "findings": [_finding(row) for row in result.health["findings"]]}
    method = result.method
    if method.get("ranks"):
        method = {**method, "ranks": _ranks(method["ranks"])}
    if method.get("thresholds"):
        method = {**method, "thresholds": [_threshold(row) for row in method["thresholds"]]}
    return replace(
        result,
        memory=memory,
        health=health,
        method=method,
        verdict=_verdict(result),
        window=_window(result.window),
        advice=[_advice(row) for row in result.advice],
    )


def _advice(row: Any) -> Any:
    """Under the names of the first edition."""
    if not isinstance(row, AdviceRow):
        return row
    later = ("caveats", "remedy", "change", "precondition_unmet")
    return {**{name: row[name] for name in row if name not in later}, "counter": row.caveats}


def _window(window: Any) -> Any:
    steps = [
        _said(document.StepRow, row, note=step_note(row)) if isinstance(row, StepRow) else row
        for row in window["steps"]
    ]
    return {**window, "steps": steps}


def _threshold(row: Any) -> Any:
    if not isinstance(row, Threshold):
        return row
    return {"code": row.code, "amount": row.amount, **threshold_words(row)._asdict()}


def _verdict(result: Result) -> Any:
    row = result.verdict
    if "doubts" not in row or "sentence" in row:
        return row
    given = {name: row[name] for name in row if name not in ("sentence", "instead", "caveats")}
    plain = msgspec.to_builtins(given)
    report: Any = SimpleNamespace(
        verdict=msgspec.convert(plain, Verdict),
        memory=result.memory,
        devices=result.devices,
        window=SimpleNamespace(device_ns=result.window["device_ns"]),
        step=_step(result),
    )
    late = plain.pop("straggler", None)
    return {
        **plain,
        "sentence": verdict_sentence(report),
        "instead": verdict_remedy(report),
        "caveats": verdict_caveats(report),
        "held_up_by": late and {name: late[name] for name in ("rank", "waiting_ns", "share", "bound")},
    }


def _step(result: Result) -> Step | None:
    return msgspec.convert(result.step, Step) if isinstance(result.step, dict) else result.step


def _finding(row: Any) -> Any:
    """The row with its message; of a dictionary again a dictionary."""
    if "message" in row:
        return row
    return _said(document.Finding, row, message=finding_message(row))


def _memory(memory: report_memory.Memory) -> Any:
    ooms = [_said(document.OutOfMemory, row, explanation=oom_explanation(row)) for row in memory.oom]
    told: Sequence[Any] = [_finding(row) for row in memory.findings]
    return _said(document.Memory, memory, oom=ooms, findings=told)


def _ranks(ranks: Any) -> Any:
    return {**ranks, "parallelism": [_parallelism(row) for row in ranks.get("parallelism", ())]}


def _parallelism(row: Any) -> Any:
    if "sign" not in row:
        return row
    known = report_ranks.Parallelism(**row)
    return {"kind": known.kind, "basis": known.basis, "evidence": parallelism_evidence(known)}


def _said(kind: Any, row: msgspec.Struct, **words: Any) -> Any:
    """A row of the model as one of the document."""
    given: Mapping[str, Any] = {name: getattr(row, name) for name in row.__struct_fields__}
    return kind(**{**given, **words})
