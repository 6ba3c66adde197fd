"""What the reader makes of small exports, each about one thing."""

import json
import sqlite3
import time

import numpy as np
import pytest

from profkit.errors import ReadError
from profkit.model import CopyKind, OperationKind, RangeKind, Severity
from profkit.readers.nsys import is_nsys, read_nsys
from tests.readers.nsys_by_hand import PROCESS, THREAD, Export


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "report.sqlite")


def read(export):
    export.connection.close()
    return read_nsys(export.path, export.path.name)


def names(trace, table):
    return trace.names(table.name).tolist()


def codes(trace):
    return {finding.code for finding in trace.findings}


# --- times


def test_a_kernel_of_no_duration_at_a_valid_time_stays(export):
    trace = read(export.kernel("k", 5000, 5000).kernel("k", 6000, 7000))
    assert len(trace.operations) == 2
    assert trace.dropped == {}


def test_absurd_times_are_dropped_and_counted(export):
    export.kernel("k", 1000, 11_000).kernel("k", 11_000, 21_000)
    export.kernel("k", 2**63 - 11, 2**63 - 1).kernel("k", -(2**63) + 1, -(2**63) + 11).kernel(
        "k", 1000, 2**62
    )
    export.kernel("k", 1e308, 1e308 * 1.5)
    trace = read(export)
    assert trace.operations.end_ns.sum() - trace.operations.start_ns.sum() == 20_000
    assert trace.dropped == {"implausible_times": 4}


def test_a_stated_duration_bounds_the_times(export):
    export.add("ANALYSIS_DETAILS", globalVid=0, duration=10**9, startTime=0, stopTime=10**9)
    trace = read(
        export.kernel("k", 10**6, 2 * 10**6).kernel("k", 2 * 10**6, 3 * 10**6).kernel("k", 10**12, 10**12 + 5)
    )
    assert len(trace.operations) == 2
    assert trace.dropped == {"implausible_times": 1}


def test_times_of_a_normalised_export_count_from_the_session(export):
    epoch = 1_795_820_426_715_022_089
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=epoch)
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    export.add("META_DATA_EXPORT", name="EXPORT_CONFIG_TIME_SHIFT", value=str(epoch))
    export.kernel("k", epoch + 100, epoch + 300).nvtx("step", epoch + 10, epoch + 90)
    trace = read(export)
    assert (trace.operations.start_ns[0], trace.operations.end_ns[0]) == (100, 300)
    assert trace.ranges.start_ns[0] == 10
    assert trace.unix_epoch_ns == epoch


def test_times_since_1970_are_recognised_without_being_announced(export):
    epoch = 1_795_820_426_715_022_089
    trace = read(export.kernel("k", epoch, epoch + 200).kernel("k", epoch + 300, epoch + 400))
    assert trace.unix_epoch_ns is not None
    assert trace.unix_epoch_ns + trace.operations.start_ns.min() == epoch


def test_a_shifted_export_keeps_its_place_in_the_world(export):
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18)
    export.add("META_DATA_EXPORT", name="EXPORT_CONFIG_TIME_SHIFT", value="1000000")
    trace = read(export.kernel("k", 1_000_500, 1_000_700))
    assert trace.operations.start_ns[0] == 500
    assert trace.unix_epoch_ns == 10**18


# --- calls


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyDtoHAsync"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
        ("my_v8_thing", "my_v8_thing"),
    ],
)
def test_calls_lose_their_version(export, written, plain):
    trace = read(export.call(written, 10, 20))
    assert names(trace, trace.calls) == [plain]


def test_both_rows_of_one_correlation_are_kept(export):
    export.call("cudaLaunchKernel_v7000", 10, 30, correlationId=9)
    export.call("cuLaunchKernel", 12, 28, correlationId=9, eventClass=1)
    trace = read(export)
    assert trace.calls.correlation.tolist() == [9, 9]
    assert trace.calls.driver.tolist() == [0, 1]


def test_python_frames_of_the_users_code_are_preferred(export):
    export.call("cudaLaunchKernel", 10, 20, callchainId=3).call("cudaFree", 30, 40, callchainId=None)
    library = export.string("/x/site-packages/torch/nn/modules/linear.py:134")
    own = export.string("/home/someone/train.py:27")
    for depth, module in enumerate([library, own, export.string("/usr/lib/libc.so")]):
        export.add("CUDA_CALLCHAINS", id=3, symbol=export.string("f"), module=module, stackDepth=depth)
    trace = read(export)
    assert trace.names(trace.calls.stack).tolist() == ["train.py:27", ""]


# --- copies


def copy(export, kind, **more):
    row = {"start": 100, "end": 200, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 2}
    row |= {"globalPid": PROCESS, "bytes": 64, "copyKind": kind, "srcKind": None, "dstKind": None}
    return export.add(
        "CUPTI_ACTIVITY_KIND_MEMCPY", **row, **{"srcDeviceId": None, "dstDeviceId": None, **more}
    )


def test_copies_on_the_host_are_no_device_work(export):
    copy(export, 9)
    copy(export, 1)
    trace = read(export)
    assert names(trace, trace.operations) == ["Memcpy HtoD"]
    assert trace.dropped == {}


@pytest.mark.parametrize(("kind", "source", "target"), [(10, None, None), (8, 0, 1), (0, 1, 0)])
def test_peer_copies_are_told_by_kind_or_by_devices(tmp_path, kind, source, target):
    export = Export(tmp_path / "x.sqlite")
    row = {"start": 1, "end": 2, "deviceId": 0, "globalPid": PROCESS, "copyKind": kind, "bytes": 5}
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **row, srcDeviceId=source, dstDeviceId=target)
    trace = read(export)
    assert trace.operations.copy_kind.tolist() == [CopyKind.PTOP]
    assert trace.operations.source_device.tolist() == [-1 if source is None else source]


def test_an_unknown_direction_follows_from_the_kinds_of_memory(tmp_path):
    export = Export(tmp_path / "x.sqlite")
    for source, target in [(0, 2), (2, 1), (2, 5), (0, 1), (7, 2)]:
        row = {"start": 10, "end": 20, "deviceId": 0, "globalPid": PROCESS, "copyKind": 0, "bytes": 5}
        export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **row, srcKind=source, dstKind=target)
    trace = read(export)
    expected = [CopyKind.HTOD, CopyKind.DTOH, CopyKind.DTOD, CopyKind.UNKNOWN]
    assert trace.operations.copy_kind.tolist() == expected
    assert trace.operations.pageable.tolist() == [1, 0, -1, -1]


def test_unknown_copy_kinds_do_not_break(export):
    copy(export, 99)
    assert read(export).operations.copy_kind.tolist() == [CopyKind.UNKNOWN]


# --- graphs


def test_graph_launches_that_left_no_record_are_said(export):
    export.call("cudaGraphLaunch_v10000", 10, 20, correlationId=5)
    export.call("cudaGraphLaunch_v10000", 30, 40, correlationId=6).kernel("k", 50, 60, correlationId=6)
    found = [finding for finding in read(export).findings if finding.code == "graphs-invisible"]
    assert [finding.count for finding in found] == [1]


def test_nodes_of_a_graph_are_marked(export):
    trace = read(export.kernel("k", 50, 60, graphNodeId=12).kernel("k", 70, 80, graphNodeId=None))
    assert trace.operations.graph_node.tolist() == [12, 0]


# --- ranges


@pytest.mark.parametrize(
    ("text", "name", "sequence", "shapes"),
    [
        ("aten::mm, seq = 12", "aten::mm", 12, None),
        ("aten::mm, op_id = 5", "aten::mm", -1, None),
        ("aten::mm, seq = 3, sizes = [[2, 3], [], [-1]]", "aten::mm", 3, [[2, 3], [], [-1]]),
        ("aten::mm, seq = 3, op_id = 9, sizes = [[2]], input_op_ids = [(0,-1), (4,0)]", "aten::mm", 3, [[2]]),
        ("aten::mm, op_id = 9, input_op_ids = [(0,-1)]", "aten::mm", -1, None),
        ("block, part 2, seq = 7, op_id = 1", "block, part 2", 7, None),
        ("aten::mm", "aten::mm", -1, None),
        (
            "autograd::engine::evaluate_function: MmBackward0",
            "autograd::engine::evaluate_function: MmBackward0",
            -1,
            None,
        ),
    ],
)
def test_operators_of_emit_nvtx_are_taken_apart(export, text, name, sequence, shapes):
    # twice, and once more of the same operator: the second and third go the short way
    trace = read(
        export.nvtx(text, 10, 20).nvtx(text, 30, 40).nvtx(text.replace("seq = 3", "seq = 4"), 50, 60)
    )
    assert names(trace, trace.ranges) == [name] * 3
    assert trace.ranges.kind.tolist() == [RangeKind.OPERATOR] * 3
    assert trace.ranges.sequence.tolist()[:2] == [sequence] * 2
    assert [json.loads(text) if text else None for text in trace.names(trace.ranges.shapes)] == [shapes] * 3


@pytest.mark.parametrize(
    "text",
    [
        "my_range, seq of things = maybe",
        "x, seq = twelve",
        "x, op_id = 3, sizes = [[1, 2], oh]",
        "x, op_id = 3, sizes = [[1]",
        "x, op_id = 3 and more",
        ", seq = 4",
        "x, seq = 99999999999999999999",
    ],
)
def test_texts_that_only_look_like_operators_stay_whole(export, text):
    export.nvtx("x, op_id = 3, sizes = [[1]]", 1, 2).nvtx(text, 10, 20)
    trace = read(export)
    assert names(trace, trace.ranges)[1] == text
    assert trace.ranges.kind[1] == RangeKind.ANNOTATION


def test_names_of_other_domains_are_not_understood(export):
    export.nvtx("profkit", 0, None, kind=75, domainId=4)
    export.nvtx("loss, seq = 3", 10, 20, domainId=4).nvtx("aten::mm", 30, 40, domainId=7)
    trace = read(export)
    assert names(trace, trace.ranges) == ["loss, seq = 3", "aten::mm"]
    assert trace.names(trace.ranges.domain).tolist() == ["profkit", "domain 7"]
    assert set(trace.ranges.kind.tolist()) == {RangeKind.ANNOTATION}
    assert trace.ranges.sequence.tolist() == [-1, -1]


def test_domains_of_two_processes_keep_their_own_names(export):
    other = THREAD + (1 << 24)
    export.nvtx("NCCL", 0, None, kind=75, domainId=1).nvtx(
        "CCCL", 0, None, kind=75, domainId=1, globalTid=other
    )
    export.nvtx("a", 10, 20, domainId=1).nvtx("b", 30, 40, domainId=1, globalTid=other)
    trace = read(export)
    assert trace.names(trace.ranges.domain).tolist() == ["NCCL", "CCCL"]


def test_marked_phases_are_recognised_in_the_default_domain(export):
    trace = read(export.nvtx("profkit::forward, op_id = 3", 10, 20).nvtx("other", 30, 40))
    assert names(trace, trace.ranges) == ["forward", "other"]
    assert trace.names(trace.ranges.domain).tolist() == ["profkit", ""]
    assert trace.ranges.kind.tolist() == [RangeKind.ANNOTATION] * 2


def test_a_phase_that_left_two_ranges_counts_once(export):
    export.nvtx("profkit", 0, None, kind=75, domainId=1).nvtx("forward", 9, 21, domainId=1)
    trace = read(export.nvtx("profkit::forward, op_id = 3", 10, 20))
    phases = (trace.names(trace.ranges.domain) == "profkit") & (trace.ranges.kind == RangeKind.ANNOTATION)
    assert np.count_nonzero(phases) == 1


def test_open_ranges_end_with_the_last_event(export):
    trace = read(export.nvtx("open", 10, None).kernel("k", 50, 90))
    assert trace.ranges.end_ns.tolist() == [90]
    assert "ranges-open" in codes(trace)


def test_marks_are_no_ranges(export):
    trace = read(export.nvtx("mark", 10, None, kind=34).nvtx("range", 10, 20))
    assert names(trace, trace.ranges) == ["range"]


def test_imported_ranges_and_start_end_ranges(export):
    trace = read(export.nvtx("a", 10, 20, kind=70).nvtx("b", 10, 20, kind=71).nvtx("c", 10, 20, kind=60))
    assert trace.ranges.kind.tolist() == [RangeKind.ANNOTATION, RangeKind.START_END, RangeKind.START_END]


@pytest.mark.parametrize("odd", ["new\nline", "unit\x1fseparator", "nul\x00inside", "emoji 🙂", "a,b"])
def test_odd_texts_stay_with_their_rows(export, odd):
    trace = read(export.nvtx("first", 10, 20).nvtx(odd, 30, 40).nvtx(None, 50, 60).nvtx("last", 70, 80))
    assert names(trace, trace.ranges) == ["first", odd, "<unnamed>", "last"]


def test_texts_that_are_not_unicode_are_kept_readable(export):
    export.kernel(b"kern\xff\xfeel", 10, 20)
    export.nvtx("x", 10, 20)
    export.connection.execute("UPDATE NVTX_EVENTS SET text = CAST(X'61ff62' AS TEXT)")
    trace = read(export)
    assert names(trace, trace.operations) == ["kern\ufffd\ufffdel"]
    assert names(trace, trace.ranges) == ["a\ufffdb"]


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


# --- metrics and memory


def test_metrics_of_both_generations_give_the_same_samples(tmp_path):
    gpu = 1 << 48 | 1 << 32
    samples = [(100, "SM Active [Throughput %]", 80), (100, "DRAM Read Bandwidth [Throughput %]", 12)]
    new, old = Export(tmp_path / "new.sqlite"), Export(tmp_path / "old.sqlite")
    for metric, (time_ns, name, value) in enumerate(samples):
        new.add("TARGET_INFO_GPU_METRICS", typeId=gpu, metricId=metric, metricName=name)
        new.add("GPU_METRICS", timestamp=time_ns, typeId=gpu, metricId=metric, value=value)
    data = json.dumps({name: str(value) for _, name, value in samples})
    old.add("GENERIC_EVENTS", rawTimestamp=100, timestamp=None, typeId=gpu, data=data)
    old.add(
        "GENERIC_EVENTS", rawTimestamp=110, timestamp=None, typeId=gpu, data='{"Provider": "other", "n": "1"}'
    )
    old.add("GENERIC_EVENTS", rawTimestamp=120, timestamp=None, typeId=gpu, data="not JSON")
    found = []
    for each in (new, old):
        trace = read(each.kernel("k", 50, 150))
        found.append(
            list(
                zip(
                    trace.samples.time_ns, trace.names(trace.samples.metric), trace.samples.value, strict=True
                )
            )
        )
    assert found[0] == found[1] == samples


def test_memory_events_are_signed_and_placed(export):
    export.kernel("k", 50, 150)
    for start, freed, kind in [(10, 0, 2), (90, 1, 2), (20, 0, 1)]:
        row = {"start": start, "globalPid": PROCESS, "deviceId": 0, "address": 4096, "bytes": 512}
        export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", **row, memKind=kind, memoryOperationType=freed)
    memory = read(export).memory
    assert memory.bytes.tolist() == [512, -512, 512]
    assert memory.device.tolist() == [0, 0, -1]


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
    assert not any("someone" in finding.message for finding in found)


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
    assert not is_nsys(path)


def test_an_export_without_events_is_one_clear_line(export):
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2024.1")
    with pytest.raises(ReadError, match=r"without events.*nsys profile"):
        read(export)


def test_an_export_of_other_events_says_what_to_record(export):
    export.add("OSRT_API", start=1, end=2)
    found = {finding.code: finding for finding in read(export).findings}
    assert found["no-device-work"].severity is Severity.ERROR
    assert "nsys profile" in found["no-device-work"].message


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
