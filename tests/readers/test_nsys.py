"""What the reader makes of device work, calls and times, in small exports that are each about one thing."""

import json

import pytest

from profkit.model import CopyKind
from tests.readers.nsys_by_hand import PROCESS, Export, names, read


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "report.sqlite")


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
