"""The trap cases, by the values of their MACHINE lines, as far as a reader shows them."""

import json
from pathlib import Path

import numpy as np
import pytest

from profkit.errors import ReadError
from profkit.model import OperationKind, RangeKind, Trace
from profkit.readers import read
from tests.readers.kineto_by_hand import union
from tests.shared import DATA

CASES = DATA / "cases"
NAMES = sorted(p.name.removesuffix(".expect.txt") for p in CASES.glob("*.expect.txt"))
TRACES = [
    n
    for n in NAMES
    if any((CASES / f"{n}{s}").exists() for s in (".json", ".json.gz")) and n != "22b_empty_file"
]


def expected(name: str) -> dict:
    line = (CASES / f"{name}.expect.txt").read_text().strip().splitlines()[-1]
    return json.loads(line.removeprefix("MACHINE "))


def trace_of(name: str) -> Trace:
    path = CASES / f"{name}.json"
    return read(path if path.exists() else Path(f"{path}.gz"))


def us(value: float) -> int:
    return round(value * 1000)


def spans(trace: Trace, *kinds: OperationKind) -> list[tuple[int, int]]:
    rows = trace.operations.take(np.isin(trace.operations.kind, kinds or list(OperationKind)))
    return list(zip(rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True))


def test_cases_are_there() -> None:
    assert len(TRACES) >= 18


@pytest.mark.parametrize("name", TRACES)
def test_machine_line(name: str) -> None:
    want, trace = expected(name), trace_of(name)
    kernels, everything = spans(trace, OperationKind.KERNEL), spans(trace)
    copies = trace.operations.take(trace.operations.kind == OperationKind.COPY)
    have = {
        "n_kernels": len(kernels),
        "kernel_sum_us": sum(end - start for start, end in kernels),
        "kernel_union_us": union(kernels),
        "gpu_union_us": union(everything),
        "gpu_span_us": max((e for _, e in everything), default=0)
        - min((s for s, _ in everything), default=0),
        "n_memcpy": len(copies),
        "copy_sum_us": int((copies.end_ns - copies.start_ns).sum()),
        "copy_bytes": int(copies.bytes.sum()),
        "n_invalid": sum(trace.dropped.values()),
        "launch_api_us": int((trace.calls.end_ns - trace.calls.start_ns).sum()),
        "n_linked": int(
            np.isin(
                trace.operations.correlation[trace.operations.kind == OperationKind.KERNEL],
                trace.calls.correlation[trace.calls.correlation != 0],
            ).sum()
        ),
    }
    checked = [key for key in want if key in have]
    assert {key: have[key] for key in checked} == {
        key: us(want[key]) if key.endswith("_us") else want[key] for key in checked
    }
    assert checked or name == "09_rank0"


def test_broken_json_is_mended_and_said() -> None:
    assert {f.code for f in trace_of("01_win_backslash").findings} == {"invalid-escapes"}
    assert {f.code for f in trace_of("02_inf_nan_args").findings} == {"bare-numbers"}
    texts = trace_of("01_win_backslash").strings
    assert any("C:\\users" in text for text in texts)


def test_truncation_is_said_with_its_bytes() -> None:
    (finding,) = trace_of("04_truncated_tail").findings
    assert finding.code == "truncated"
    text = (CASES / "04_truncated_tail.json").read_text()
    assert finding.count == len(text) - text.rindex('{"ph"')


def test_an_empty_file_is_one_line() -> None:
    with pytest.raises(ReadError, match="empty"):
        read(CASES / "22b_empty_file.json")


def test_ranks_have_their_own_time_zero() -> None:
    want, first, second = expected("09_rank0"), read(CASES / "09_rank0.json"), read(CASES / "09_rank1.json")
    absolute = [
        (t.unix_epoch_ns + int(t.operations.start_ns.min()), t.unix_epoch_ns + int(t.operations.end_ns.max()))
        for t in (first, second)
    ]
    assert absolute[1][0] - absolute[0][0] == us(want["rank1_minus_rank0_start_us"])
    assert absolute[1][1] - absolute[0][1] == us(want["rank1_minus_rank0_end_us"])


def test_strings_instead_of_numbers() -> None:
    trace = trace_of("08_string_ts_pid_tid")
    assert [d.ordinal for d in trace.devices] == [0]
    assert set(trace.operations.stream.tolist()) == {7}
    assert len(trace.processes) <= 1
    assert set(trace.ranges.kind.tolist()) == {RangeKind.OVERHEAD}


def test_only_metadata_is_said() -> None:
    (finding,) = trace_of("12_metadata_only").findings
    assert finding.code == "no-events"


def test_stream_zero_and_device_two_are_real() -> None:
    trace = trace_of("15_amd_zero_correlation")
    assert [d.ordinal for d in trace.devices] == [2]
    assert 0 in trace.operations.stream
    assert (trace.operations.correlation == 0).sum() == 3


def test_ids_of_64_bits_are_exact() -> None:
    trace = trace_of("25_huge_ints_in_args")
    assert expected("25_huge_ints_in_args")["stream_id"] in trace.operations.stream.tolist()


def test_junk_in_a_list_is_counted() -> None:
    assert trace_of("26_bare_array_unsorted").dropped == {"not_an_object": 2}


def test_lost_and_absurd_times_are_told_apart() -> None:
    assert trace_of("20_zero_timestamp_kernel").dropped == {"lost_timestamps": 1}
    assert trace_of("94_absurd_timestamps").dropped == {"implausible_times": 3}


def test_the_version_of_a_call_is_no_part_of_its_name() -> None:
    trace = trace_of("27_launch_api_names")
    assert set(trace.names(trace.calls.name)) == {
        "cuLaunchKernelEx",
        "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel",
    }
    assert trace.calls.driver.sum() == 1


def test_hostile_names_are_kept_as_text() -> None:
    trace = trace_of("91_xss_names")
    assert any("<script>" in name for name in trace.names(trace.operations.name))


@pytest.mark.parametrize(("newer", "linked"), [(False, [9, 0]), (True, [7, 0])])
def test_without_correlation_ids_the_external_id_links_calls_and_kernels(tmp_path, newer, linked):
    """Roctracer once wrote no other; where there are correlation ids, the external id tells the operator."""
    both = {"External id": 9} | ({"correlation": 7} if newer else {})
    events = [
        {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": both},
        {"ph": "X", "cat": "kernel", "name": "first", "pid": 0, "tid": 0, "ts": 3, "dur": 1, "args": both | {"device": 0}},
        {"ph": "X", "cat": "kernel", "name": "second", "pid": 0, "tid": 0, "ts": 5, "dur": 1, "args": {"External id": 8}},
    ]  # fmt: skip
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    trace = read(file)
    assert trace.operations.correlation.tolist() == linked
    assert trace.calls.correlation.tolist() == linked[:1]


@pytest.mark.parametrize(("category", "told"), [("mtia_ccp_events", ["MTIA"]), ("some_events", None)])
def test_the_events_of_another_accelerator_are_named(tmp_path, category, told):
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [host, host | {"cat": category}]}))
    found = {finding.code: finding.params for finding in read(file).findings}
    assert found.get("other-accelerator", {}).get("accelerators") == told


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank3.json", 3), ("trace.rank-12.json", 12), ("RANK_4.json", 4), ("host_worker5.1699.pt.trace.json", 5),
     ("worker.6.json", 6), ("rank.json", None), ("num_workers_7.json", None), ("trace_8.json", None)],
)  # fmt: skip
def test_a_rank_that_the_file_does_not_say_is_in_its_name(
    tmp_path: Path, name: str, rank: int | None
) -> None:
    (tmp_path / name).write_bytes((CASES / "26_bare_array_unsorted.json").read_bytes())
    assert read(tmp_path / name).source.rank == rank
