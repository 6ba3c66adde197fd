"""TRANSITIONAL: the words of a report whose sections are still dictionaries; goes with `profkit.model.result`."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from profkit.model.findings import Finding
from profkit.model.report import Report, Threshold
from profkit.model.report_verdict import Verdict
from profkit.model.result import Result
from profkit.rendering.sentences import (
    finding_message,
    threshold_words,
    verdict_caveats,
    verdict_remedy,
    verdict_sentence,
)

__all__ = ["worded"]


def worded(result: Result) -> Result:
    """A result with the sentences that its sections lack; one that has them comes back as it is."""
    memory = result.memory
    if memory is not None and memory.get("findings"):
        memory = {**memory, "findings": [_finding(row) for row in memory["findings"]]}
    health = {
        **result.health,
        "findings": [_finding(row) for row in result.health.get("findings") or ()],
    }
    method = dict(result.method)
    if method.get("thresholds"):
        method["thresholds"] = [_threshold(row) for row in method["thresholds"]]
    return replace(result, health=health, memory=memory, method=method, verdict=_verdict(result))


def _finding(row: Any) -> Any:
    if isinstance(row, Finding):
        row = {name: row[name] for name in ("code", "severity", "message", "count", "params")}
    if not isinstance(row, dict) or "params" not in row:
        return row
    found = msgspec.convert({**row, "severity": str(row["severity"])}, Finding)
    kept = {"code": found.code, "severity": str(found.severity), "count": found.count}
    return {**kept, "message": finding_message(found)}


def _threshold(row: Any) -> Any:
    if not isinstance(row, Threshold):
        return row
    return {"code": row.code, "amount": row.amount, **threshold_words(row)._asdict()}


def _verdict(result: Result) -> Any:
    row = result.verdict
    if "doubts" not in row:
        return row
    given = {name: row[name] for name in row if name not in ("sentence", "instead", "caveats", "held_up_by")}
    verdict = msgspec.convert(msgspec.to_builtins(given), Verdict)
    report = cast(
        "Report",
        SimpleNamespace(
            verdict=verdict,
            memory=result.memory,
            devices=result.devices,
            window=SimpleNamespace(device_ns=result.window["device_ns"]),
            step=None,
        ),
    )
    return {
        **msgspec.to_builtins(given),
        "sentence": row.get("sentence") or verdict_sentence(report),
        "instead": row.get("instead") or verdict_remedy(report),
        "caveats": [*verdict_caveats(report), *(row.get("caveats") or ())],
        "held_up_by": row.get("held_up_by"),
    }
