"""Processes, devices, messages, and files that are not what they seem."""

import contextlib
import sqlite3
import time

import numpy as np
import pytest

from profkit.errors import ReadError
from profkit.model import OperationKind, RangeKind, Severity
from profkit.readers.nsys import read_nsys
from profkit.rendering.sentences import finding_message
from tests.readers.nsys_by_hand import PROCESS, THREAD, Export, codes, names, read
from tests.shared import DATA


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "report.sqlite")


# --- actors and devices


def test_threads_know_all_their_names(export):
    export.call("cudaFree", 10, 20).nvtx("given", 0, None, kind=39)
    for name in ["python", "pt_autograd_0"]:
        export.add("ThreadNames", nameId=export.string(name), priority=20, globalTid=THREAD)
    assert read(export).threads[0].names == ("given", "python", "pt_autograd_0")


def test_negative_global_ids_are_ids(export):
    thread = -(1 << 57) | 77 << 24 | 78
    export.call("cudaLaunchKernel", 10, 20, globalTid=thread).kernel(
        "k", 30, 40, globalPid=thread & ~0xFFFFFF
    )
    trace = read(export)
    assert [(process.pid, process.rank) for process in trace.processes] == [(77, None)]
    assert [(thread.process, thread.tid) for thread in trace.threads] == [(0, 78)]
    assert trace.operations.process.tolist() == [0]


def two_processes(export, ordinals=(1, 0)):
    for place, ordinal in enumerate(ordinals):
        process = PROCESS + (place << 24)
        export.call("cudaLaunchKernel", 10, 20, globalTid=process | 5)
        export.kernel(f"k{place}", 30, 40, globalPid=process, deviceId=ordinal)


def test_processes_are_ranks_in_the_order_of_their_devices(export):
    two_processes(export)
    trace = read(export)
    assert [(process.pid, process.rank) for process in trace.processes] == [(4243, 0), (4242, 1)]
    assert [device.ordinal for device in trace.devices] == [0, 1]
    by_name = dict(zip(names(trace, trace.operations), trace.operations.device.tolist(), strict=True))
    assert by_name == {"k0": 1, "k1": 0}


def test_renumbered_devices_are_told_apart_by_their_cards(export):
    two_processes(export, ordinals=(0, 0))
    for place, gpu in enumerate([3, 6]):
        export.add(
            "TARGET_INFO_CUDA_DEVICE",
            gpuId=gpu,
            cudaId=0,
            pid=4242 + place,
            uuid=f"u{gpu}",
            numMultiprocessors=66,
        )
    for gpu in range(8):
        export.add(
            "TARGET_INFO_GPU",
            id=gpu,
            name=f"card {gpu}",
            smCount=132,
            memoryBandwidth=4 * 10**12,
            uuid=f"u{gpu}",
        )
    trace = read(export)
    assert [(device.ordinal, device.name, device.sm_count) for device in trace.devices] == [
        (3, "card 3", 66),
        (6, "card 6", 66),
    ]
    assert sorted(trace.operations.device.tolist()) == [0, 1]


@pytest.mark.parametrize(("cards", "devices"), [(1, 1), (2, 2)])
def test_one_ordinal_in_two_processes_is_taken_by_the_number_of_cards(export, cards, devices):
    two_processes(export, ordinals=(0, 0))
    for gpu in range(cards):
        export.add("TARGET_INFO_GPU", id=gpu, name="card", smCount=132)
    trace = read(export)
    assert len(trace.devices) == devices
    assert "devices-ambiguous" in codes(trace)


def test_adapters_that_compute_nothing_are_no_cards(export):
    export.add("TARGET_INFO_GPU", id=0, name="Intel Iris", smCount=0, memoryBandwidth=0)
    export.add("TARGET_INFO_GPU", id=1, name="RTX", smCount=20, memoryBandwidth=5)
    device = read(export.kernel("k", 1, 2)).devices[0]
    assert (device.name, device.sm_count, device.bandwidth_bytes_per_s) == ("RTX", 20, None)


def test_work_without_a_process_belongs_to_the_one_that_called(export):
    export.call("cudaLaunchKernel", 1, 2)
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=3, end=4, deviceId=0, correlationId=1, demangledName=0)
    trace = read(export)
    assert trace.operations.process.tolist() == [0]
    assert names(trace, trace.operations) == ["<unnamed>"]


# --- overhead and messages


def test_only_the_profilers_own_overhead_is_overhead(export):
    export.call("cudaFree", 1, 2)
    for kind, name in [(3, "CUPTI Buffer flush"), (7, "Lazy Function Loading")]:
        export.add(
            "CUPTI_ACTIVITY_KIND_OVERHEAD",
            start=5,
            end=9,
            globalTid=THREAD,
            nameId=export.string(name),
            overheadType=kind,
        )
    trace = read(export)
    assert names(trace, trace.ranges) == ["CUPTI Buffer flush"]
    assert trace.ranges.kind.tolist() == [RangeKind.OVERHEAD]


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("Not all CUDA events might have been collected.", Severity.WARNING),
        ("CUPTI dropped 25 records, see /home/someone/secret/log.txt", Severity.WARNING),
        ("Importer error: Unknown runtime API function index: 468", Severity.WARNING),
        ("CUDA profiling might have not been started correctly.", Severity.WARNING),
        ("OpenGL profiling might have not been started correctly.", Severity.INFO),
        ("Not all NVTX events might have been collected.", Severity.INFO),
        ("Not all OpenGL events might have been collected.", Severity.INFO),
        ("Number of CUDA events collected: 60.", None),
        ("0 records were dropped", None),
    ],
)
def test_messages_about_lost_events_are_passed_on(export, message, severity):
    export.kernel("k", 1, 2).add("DIAGNOSTIC_EVENT", text=message, globalPid=PROCESS)
    found = [finding for finding in read(export).findings if finding.code == "events-lost"]
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert not any("someone" in finding.params["quote"] for finding in found)


def test_messages_of_helper_processes_are_left_out(export):
    export.kernel("k", 1, 2).add(
        "DIAGNOSTIC_EVENT", text="Not all CUDA events were collected.", globalPid=PROCESS + (9 << 24)
    )
    assert "events-lost" not in codes(read(export))


def test_secrets_of_the_environment_never_reach_the_trace(export):
    export.kernel("k", 1, 2)
    export.add(
        "TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="TOKEN=hunter2;RANK=3;HOME=/home/hunter2"
    )
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="hunter2")
    export.add("TARGET_INFO_SYSTEM_ENV", name="NvDriverVersion", value="hunter2")
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value='TOKEN="hunter2"')
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ARGUMENT_1", value="--token=hunter2")
    export.add("META_DATA_EXPORT", name="EXPORT_USER", value="hunter2")
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.1.1.204")
    trace = read(export)
    assert "hunter2" not in repr(
        (trace.source, trace.strings, trace.findings, trace.processes, trace.threads, trace.devices)
    )
    assert trace.source.tool_version == "2026.1.1.204"
    assert trace.source.rank == 3


# --- files that are not what they seem


def test_virtual_tables_are_never_touched(tmp_path):
    export = Export(tmp_path / "report.sqlite").call("cudaFree", 1, 2)
    export.connection.execute("CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(text, start, end)")
    trace = read(export)
    assert "table-refused" in codes(trace)
    assert len(trace.ranges) == 0


def test_cells_of_another_type_do_not_move_their_neighbours(export):
    export.kernel("a", 100, 200).kernel("b", "300,400", "500").kernel("c", 600, 700)
    trace = read(export)
    assert sorted(zip(names(trace, trace.operations), trace.operations.start_ns.tolist(), strict=True)) == [
        ("a", 100),
        ("b", 300),
        ("c", 600),
    ]


@pytest.mark.parametrize("taken", [("rowid",), ("rowid", "_rowid_"), ("ROWID", "oid")])
def test_a_column_named_like_the_number_of_a_row_hides_no_rows(export, taken):
    more = dict.fromkeys(taken)
    export.kernel("a", 100, 200, **more).kernel("b", 300, 500, **more)
    export.nvtx("range", 50, 600, **more)
    trace = read(export)
    assert sorted(names(trace, trace.operations)) == ["a", "b"]
    assert names(trace, trace.ranges) == ["range"]


def test_a_cut_database_gives_what_can_be_read(tmp_path):
    export = Export(tmp_path / "report.sqlite")
    export.connection.execute("BEGIN")
    for number in range(20_000):
        export.kernel("k", number * 10 + 1, number * 10 + 6)
    export.connection.execute("COMMIT")
    export.connection.close()
    whole = export.path.read_bytes()
    export.path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    trace = read_nsys(export.path, "report.sqlite")
    assert 1000 < len(trace.operations) < 20_000
    assert "damaged" in codes(trace)


def test_hostile_schemas_cannot_hang(tmp_path):
    export = Export(tmp_path / "report.sqlite").call("cudaFree", 1, 2)
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
    )
    export.connection.execute(f"CREATE VIEW NVTX_EVENTS AS {endless}")
    export.connection.execute(f'CREATE VIEW "META_DATA_EXPORT" AS {endless}')
    export.connection.execute('CREATE TABLE "we""ird]; DROP TABLE StringIds;--" (a)')
    started = time.monotonic()
    read(export)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (
            [
                "CREATE TABLE StringTable (_id_, value)",
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (_id_, start)",
            ],
            "nvprof",
        ),
        (["CREATE TABLE dlprof_version (v)", "CREATE TABLE ops (v)"], "DLProf"),
        (["CREATE TABLE customers (v)"], "customers"),
        ([], "without tables"),
    ],
)
def test_other_databases_are_refused_by_what_they_look_like(tmp_path, tables, says):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    for statement in [*tables, *(() if tables else ("PRAGMA user_version = 7",))]:
        connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(ReadError, match=says) as caught:
        read_nsys(path, "other.sqlite")
    assert "\n" not in str(caught.value)


def test_an_export_without_events_is_one_clear_line(export):
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2024.1")
    with pytest.raises(ReadError, match=r"without events.*nsys profile"):
        read(export)


def test_an_export_of_other_events_says_what_to_record(export):
    export.add("OSRT_API", start=1, end=2)
    found = {finding.code: finding for finding in read(export).findings}
    assert found["no-device-work"].severity is Severity.ERROR
    assert "nsys profile" in finding_message(found["no-device-work"])


def test_unfinished_writes_beside_the_file_are_said(export):
    export.kernel("k", 1, 2)
    export.path.with_name("report.sqlite-wal").write_bytes(b"x")
    assert "unfinished-writes" in codes(read(export))


def test_kinds_of_operations_are_told(export):
    export.kernel("k", 1, 2)
    export.add("CUPTI_ACTIVITY_KIND_MEMSET", start=3, end=4, deviceId=0, globalPid=PROCESS, bytes=8)
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=5, end=6, deviceId=0, globalPid=PROCESS, graphId=4)
    trace = read(export)
    assert trace.operations.kind.tolist() == [OperationKind.KERNEL, OperationKind.MEMSET, OperationKind.GRAPH]
    assert names(trace, trace.operations) == ["k", "Memset", "CUDA graph 4"]


def test_a_damaged_schema_is_one_clear_line(export):
    export.kernel("k", 1, 2)
    export.connection.close()
    whole = export.path.read_bytes()
    export.path.write_bytes(whole.replace(b"CREATE TABLE CUPTI", b"CREATE TABL\xce CUPTI"))
    with pytest.raises(ReadError, match="not a readable SQLite database") as caught:
        read_nsys(export.path, "x")
    assert "\n" not in str(caught.value)


def test_random_damage_ends_soon_in_a_trace_or_in_one_line(tmp_path):
    whole = (DATA / "cases/44_memcpy_kinds_no_enum.sqlite").read_bytes()
    path, random, started = tmp_path / "x.sqlite", np.random.default_rng(7), time.monotonic()
    for _ in range(300):
        damaged = np.frombuffer(whole, np.uint8).copy()
        damaged[random.integers(0, len(whole), 40)] = random.integers(0, 256, 40)
        path.write_bytes(damaged.tobytes()[: random.integers(len(whole) // 2, len(whole))])
        with contextlib.suppress(ReadError):
            read_nsys(path, "x")
    assert time.monotonic() - started < 60
