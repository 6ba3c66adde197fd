"""The trap cases, by the values of their last lines."""

import hashlib
import json
import shutil
import time

import pytest

from profkit.errors import ReadError
from profkit.model import OperationKind, RangeKind, Trace
from profkit.readers.nsys import read_nsys
from tests.shared import DATA

CASES = DATA / "cases"


def expectation(name):
    lines = (CASES / f"{name}.expect.txt").read_text().splitlines()
    return json.loads(lines[-1].removeprefix("MACHINE "))


def case(name) -> Trace:
    return read_nsys(CASES / f"{name}.sqlite", name)


def union_ns(operations):
    covered, last = 0, None
    for start, end in sorted(zip(operations.start_ns.tolist(), operations.end_ns.tolist(), strict=True)):
        covered += max(0, end - max(start, start if last is None else last))
        last = end if last is None else max(last, end)
    return covered


def by_range(trace: Trace):
    """Time of kernels and graphs by range, by hand: the ranges open on a thread when it made the call."""
    found: dict[str, int] = {}
    names = trace.names(trace.ranges.name)
    calls = {int(c): row for row, c in enumerate(trace.calls.correlation)}
    for row in range(len(trace.operations)):
        call = calls[int(trace.operations.correlation[row])]
        start, thread = trace.calls.start_ns[call], trace.calls.thread[call]
        for name, begin, end, owner in zip(
            names, trace.ranges.start_ns, trace.ranges.end_ns, trace.ranges.thread, strict=True
        ):
            if owner == thread and begin <= start <= end:
                found[name] = found.get(name, 0) + int(
                    trace.operations.end_ns[row] - trace.operations.start_ns[row]
                )
    return found


def sums(trace: Trace, kind: OperationKind):
    rows = trace.operations.take(trace.operations.kind == kind)
    return len(rows), int((rows.end_ns - rows.start_ns).sum())


@pytest.mark.parametrize(
    "name",
    [
        "30_emit_nvtx_names",
        "32b_old_schema_no_textid",
        "37_graph_level_only",
        "39_negative_timestamps",
        "42_future_schema_suffix",
    ],
)
def test_ranges_of_a_case_own_what_they_launched(name):
    expected = expectation(name)
    unit = 1000
    assert {key: value // unit for key, value in by_range(case(name)).items()} == expected["by_range"]


@pytest.mark.parametrize("recorded", sorted(CASES.glob("[34]*.sqlite")), ids=lambda path: path.stem)
def test_totals_of_a_case(recorded):
    expected = expectation(recorded.stem)
    trace = read_nsys(recorded, recorded.name)
    kernels = trace.operations.take(trace.operations.kind == OperationKind.KERNEL)
    starts, ends = trace.operations.start_ns, trace.operations.end_ns
    found = {
        "n_kernels": len(kernels) or None,
        "n_graphs": sums(trace, OperationKind.GRAPH)[0],
        "kernel_sum_us": sums(trace, OperationKind.KERNEL)[1] / 1000,
        "kernel_union_us": union_ns(kernels) / 1000,
        "gpu_union_us": union_ns(trace.operations) / 1000,
        "gpu_span_us": (ends.max() - starts.min()) / 1000,
        "n_invalid": sum(trace.dropped.values()),
    }
    checked = {key: value for key, value in expected.items() if key in found}
    assert {key: found[key] for key in checked} == checked
    assert checked


def test_names_stand_in_the_row_or_in_the_table_of_strings():
    expected, trace = expectation("32_nvtx_text_variants"), case("32_nvtx_text_variants")
    names = trace.names(trace.ranges.name).tolist()
    assert [name for name in names if name != "<unnamed>"] == expected["named"]
    assert names.count("<unnamed>") == expected["unnamed"]


def test_domains_keep_their_ranges_apart():
    trace = case("36_two_domains_interleaved")
    inclusive = {name: ns // 1000 for name, ns in by_range(trace).items()}
    assert inclusive == expectation("36_two_domains_interleaved")["inclusive"]
    domains = dict(
        zip(trace.names(trace.ranges.name).tolist(), trace.names(trace.ranges.domain).tolist(), strict=True)
    )
    assert domains == {"app_A": "", "app_inner": "", "lib_B": "lib.domain"}


def test_start_end_ranges_are_a_kind_of_their_own():
    trace = case("34_start_end_ranges")
    assert trace.ranges.kind.tolist() == [RangeKind.START_END] * 2
    assert sorted((trace.ranges.end_ns - trace.ranges.start_ns).tolist()) == [300_000, 400_000]


def test_copies_have_kinds_sizes_and_host_memory():
    trace = case("44_memcpy_kinds_no_enum")
    rows = trace.operations.take(trace.operations.kind == OperationKind.COPY)
    by_kind = {
        str(kind): (end - start) // 1000
        for kind, start, end in zip(rows.copy_kind, rows.start_ns, rows.end_ns, strict=True)
    }
    assert by_kind == expectation("44_memcpy_kinds_no_enum")["copies_us"]
    sizes = dict(zip(trace.names(rows.name).tolist(), rows.bytes.tolist(), strict=True))
    assert sizes == {
        "Memcpy HtoD": 6_000_000,
        "Memcpy DtoH": 2_000_000,
        "Memcpy DtoD": 1_000_000,
        "Memcpy PtoP": 500,
    }
    assert dict(zip(rows.copy_kind.tolist(), rows.pageable.tolist(), strict=True))[1] == 1


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("42_future_schema_suffix", "schema-newer"),
        ("37_graph_level_only", "graphs-opaque"),
        ("93_view_trigger_names", "table-refused"),
    ],
)
def test_what_a_person_should_know_is_said(name, code):
    assert code in {finding.code for finding in case(name).findings}


def test_rows_that_cannot_be_true_are_counted_by_reason():
    assert case("40_zero_and_reversed_rows").dropped == {"lost_timestamps": 2, "reversed_times": 1}


def test_a_hostile_export_is_read_quickly_and_left_as_it_is(tmp_path):
    path = tmp_path / "93.sqlite"
    shutil.copyfile(CASES / "93_view_trigger_names.sqlite", path)
    before, started = hashlib.sha256(path.read_bytes()).hexdigest(), time.monotonic()
    trace = read_nsys(path, path.name)
    expected = expectation("93_view_trigger_names")
    assert time.monotonic() - started < 5
    assert (len(trace.ranges), len(trace.calls), len(trace.operations)) == (
        expected["nvtx_rows"],
        expected["runtime_rows"],
        0,
    )
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [each.name for each in tmp_path.iterdir()] == ["93.sqlite"]


def test_what_is_no_database_is_refused_in_one_line():
    with pytest.raises(ReadError, match="not a readable SQLite database") as caught:
        case("93c_not_a_database")
    assert "\n" not in str(caught.value)
