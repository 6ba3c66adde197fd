"""nsys exports that others reported as trouble, each with an input of our own (docs/dev/robustness.md has the rows)."""

import hashlib
import os
import sqlite3

import pytest

import profkit
from tests.bugreports.made import by_name, codes
from tests.readers.nsys_by_hand import PROCESS, THREAD, Export

OTHER = THREAD + (1 << 24)
"""A thread of another process."""


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "report.sqlite")


def analysed(export):
    export.connection.close()
    return profkit.analyze(export.path).document


def launched(export, name, start, end, correlation, called=None, **more):
    called = start - 50 if called is None else called
    export.call("cudaLaunchKernel_v7000", called, called + 10, correlationId=correlation)
    return export.kernel(name, start, end, correlationId=correlation, **more)


def test_an_export_of_kernels_alone_gives_the_whole_report(export):
    """No NVTX, copy, memset, sync or target tables; names are numbers of strings."""
    launched(export, "void gemm<float>(int)", 1000, 2000, 1)
    launched(export, "void gemm<float>(int)", 2010, 3000, 2)
    report = profkit.Report(analysed(export))
    assert by_name(report.document.totals.kernels, "total_ns") == {"void gemm<float>(int)": 1990}
    assert report.document.window.device_ns == 2000
    assert {"no-torch", "no-steps"} <= codes(report.document).keys()
    assert "void gemm" in report.render("html")


def test_count_and_total_of_gaps_are_of_the_same_gaps(export):
    """A gap of 10 µs is under every threshold that somebody might have; it is counted as it is summed."""
    for at in range(5):
        launched(export, "k", 20_000 * at + 1000, 20_000 * at + 11_000, at + 1)
    idle = analysed(export).idle
    inner = [gap for gap in idle.gaps if gap.dur_ns == 10_000]
    assert len(inner) == 4
    assert sum(gap.dur_ns for gap in idle.gaps) == idle.total_ns
    assert idle.gaps_left_out == 0


def test_ids_of_two_processes_are_never_joined(export):
    export.nvtx("fwd", 0, 100).nvtx("bwd", 0, 100, globalTid=OTHER)
    export.call("cudaLaunchKernel", 10, 20).call("cudaLaunchKernel", 11, 21, globalTid=OTHER)
    export.kernel("a", 100, 200).kernel("b", 100, 150, globalPid=OTHER & ~0xFFFFFF, deviceId=1)
    result = analysed(export)
    assert by_name(result.phases, "gpu_inclusive_ns") == {"fwd": 100, "bwd": 50}
    assert [device.ordinal for device in result.devices] == [0, 1]


def test_a_range_that_was_never_closed_is_flagged_and_owns_what_it_launched(export):
    export.nvtx("closed", 0, 100).nvtx("open", 50, None)
    launched(export, "a", 200, 300, 1, called=60)
    result = analysed(export)
    assert codes(result)["ranges-open"] == 1
    assert by_name(result.phases, "gpu_inclusive_ns") == {"closed": 0, "open": 100}


def test_start_end_ranges_among_push_pop_ranges_hide_no_nesting(export):
    export.nvtx("outer", 0, 1000).nvtx("spanning", 10, 900, kind=60).nvtx("inner", 20, 500)
    launched(export, "a", 2000, 2100, 1, called=30)
    result = analysed(export)
    assert [row.path for row in result.phases] == ["outer", "outer/inner"]
    (spanning,) = [row for row in result.ranges if row.kind == "start_end"]
    assert (spanning.host_wall_ns, spanning.gpu_inclusive_ns) == (890, 100)


def test_a_graph_of_many_nodes_is_launched_once(export):
    export.nvtx("replay", 0, 100).call("cudaGraphLaunch_v10000", 10, 50, correlationId=7)
    for at in range(100):
        export.kernel("node", 1000 + 100 * at, 1050 + 100 * at, correlationId=7, graphNodeId=at + 1)
    result = analysed(export)
    assert result.totals.kernel_count == 100
    assert by_name(result.phases, "kernel_count") == {"replay": 100}
    # The time before the first node is start-up.
    assert result.idle.by_cause["host"] == 0
    assert result.idle.total_ns == 99 * 50


def test_the_kernels_window_and_the_busy_time_are_of_one_window(export):
    """Three steps within a longer capture: no ratio has its two sides from different stretches."""
    for start in (1000, 3000, 5000):
        export.nvtx("step", start, start + 1000)
    for at in range(8):
        launched(export, "k", 1000 * at + 200, 1000 * at + 700, at + 1, called=1000 * at + 100)
    result = analysed(export)
    (row,) = result.kernels
    assert (row.count, row.total_ns, row.share) == (5, 2500, 1.0)
    assert (result.devices[0].busy_ns, result.window.device_ns) == (2500, 4700)
    assert (result.totals.kernel_count, result.totals.kernel_sum_ns) == (8, 4000)


@pytest.mark.parametrize("call", ["cudaGetDeviceCount", "cudaStreamSynchronize", "cudaMalloc"])
def test_calls_of_the_host_are_no_device_work(export, call):
    result = analysed(export.call(call, 500, 600))
    assert (result.totals.kernel_count, result.totals.gpu_busy_ns, result.devices) == (0, 0, [])
    assert result.verdict.bound == "unknown"
    (finding,) = [f for f in result.health.findings if f.code == "no-device-work"]
    for cause in (
        "another process",
        "capture ended",
        "Another profiler",
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    ):
        assert cause in finding.message
    assert "perf_event_paranoid" not in finding.message, "that is about sampling the processor"


def test_numbers_and_texts_in_columns_of_integers(export):
    export.kernel("real", 1.0, 2.0).kernel("text", "10", "20.7").kernel("none", "soon", "later")
    export.kernel("blob", b"30", b"40").kernel("huge", 2**62, 2**62 + 5).kernel("far", -(2**63), 2**63 - 1)
    result = analysed(export)
    assert by_name(result.totals.kernels, "total_ns") == {"real": 1, "text": 10, "blob": 10}
    dropped = result.health.events_dropped
    assert dropped.keys() <= {"implausible_times", "lost_timestamps"}
    assert sum(dropped.values()) == 3


def test_an_export_older_than_the_report_beside_it_is_told(export):
    launched(export, "k", 1000, 2000, 1)
    export.connection.close()
    report = export.path.with_suffix(".nsys-rep")
    report.write_bytes(b"")
    os.utime(report, (2e9, 2e9))
    for path in (export.path, export.path.parent):
        assert codes(profkit.analyze(path).document)["export-stale"] == 1
    os.utime(export.path, (2e9 + 5, 2e9 + 5))
    assert "export-stale" not in codes(profkit.analyze(export.path).document)


def test_a_column_named_end_an_odd_table_and_more_columns_are_no_trouble(export):
    launched(export, "k", 1000, 2000, 1, **{"select": 1, "odd name; --": 2, "end2": 3})
    export.connection.execute('CREATE TABLE "a""b; DROP TABLE x" (x)')
    result = analysed(export)
    assert result.totals.kernel_sum_ns == 1000


def test_the_export_is_not_written_to_nor_locked(export):
    launched(export, "k", 1000, 2000, 1)
    export.connection.close()
    before = hashlib.sha256(export.path.read_bytes()).digest()
    writer = sqlite3.connect(export.path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert profkit.analyze(export.path).document.totals.kernel_count == 1
    writer.execute("COMMIT")
    writer.close()
    assert hashlib.sha256(export.path.read_bytes()).digest() == before
    assert [each.name for each in export.path.parent.iterdir()] == ["report.sqlite"]


@pytest.mark.parametrize(
    ("nsys", "told"),
    [("2023.4.4.54", "is older than CUDA 13.0"), ("2025.3.2", "older than the CUDA runtime")],
)
def test_kernels_that_an_older_importer_lost_are_no_idle_time(export, nsys, told):
    """nsys 2023.4 imports a recording of CUDA 13: the calls of some steps are there, and no kernel."""
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=nsys)
    export.add("TARGET_INFO_SYSTEM_ENV", name="CudaDriverVersion", value="13000")
    for at, start in enumerate((1000, 3000, 5000), 1):
        export.nvtx("step", start, start + 1000)
        export.call("cudaLaunchKernel", start + 100, start + 200, correlationId=at)
    result = analysed(export)
    (finding,) = [f for f in result.health.findings if f.code == "importer-lost-rows"]
    assert finding.severity == "error"
    assert all(words in finding.message for words in ("newer nsys", "torch.profiler", told))
    assert result.verdict.bound == "unknown"
    assert "launched nothing" not in result.verdict.sentence


def test_an_nsys_of_a_later_year_than_any_cuda_is_not_called_older(export):
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.2.1.210")
    for at, start in enumerate((1000, 3000, 5000), 1):
        export.nvtx("step", start, start + 1000)
        export.call("cudaLaunchKernel", start + 100, start + 200, correlationId=at)
    codes = {f.code for f in analysed(export).health.findings}
    assert "importer-lost-rows" not in codes
    assert "launches-without-kernel" in codes


def test_nothing_of_cuda_on_a_machine_with_a_gpu_may_be_lost_too(export):
    """Where the importer is known to be older than CUDA, it is not said that no GPU was used."""
    export.add("TARGET_INFO_GPU", id=0, name="NVIDIA H100 80GB HBM3")
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2023.4.4.54")
    export.add("TARGET_INFO_SYSTEM_ENV", name="CudaDriverVersion", value="13000")
    for start in (1000, 3000, 5000):
        export.nvtx("step", start, start + 1000)
    result = analysed(export)
    assert "importer-lost-rows" in {f.code for f in result.health.findings}
    assert "no GPU was used" not in result.verdict.sentence


def test_copies_that_are_there_do_not_make_steps_whose_kernels_are_lost_empty(export):
    for at, start in enumerate((1000, 3000, 5000), 1):
        export.nvtx("step", start, start + 1000)
        export.call("cudaLaunchKernel", start + 100, start + 200, correlationId=at)
    export.call("cudaMemcpyAsync", 5300, 5400, correlationId=9)
    export.add(
        "CUPTI_ACTIVITY_KIND_MEMCPY", start=5500, end=5600, deviceId=0, contextId=1, streamId=7,
        correlationId=9, globalPid=PROCESS, bytes=64, copyKind=1, srcKind=1, dstKind=2,
    )  # fmt: skip
    sentence = analysed(export).verdict.sentence
    assert "3 launches have no kernel record" in sentence
