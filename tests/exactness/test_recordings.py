"""Every number of our recordings equals the brute force's, to the nanosecond."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.model.names import SHARES
from profkit.model.report import Report, replace
from profkit.model.work import OperationBound
from profkit.readers import read
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.units import parse_duration_ns
from profkit.verification.intervals import length, united, within, without
from tests.exactness.brute_force import Op
from tests.exactness.brute_idle import BruteIdle
from tests.exactness.comparison import told, worked_out
from tests.exactness.plain_files import read_plainly
from tests.shared import DATA, SHARED, needs_shared

OURS = sorted([*DATA.glob("nsys/*.sqlite.gz"), *DATA.glob("kineto/*.json.gz")])
COPIED = {path.name.removesuffix(".gz") for path in OURS}
LARGER = sorted(
    path
    for path in [*SHARED.glob("recordings/nsys/*.sqlite"), *SHARED.glob("recordings/kineto/*.json.gz")]
    if path.name.removesuffix(".gz") not in COPIED
)
NUMBERS = (
    "kernels", "kernel sum", "kernel union", "kernels by name", "busy", "span", "copies", "communication",
    "exposed communication", "window", "steps", "phases", "kernels of the window", "devices", "idle", "idle by phase", "waits",
)  # fmt: skip


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.split('.')[0]}"


def each(paths: list[Path]) -> pytest.MarkDecorator:
    """A test for each recording; all of one run in one process, since the brute force takes longest."""
    return pytest.mark.parametrize(
        "path",
        [
            pytest.param(path, id=name_of(path), marks=pytest.mark.xdist_group(name_of(path)))
            for path in paths
        ],
    )


@cache
def report_of(path: Path) -> Report:
    return profkit.analyze(path).document


@cache
def brute_force_of(path: Path) -> BruteIdle:
    return BruteIdle(read_plainly(path), queue_latency_of(report_of(path)))


def queue_latency_of(result: Report) -> int:
    """Q is measured, not computed: the report says which value it took."""
    name = "Longest gap between queued operations"
    (value,) = (row.value for row in result.method.thresholds if row.name == name)
    return parse_duration_ns(value)


@cache
def both(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return told(report_of(path)), worked_out(brute_force_of(path))


def test_there_are_recordings_of_both_kinds() -> None:
    assert len([path for path in OURS if ".sqlite" in path.name]) >= 11
    assert len([path for path in OURS if ".json" in path.name]) >= 12


@pytest.mark.parametrize("number", NUMBERS)
@each(OURS)
def test_a_number_equals_the_brute_force(path: Path, number: str) -> None:
    ours, by_hand = both(path)
    assert ours[number] == by_hand[number]


@needs_shared
@pytest.mark.shared
@each(LARGER)
def test_the_larger_recordings_equal_the_brute_force(path: Path) -> None:
    ours, by_hand = both(path)
    assert {number: ours[number] for number in NUMBERS} == {number: by_hand[number] for number in NUMBERS}


@each(OURS)
def test_the_listed_gaps_are_the_longest_of_the_brute_force(path: Path) -> None:
    ours, by_hand = both(path)
    left_out = report_of(path).idle.gaps_left_out
    assert len(ours["gaps"]) + left_out == len(by_hand["gaps"])
    assert not [gap for gap in ours["gaps"] if gap not in by_hand["gaps"]]
    longest = sorted((gap[1] for gap in by_hand["gaps"]), reverse=True)
    assert [row.dur_ns for row in report_of(path).idle.gaps] == longest[: len(ours["gaps"])]


@each(OURS)
def test_the_nine_shares_follow_from_the_bound_of_each_operation(path: Path) -> None:
    """Given what limits each operation, the shares of each device and each step are a matter of counting."""
    brute, result = brute_force_of(path), report_of(path)
    bounds = bounds_of(path, brute)
    for row, device in zip(result.devices, brute.devices, strict=True):
        assert row.shares == shares_by_hand(brute, bounds, device, brute.hull(device))
    for number, step in enumerate(result.window.steps):
        expected = dict.fromkeys(SHARES, 0)
        for device, tile in brute.tiles(number).items():
            for share, ns in shares_by_hand(brute, bounds, device, tile).items():
                expected[share] += ns
        if step.kept:
            assert step.shares == expected


def bounds_of(path: Path, brute: BruteIdle) -> dict[int, str]:
    """The bound that profkit found for each operation: here an input, since it is tested elsewhere."""
    views, _ = timelines([read(path)], Options())
    (view,) = views
    operations = view.trace.operations
    columns = (
        operations.start_ns,
        operations.end_ns,
        operations.device,
        operations.correlation,
        view.work.bound,
    )
    found: dict[tuple[int, ...], Iterator[str]] = {}
    rows: dict[tuple[int, ...], list[str]] = {}
    for start, end, device, correlation, bound in zip(*(column.tolist() for column in columns), strict=True):
        rows.setdefault((start, end, device, correlation), []).append(OperationBound(bound).name)
    found = {key: iter(names) for key, names in rows.items()}
    ordinal = [device.ordinal for device in view.trace.devices]
    shift = int(operations.start_ns.min()) - min(op.start for op in brute.ops)

    def key(op: Op) -> tuple[int, ...]:
        return op.start + shift, op.end + shift, ordinal.index(op.device), op.correlation

    return {id(op): next(found[key(op)]) for op in brute.ops}


def shares_by_hand(
    brute: BruteIdle, bounds: dict[int, str], device: int, window: tuple[int, int]
) -> dict[str, int]:
    shares = dict.fromkeys(SHARES, 0)
    earlier: list[tuple[int, int]] = []
    for bound, share in (
        ("COMPUTE", "compute"),
        ("MEMORY", "memory"),
        ("OVERHEAD", "launch"),
        ("UNKNOWN", "unclassified"),
        ("COMMUNICATION", "communication"),
        ("TRANSFER", "transfer"),
    ):
        mine = united(
            [(op.start, op.end) for op in brute.ops if op.device == device and bounds[id(op)] == bound]
        )
        shares[share] += length(within(without(mine, earlier), *window))
        earlier += mine
    for gap in brute.gaps(device):
        for cause, pieces in gap.pieces.items():
            share = {"host": "launch", "queue": "launch", "input": "input", "sync": "sync"}.get(
                cause, "other"
            )
            shares[share] += length(within(pieces, *window))
    return shares


@pytest.mark.parametrize(
    ("workload", "device_ms", "plain_ms"),
    [("gpt_fp32", 63.4, 63.1), ("big_gemm_bf16", 5.5, 5.8), ("elementwise_chain", 3.94, 3.95)],
)
def test_a_step_of_a_busy_device_lasts_as_long_as_without_a_profiler(
    workload: str, device_ms: float, plain_ms: float
) -> None:
    window = report_of(DATA / f"nsys/{workload}.sqlite.gz").window
    kept = [step.device_ns / 1e6 for step in window.steps if step.kept]
    assert sum(kept) / len(kept) == pytest.approx(device_ms, rel=0.01)
    assert sum(kept) / len(kept) == pytest.approx(plain_ms, rel=0.06)


def test_the_ranks_of_one_report_have_the_numbers_that_each_has_alone() -> None:
    paths = [DATA / "kineto/ddp_rank0.json.gz", DATA / "kineto/ddp_rank1.json.gz"]
    together = profkit.analyze(paths).document
    alone = [report_of(path) for path in paths]
    for row, single in zip(together.devices, alone, strict=True):
        (only,) = single.devices
        assert replace(row, id=only.id) == only
    for total in (
        "kernel_count", "kernel_sum_ns", "kernel_union_ns", "gpu_busy_ns", "gpu_span_ns", "copy_ns",
        "communication_sum_ns", "communication_exposed_ns",
    ):  # fmt: skip
        assert getattr(together.totals, total) == sum(getattr(single.totals, total) for single in alone)
    assert together.window.device_ns == sum(single.window.device_ns for single in alone)
    assert together.idle.by_cause == {
        cause: sum(single.idle.by_cause[cause] for single in alone) for cause in together.idle.by_cause
    }
