"""Files that other people published: each gives sane numbers, or is refused in one line that says why."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.model.names import SHARES
from profkit.model.report import Report
from tests.shared import SHARED, needs_shared

CORPUS = SHARED / "corpus"
FILES = sorted([*CORPUS.glob("nsys/*"), *CORPUS.glob("kineto/*")])

pytestmark = [pytest.mark.shared, needs_shared]


def manifest() -> dict[str, dict[str, str]]:
    with (CORPUS / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}


def may_be_refused(row: dict[str, str]) -> bool:
    """Only what is no trace, no Kineto, an IBM AIU trace, or holds no trace events."""
    told = " ".join(row[key] or "" for key in ("realness", "what", "flags", "quirks"))
    return row["realness"] == "negative" or any(
        mark in told for mark in ("NOT a trace", "NOT Kineto", "IBM Spyre", "no traceEvents key", "events=0;")
    )


def analysed(path: Path) -> tuple[Report | None, str]:
    try:
        return profkit.analyze(path).document, ""
    except profkit.ReadError as error:
        return None, str(error)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:60])
def test_a_published_file_has_sane_numbers_or_is_refused_with_a_reason(path: Path) -> None:
    told = manifest()[f"{path.parent.name}/{path.name}"]
    result, refusal = analysed(path)
    if result is None:
        assert may_be_refused(told), refusal
        assert len(refusal.splitlines()) == 1
        return
    totals = result.totals
    expected = int(told["kernels"] or 0)
    dropped = sum(result.health.events_dropped.values())
    assert (totals.kernel_count or 0) <= expected
    assert (totals.kernel_count or 0) + dropped >= expected, "a kernel is missing, and nothing says so"
    assert sum(row.count for row in totals.kernels) == (totals.kernel_count or 0)
    assert sum(row.total_ns for row in totals.kernels) == totals.kernel_sum_ns
    assert totals.kernel_union_ns <= min(totals.kernel_sum_ns, totals.gpu_busy_ns)
    assert totals.gpu_busy_ns <= totals.gpu_span_ns
    assert totals.communication_exposed_ns <= totals.communication_sum_ns
    for device in result.devices:
        assert sum(device.shares.values()) == device.window_ns
        assert 0 <= device.busy_ns <= device.window_ns
    assert set(result.verdict.shares) == set(SHARES)
    assert all(row.count > 0 or row["gpu_inclusive_ns"] >= 0 for row in result.phases)
    assert all_finite(profkit.Report(result).as_dict())


def all_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(all_finite, value.values()))
    if isinstance(value, list):
        return all(map(all_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
