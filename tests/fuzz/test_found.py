"""What the fuzzers and the tries by hand have found, each as the smallest input that shows it."""

import csv
import io
import json
import os
import pickle
import sqlite3
import time
import tracemalloc
from contextlib import closing

import pytest

import profkit
from profkit.readers import sources
from tests.shared import DATA


def report_of(tmp_path, content, name="input.json"):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return profkit.analyze(file)


def event(cat, ts, dur, name="x", tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts, dur, stream=7, name="k", correlation=0):
    return event("kernel", ts, dur, name, tid=stream, device=0, stream=stream, correlation=correlation)


def memory_event(ts):
    args = {
        "Device Type": 1,
        "Device Id": 0,
        "Addr": 4096,
        "Bytes": 512,
        "Total Allocated": 512,
        "Total Reserved": 512,
    }
    return {**event("cpu_instant_event", ts, 0, "[memory]", **args), "ph": "i", "s": "t"}


@pytest.mark.parametrize("mark", ["cpu_op", "user_annotation"])
def test_a_card_that_did_nothing_at_all_has_no_window(tmp_path, mark):
    """A card is known, no operation is, and there are no steps: the tail has no operation to look up."""
    report = report_of(
        tmp_path,
        {"traceEvents": [event(mark, 5, 50, "forward"), memory_event(5), memory_event(30)]},
    )
    (device,) = report.document.devices
    assert device.busy_ns == device.window_ns == 0
    assert set(device.shares.values()) == {0}
    assert report.verdict.bound == "unknown"


def test_launches_of_one_kernel_at_once_are_no_more_than_all_of_the_busy_time(tmp_path):
    report = report_of(tmp_path, {"traceEvents": [kernel(10, 100, 7), kernel(10, 100, 8)]})
    (row,) = report.document.kernels
    assert (row.count, row.total_ns, row.share) == (2, 200_000, 1.0)


def test_an_annotation_that_ends_before_it_starts_is_a_moment(tmp_path):
    entry = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
    mark = {"name": "ProfilerStep#1", "stage": "START", "device": 0, "time_us": 90}
    snapshot = {
        "segments": [],
        "device_traces": [[{**entry, "time_us": at, "addr": 4096 * at} for at in (10, 60, 100, 120)]],
        "external_annotations": [mark, {**mark, "stage": "END", "time_us": 15}],
    }
    memory = report_of(tmp_path, pickle.dumps(snapshot), "s.pickle").document.memory
    assert [step.net_bytes for step in memory.steps] == [0]


def test_no_cell_of_the_csv_breaks_a_line_or_turns_the_text_round(tmp_path):
    name = "a\u2028b\u202ec\u200b\x1b[2J"
    text = report_of(tmp_path, {"traceEvents": [kernel(10, 100, name=name)]}).render("csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == ["abc[2J"]


def test_an_input_larger_than_the_free_memory_is_one_line(monkeypatch):
    def starved(*_):
        raise MemoryError

    monkeypatch.setattr(sources, "_held", starved)
    with pytest.raises(profkit.ProfkitError, match="larger than the free memory"):
        profkit.analyze(DATA / "cases/22_no_step_no_rank.json.gz")


@pytest.mark.parametrize("name", ["91_xss_names.json", "50_mem_baseline.pickle"])
def test_a_file_that_is_cut_short_while_it_is_read_does_not_end_the_process(tmp_path, name):
    """What is mapped into memory and then cut off is a bus error when it is touched."""
    file = tmp_path / "input"
    content = (DATA / "cases" / name).read_bytes()
    file.write_bytes(content)
    with sources.open_input(str(file)) as opened:
        os.truncate(file, 0)
        assert bytes(opened.content) == content


def test_a_cell_of_a_hundred_megabytes_is_not_read(tmp_path):
    export = tmp_path / "report.sqlite"
    export.write_bytes((DATA / "cases/30_emit_nvtx_names.sqlite").read_bytes())
    with closing(sqlite3.connect(export)) as database, database:
        database.execute(
            "UPDATE StringIds SET value = hex(zeroblob(50000000)) WHERE rowid = (SELECT max(rowid) FROM StringIds)"
        )
    report = profkit.analyze(export)
    assert "damaged" in {finding.code for finding in report.document.health.findings}
    assert len(report.render("json")) < 1_000_000


def test_ranges_that_are_never_closed_do_not_fill_the_memory(tmp_path):
    count = 3000
    opened = [event("user_annotation", at, 10 * count - at, f"p{at}") for at in range(count)]
    launch = event("cuda_runtime", count + 1, 1, "cudaLaunchKernel", correlation=1)
    report = report_of(tmp_path, {"traceEvents": [*opened, launch, kernel(count + 5, 9, correlation=1)]})
    assert len(report.render("json")) < 1_000_000
    assert len(report.phases) == 64
    assert report.document.phases[-1].kernel_count == 1
    (finding,) = (f for f in report.document.health.findings if f.code == "phases-too-deep")
    assert finding.count == count - 64


def test_annotations_that_are_never_closed_do_not_fill_the_memory(tmp_path):
    entry = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": [], "time_us": 5000}
    mark = {"stage": "START", "device": 0}
    snapshot = {
        "segments": [],
        "device_traces": [[{**entry, "time_us": 1}, entry]],
        "external_annotations": [{**mark, "name": f"p{at}", "time_us": at} for at in range(3000)],
    }
    report = report_of(tmp_path, pickle.dumps(snapshot), "s.pickle")
    assert len(report.render("json")) < 1_000_000


@pytest.mark.parametrize("end", [b"u.", b"0."])
def test_numbers_that_hash_alike_are_refused_and_never_compared(tmp_path, end):
    """Multiples of 2**61 - 1 as keys of a dictionary: each is compared with all before it, 100 000 take a minute."""
    prime = 2**61 - 1
    keys = b"".join(b"\x8a\x0b" + (at * prime).to_bytes(11, "little") + b"N" for at in range(1, 100_000))
    with pytest.raises(profkit.ProfkitError, match="more than 64 bits"):
        report_of(tmp_path, b"\x80\x04}(" + keys + end, "s.pickle")
    with pytest.raises(profkit.ProfkitError, match="more than 64 bits"):
        report_of(tmp_path, b"\x80\x02}(L" + str(prime**2).encode() + b"L\nNu.", "s.pickle")


@pytest.mark.parametrize("protocol", range(6))
def test_numbers_of_64_bits_are_read(tmp_path, protocol):
    entry = {
        "action": "alloc",
        "addr": 2**64 - 1,
        "size": 512,
        "stream": -(2**63),
        "frames": [],
        "time_us": 1,
    }
    snapshot = {"segments": [], "device_traces": [[{**entry, "addr": 2**63 - 512}, entry]]}
    assert report_of(tmp_path, pickle.dumps(snapshot, protocol), "s.pickle").document.memory is not None


def test_operators_without_end_cost_no_more_than_their_work(tmp_path):
    count, launches = 3000, 400
    opened = [event("cpu_op", at, 10 * count - at, f"o{at}") for at in range(count)]
    work = [kernel(2 * count + at, 1, correlation=at + 1) for at in range(launches)]
    calls = [
        event("cuda_runtime", count + at, 1, "cudaLaunchKernel", correlation=at + 1) for at in range(launches)
    ]
    tracemalloc.start()
    try:
        report = report_of(tmp_path, {"traceEvents": [*opened, *calls, *work]})
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()
    inclusive = {row.name: row.gpu_inclusive_ns for row in report.document.ranges}
    assert inclusive["o0"] == 1000 * launches
    (finding,) = (f for f in report.document.health.findings if f.code == "ranges-too-deep")
    assert finding.count == count - 128


def test_thousands_of_operators_around_each_other_cost_no_more_than_thousands_of_operators(tmp_path):
    def seconds(count):
        opened = [event("cpu_op", 10 * at, 30 * count - 10 * at, f"o{at}") for at in range(count)]
        calls = [
            event("cuda_runtime", 10 * at + 5, 1, "cudaLaunchKernel", correlation=at + 1)
            for at in range(count)
        ]
        work = [kernel(10 * at + 9, 1, correlation=at + 1) for at in range(count)]
        started = time.process_time()
        document = report_of(tmp_path, {"traceEvents": [*opened, *calls, *work]}).document
        assert sum(row.gpu_self_ns for row in document.operators) == 1000 * count
        return time.process_time() - started

    seconds(10)
    assert seconds(8000) < 9 * seconds(2000)


def test_thousands_of_start_and_end_ranges_at_once_cost_no_more_than_their_levels(tmp_path):
    export = tmp_path / "many.sqlite"
    export.write_bytes((DATA / "cases/30_emit_nvtx_names.sqlite").read_bytes())
    numbers = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
        INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid)
        SELECT start + i, "end" + 100000 - i, 60, 'r' || i, thread FROM n,
        (SELECT min(start) AS start, max("end") AS "end", max(globalTid) AS thread FROM NVTX_EVENTS)"""
    with closing(sqlite3.connect(export)) as database, database:
        database.execute(numbers)
    document = profkit.analyze(export).document
    (finding,) = (f for f in document.health.findings if f.code == "ranges-too-deep")
    assert finding.count == 2000 - 128


def test_thousands_of_threads_cost_no_more_than_thousands_of_threads(tmp_path):
    """Each with a phase and a launch: what is asked of every thread must not walk over all threads and texts."""

    def seconds(count):
        events = [
            made
            for at in range(count)
            for made in (
                event("user_annotation", 10 * at, 9, f"phase {at}", tid=at),
                event("cuda_runtime", 10 * at + 1, 2, "cudaLaunchKernel", tid=at, correlation=at + 1),
                kernel(10 * at + 5, 4, correlation=at + 1),
            )
        ]
        started = time.process_time()
        report_of(tmp_path, {"traceEvents": events})
        return time.process_time() - started

    seconds(10)
    assert seconds(3200) < 9 * seconds(800)


def test_work_on_thousands_of_devices_is_refused(tmp_path):
    events = [kernel(10 * at, 4) for at in range(2000)]
    for at, each in enumerate(events):
        each["args"]["device"] = at
    with pytest.raises(profkit.ProfkitError, match="names 2000 devices, so its device numbers are damaged"):
        report_of(tmp_path, {"traceEvents": events})
    assert len(report_of(tmp_path, {"traceEvents": events[:70]}).devices) == 70


def test_steps_on_many_devices_cost_no_more_than_their_product(tmp_path):
    def seconds(steps):
        marks = [event("user_annotation", 10 * at, 9, f"ProfilerStep#{at}") for at in range(steps)]
        work = [kernel(10 * at, 8, stream=at % 100) for at in range(2000)]
        for at, each in enumerate(work):
            each["args"]["device"] = at % 100
        started = time.process_time()
        assert len(report_of(tmp_path, {"traceEvents": marks + work}).document.window.steps) == steps
        return time.process_time() - started

    seconds(10)
    assert seconds(4800) < 9 * seconds(1200)


def test_the_longest_gaps_of_all_devices_are_described(tmp_path):
    work = [kernel(1000 * at + 10 * (at % 100), 8, stream=at % 100) for at in range(3000)]
    for at, each in enumerate(work):
        each["args"]["device"] = at % 100
    idle = report_of(tmp_path, {"traceEvents": work}).document.idle
    length = [gap.dur_ns for gap in idle.gaps]
    assert (len(length), length) == (200, sorted(length, reverse=True))
    assert len({gap.device for gap in idle.gaps}) > 2
    assert idle.gaps_left_out > 2000


def test_work_of_tens_of_thousands_of_threads_is_refused(tmp_path):
    events = [event("user_annotation", 10 * at, 9, "forward", tid=at) for at in range(17_000)]
    with pytest.raises(profkit.ProfkitError, match="names 17000 threads, so its thread numbers are damaged"):
        report_of(tmp_path, {"traceEvents": events})


def test_a_memory_history_has_no_more_devices_than_torch_can_number(tmp_path):
    """Each phase is placed on each device: thousands of both are their product."""
    entry = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
    count = 600
    snapshot = {
        "segments": [],
        "device_traces": [[{**entry, "time_us": at + 1}] for at in range(count)],
        "external_annotations": [
            {"name": f"p{at}", "stage": stage, "device": 0, "time_us": at}
            for at in range(count)
            for stage in ("START", "END")
        ],
    }
    memory = report_of(tmp_path, pickle.dumps(snapshot), "s.pickle").document.memory
    assert len(memory.devices) == 128
    assert not memory.complete


def test_domains_of_many_processes_cost_no_more_than_their_ranges(tmp_path):
    """A table of all domains by all processes would be larger than the file."""
    numbers = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId)
        SELECT start + i, start + i + 4, 59, 'range', (i + 5) << 24, i FROM n, (SELECT min(start) AS start FROM NVTX_EVENTS)"""

    def seconds(count):
        export = tmp_path / f"{count}.sqlite"
        export.write_bytes((DATA / "cases/30_emit_nvtx_names.sqlite").read_bytes())
        with closing(sqlite3.connect(export)) as database, database:
            database.execute(numbers, (count,))
        started = time.process_time()
        ranges = profkit.analyze(export).ranges
        assert f"domain {count}" in set(ranges["domain"]), "not read"
        return time.process_time() - started

    seconds(10)
    assert seconds(1800) < 9 * seconds(450)
