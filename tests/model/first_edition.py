"""A document of `profkit.report/1` under the names of `profkit.report/2`; what /1 never said is left out."""

from typing import Any

from profkit.model.names import IDLE_CAUSES, SHARES

_THRESHOLDS = (
    "kernel-overhead",
    "queue-latency",
    "unsaturated",
    "warm-up-step",
    "runner-up",
    "undecided",
)
_NOT_COMPARED = {
    "all recordings say that they are of the same rank: they are not compared": "one-rank",
    "no collective was found on several ranks, so nothing is compared across their clocks": "no-common-collective",
}


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    """The same report with the names of the second edition."""
    made = {**document, "schema": "profkit.report/2"}
    made["devices"] = [_shared(row) for row in document["devices"]]
    made["phases"] = [_shared(row) for row in document["phases"]]
    made["kernels"] = [_kernel(row) for row in document["kernels"]]
    made["ranks"] = [_moved(_shared(row), holds_up_ns="causes_wait_ns") for row in document["ranks"]]
    made["advice"] = [_moved(row, counter="caveats") for row in document["advice"]]
    window = document["window"]
    made["window"] = {**window, "steps": [_shared(row) for row in window["steps"]]}
    made["verdict"] = _moved(_shared(document["verdict"]), instead="remedy", held_up_by="straggler")
    by_cause = {**dict.fromkeys(IDLE_CAUSES, 0), **document["idle"]["by_cause"]}
    made["idle"] = {**document["idle"], "by_cause": by_cause}
    made["method"] = _method(document["method"])
    return made


def _moved(row: dict[str, Any], **names: str) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in row.items()}


def _shared(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "shares": {**dict.fromkeys(SHARES, 0), **row["shares"]}}


def _kernel(row: dict[str, Any]) -> dict[str, Any]:
    # How many launches a phase has is not in /1.
    return {**row, "phases": {path: {"ns": ns, "count": 0} for path, ns in row["phases"].items()}}


def _method(method: dict[str, Any]) -> dict[str, Any]:
    rows = zip(_THRESHOLDS, method["thresholds"], strict=True)
    ranks = _moved(method["ranks"], instead="not_compared")
    if "not_compared" in ranks:
        ranks["not_compared"] = _NOT_COMPARED[ranks["not_compared"]]
    if "numbered_by" in ranks:
        ranks["numbered_by"] = "file-order"
    return {
        **method,
        "thresholds": [{**row, "code": code, "amount": 0.0} for code, row in rows],
        "ranks": ranks,
    }
