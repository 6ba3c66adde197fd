"""The trap cases: every key of a case's MACHINE line is a number of the report, and no key may go unread."""

import contextlib
import gzip
import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.model import CopyKind, OperationKind, Trace
from profkit.model.report import Report
from profkit.readers import read
from tests.shared import DATA

CASES = DATA / "cases"
TRACES = sorted(
    path.name.removesuffix(".expect.txt")
    for path in CASES.glob("*.expect.txt")
    if path.name[:2] <= "45" or "91" <= path.name[:2] <= "94"
)


@dataclass
class Case:
    """A case, analysed when it can be."""

    name: str
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        (path,) = (p for p in CASES.glob(f"{self.name}.*") if p.suffix != ".txt")
        return path

    @property
    def result(self) -> Report:
        return result_of(self.path)

    @property
    def trace(self) -> Trace:
        trace = read(self.path)
        assert isinstance(trace, Trace)
        return trace

    @property
    def refusal(self) -> str:
        with pytest.raises(profkit.ReadError) as caught:
            profkit.analyze(self.path)
        return str(caught.value)


@cache
def result_of(path: Path) -> Report:
    return profkit.analyze(path).document


@cache
def case_of(name: str) -> Case:
    told = (CASES / f"{name}.expect.txt").read_text().split("MACHINE ", 1)[1]
    return Case(name, json.loads(told))


def us(ns: int) -> float:
    """Exact: the cases are written in tenths of a microsecond."""
    return ns / 1000


def total(key: str) -> Callable[[Case], Any]:
    return lambda case: us(getattr(case.result.totals, key))


def gpu_time(case: Case) -> dict[str, float]:
    """Inclusive GPU time of everything that has a name: phases, ranges, operators."""
    rows = [*case.result.phases, *case.result.ranges]
    return {row.name: us(row.gpu_inclusive_ns) for row in rows}


def named(key: str) -> Callable[[Case], dict[str, float]]:
    """The GPU time of the names that the case asks for."""
    return lambda case: {name: gpu_time(case)[name] for name in case.expected[key]}


def operators(case: Case) -> dict[str, float]:
    return {row.name: us(row.gpu_ns) for row in case.result.operators}


def launches(case: Case) -> tuple[int, float]:
    """Calls whose correlation a kernel has, and calls that should have one: their number and their time."""
    calls = case.trace.calls
    names = case.trace.names(calls.name)
    rows = [row for row, name in enumerate(names) if "Launch" in name]
    return len(rows), us(sum(int(calls.end_ns[row] - calls.start_ns[row]) for row in rows))


def copies(case: Case) -> dict[str, float]:
    operations = case.trace.operations
    found: dict[str, float] = {}
    for kind in CopyKind:
        rows = (operations.kind == OperationKind.COPY) & (operations.copy_kind == kind)
        if rows.any():
            found[str(int(kind))] = us(int((operations.end_ns - operations.start_ns)[rows].sum()))
    return found


def between_ranks(edge: str) -> Callable[[Case], float]:
    """How much later rank 1 reaches an edge of its kernel: both files on the Unix clock."""

    def answer(case: Case) -> float:
        times = []
        for path in (case.path, case.path.with_name("09_rank1.json")):
            trace = read(path)
            assert isinstance(trace, Trace)
            assert trace.unix_epoch_ns is not None
            times.append(trace.unix_epoch_ns + int(getattr(trace.operations, edge)[0]))
        return us(times[1] - times[0])

    return answer


def is_strict_json(case: Case) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(case.path.read_bytes(), parse_constant=refuse)
    except ValueError:
        return False
    return True


def is_view(case: Case) -> bool:
    with contextlib.closing(sqlite3.connect(f"file:{case.path}?mode=ro&immutable=1", uri=True)) as connection:
        query = "SELECT type FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        (kind,) = connection.execute(query).fetchone()
    refused = [f for f in case.result.health.findings if f.code == "table-refused"]
    return kind == "view" and len(refused) == 1


def unnamed(case: Case) -> int:
    """Ranges without a name; the three of case 32 share one row."""
    return sum(row.count for row in case.result.phases if row.name == "<unnamed>")


ANSWERS: dict[str, Callable[[Case], Any]] = {
    "n_kernels": lambda case: case.result.totals.kernel_count,
    "kernel_sum_us": total("kernel_sum_ns"),
    "kernel_union_us": total("kernel_union_ns"),
    "gpu_span_us": total("gpu_span_ns"),
    "gpu_union_us": total("gpu_busy_ns"),
    "copy_sum_us": total("copy_ns"),
    "comm_sum_us": total("communication_sum_ns"),
    "comm_exposed_us": total("communication_exposed_ns"),
    "comm_overlapped_us": lambda case: us(
        case.result.totals.communication_sum_ns - case.result.totals.communication_exposed_ns
    ),
    "n_invalid": lambda case: sum(case.result.health.events_dropped.values()),
    "n_unlinked": lambda case: case.result.health.kernels_without_launch,
    "n_linked": lambda case: (
        case.result.totals.kernel_count
        - case.result.health.kernels_without_launch
        - case.result.health.warm_up_tail
    ),
    "n_launches_without_kernel": lambda case: case.result.health.launches_without_kernel,
    "n_launches": lambda case: launches(case)[0],
    "launch_api_us": lambda case: launches(case)[1],
    "by_range": named("by_range"),
    "inclusive": named("inclusive"),
    "process_wide": named("process_wide"),
    "same_thread": named("same_thread"),
    # All that another thread launched is in the phase that it inherits: 30 us of backward.
    "other_thread_us": lambda case: gpu_time(case)["backward"],
    # Outside all ranges: outside the phases, less what only the library's range holds (8 us).
    "outside_us": lambda case: us(case.result.health.gpu_ns_without_phase) - 8,
    "by_op": lambda case: {name: operators(case)[name] for name in case.expected["by_op"]},
    "named": lambda case: sorted(row.name for row in case.result.phases if row.name != "<unnamed>"),
    "unnamed": unnamed,
    "n_graphs": lambda case: int((case.trace.operations.kind == OperationKind.GRAPH).sum()),
    "n_memcpy": lambda case: int((case.trace.operations.kind == OperationKind.COPY).sum()),
    "copy_bytes": lambda case: int(
        case.trace.operations.bytes[case.trace.operations.kind == OperationKind.COPY].sum()
    ),
    "copies_us": copies,
    "stream_id": lambda case: max(case.trace.operations.stream.tolist()),
    "strict_json_fails": lambda case: not is_strict_json(case),
    "rank1_minus_rank0_start_us": between_ranks("start_ns"),
    "rank1_minus_rank0_end_us": between_ranks("end_ns"),
    "expanded_bytes": lambda case: len(gzip.decompress(case.path.read_bytes())),
    "size": lambda case: case.path.stat().st_size if "empty" in case.refusal else None,
    "sqlite_error": lambda case: "not a readable SQLite database" in case.refusal,
    "is_view": is_view,
    "nvtx_rows": lambda case: len(case.trace.ranges),
    "runtime_rows": lambda case: len(case.trace.calls),
    "unit": lambda case: "us",  # what the case's other numbers are in
}
"""How each key of a MACHINE line is read from the report, or from what the reader hands to it."""


def test_all_the_cases_are_here() -> None:
    assert len(TRACES) >= 35


@pytest.mark.parametrize("name", TRACES)
def test_a_case_has_the_numbers_that_it_demands(name: str) -> None:
    case = case_of(name)
    unread = set(case.expected) - set(ANSWERS)
    assert not unread, f"nothing reads {unread}"
    assert {key: ANSWERS[key](case) for key in case.expected} == case.expected


@pytest.mark.parametrize("name", TRACES)
def test_a_case_is_left_as_it_was(name: str) -> None:
    path = case_of(name).path
    before, beside = hashlib.sha256(path.read_bytes()).digest(), sorted(CASES.iterdir())
    with contextlib.suppress(profkit.ReadError):
        profkit.analyze(path)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert sorted(CASES.iterdir()) == beside


@pytest.mark.parametrize("name", TRACES)
def test_the_shares_of_a_case_add_up(name: str) -> None:
    if name in ("22b_empty_file", "93c_not_a_database"):
        pytest.skip("is refused")
    result = case_of(name).result
    for device in result.devices:
        assert sum(device.shares.values()) == device.window_ns
        assert min(device.shares.values()) >= 0
    assert sum(result.verdict.shares.values()) == result.window.device_ns
