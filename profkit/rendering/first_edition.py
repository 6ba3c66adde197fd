"""Documents of `profkit.report/1`, which saved reports and histories hold, under the names of `profkit.report/2`.

What the first edition never said stays unknown: how many launches of a kernel each of several phases has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from profkit.model.names import IDLE_CAUSES, SHARES
from profkit.model.report import REPORT_SCHEMA

__all__ = ["FIRST_EDITION", "second_edition"]

FIRST_EDITION: Final = "profkit.report/1"
"""The name of the documents that profkit 0.1 wrote."""

JsonObject: TypeAlias = Mapping[str, Any]
"""An object of JSON as it was read, before anything is known of it."""

_THRESHOLDS: Final = {
    "To: fixed time of any kernel": "kernel-overhead",
    "Q: longest gap between queued operations": "queue-latency",
    "unsaturated below": "unsaturated",
    "warm-up step above": "warm-up-step",
    "runner-up named within": "runner-up",
    "undecided above": "undecided",
}
_NOT_COMPARED: Final = {
    "all recordings say that they are of the same rank: they are not compared": "one-rank",
    "no collective was found on several ranks, so nothing is compared across their clocks": "no-common-collective",
}
_NO_OPTIONS: Final = {"step": None, "device": None, "peaks": None, "plain_step_ns": None}
_NO_HOST_TIME: Final = {
    "launch_calls_ns": 0,
    "other_calls_ns": 0,
    "operators_ns": 0,
    "outside_ns": 0,
    "by_operator": [],
}


def second_edition(document: JsonObject) -> JsonObject:
    """A document of the first edition as one of the second.

    Args:
        document: A whole one; of a damaged one, whatever is no object or list stays as it is, for a reader to refuse.
    """
    return {
        **document,
        "schema": REPORT_SCHEMA,
        **_each(document, "devices", _with_shares),
        **_each(document, "phases", _with_shares),
        **_each(document, "kernels", _kernel),
        **_each(document, "ranks", _rank),
        **_each(document, "advice", _advice),
        **_one(document, "window", _window),
        **_one(document, "verdict", _verdict),
        **_one(document, "idle", _idle),
        "method": _method(document.get("method") or {}),
    }


def _each(document: JsonObject, name: str, change: Any) -> JsonObject:
    rows = document.get(name)
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return {}
    return {name: [change(row) if isinstance(row, Mapping) else row for row in rows]}


def _one(document: JsonObject, name: str, change: Any) -> JsonObject:
    section = document.get(name)
    return {name: change(section)} if isinstance(section, Mapping) else {}


def _renamed(row: JsonObject, **names: str) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in row.items()}


def _whole(names: Sequence[str], times: Any) -> Any:
    """Times by name, with those names that are newer than the document."""
    return {**dict.fromkeys(names, 0), **times} if isinstance(times, Mapping) else times


def _with_shares(row: JsonObject) -> JsonObject:
    return {**row, "shares": _whole(SHARES, row["shares"])} if "shares" in row else row


def _rank(row: JsonObject) -> JsonObject:
    return _renamed(_with_shares(row), holds_up_ns="causes_wait_ns")


def _kernel(row: JsonObject) -> JsonObject:
    phases = row.get("phases")
    if not isinstance(phases, Mapping):
        return row
    # With several phases, only time was told of each.
    count = row.get("count") if len(phases) == 1 and [row.get("total_ns")] == [*phases.values()] else None
    told = {
        path: ns if isinstance(ns, Mapping) else {"ns": ns, "count": count} for path, ns in phases.items()
    }
    return {**row, "phases": told}


def _advice(row: JsonObject) -> JsonObject:
    return _renamed(row, counter="caveats", instead="remedy")


def _window(window: JsonObject) -> JsonObject:
    return {
        "parts": [],
        **window,
        **_each(window, "steps", lambda step: {"note": None, **_with_shares(step)}),
    }


def _verdict(verdict: JsonObject) -> JsonObject:
    given = _renamed(_with_shares(verdict), instead="remedy", held_up_by="straggler")
    return {"basis_shares": {}, "runner_up": None, "remedy": None, "caveats": [], **given}


def _idle(idle: JsonObject) -> JsonObject:
    given = {"gaps_left_out": 0, "host": _NO_HOST_TIME, **idle}
    return {**given, "by_cause": _whole(IDLE_CAUSES, idle.get("by_cause"))}


def _method(method: JsonObject) -> JsonObject:
    ranks = _renamed(method.get("ranks") or {}, instead="not_compared")
    if ranks.get("not_compared") in _NOT_COMPARED:
        ranks["not_compared"] = _NOT_COMPARED[ranks["not_compared"]]
    if ranks.get("numbered_by"):
        ranks["numbered_by"] = "file-order"
    return {
        "steps_found": [],
        "events": 0,
        **method,
        "options": {**_NO_OPTIONS, **(method.get("options") or {})},
        "thresholds": [_threshold(row) for row in method.get("thresholds") or ()],
        "ranks": {"parallelism": [], "streams": [], **ranks},
    }


def _threshold(row: JsonObject) -> JsonObject:
    """With its code and its number, which the first edition wrote in words: ``0.40 of the roof``."""
    if "code" in row:
        return row
    number = str(row.get("value", "")).split(" ")[0].rstrip("x")
    amount = float(number.rstrip("%")) / (100 if number.endswith("%") else 1)
    return {**row, "code": _THRESHOLDS[row["name"]], "amount": amount}
