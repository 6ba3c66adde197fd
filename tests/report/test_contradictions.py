"""Each contradiction fires its finding, and is silent on what only looks like it."""

import json

import pytest

import profkit
from tests.readers.nsys_by_hand import THREAD, Export
from tests.shared import DATA

CODES = ("busy-over-100", "clock-went-back", "correlation-clash", "efficiency-over-105")
CARD = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "totalGlobalMem": 85899345920,
    "computeMajor": 9,
    "numSms": 132,
}
MATRIX = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"


def event(cat, name, ts, dur, tid=1, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0 if tid == 7 else 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def launch(ts, correlation, **more):
    return event("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=correlation, **more)


def kernel(ts, dur, correlation, name="k", stream=7, **more):
    return event(
        "kernel", name, ts, dur, tid=7, device=0, context=1, stream=stream, correlation=correlation, **more
    )


@pytest.fixture
def found(tmp_path):
    def analysed(*events):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"deviceProperties": [CARD], "traceEvents": events}))
        result = profkit.analyze(path).document
        return result, {f.code: f for f in result.health.findings if f.code in CODES}

    return analysed


def steady(count=6, **changes):
    """Kernels one after the other, each launched by its own call; ``changes`` are durations by number."""
    return [
        each
        for number in range(count)
        for each in (
            launch(10 + 10 * number, number + 1),
            kernel(100 + 20 * number, changes.get(f"k{number}", 15), number + 1, name=f"k{number}"),
        )
    ]


def test_a_steady_recording_contradicts_nothing(found):
    result, codes = found(*steady())
    assert codes == {}
    assert "impossible" not in result.verdict.sentence


# --- busy over 100 %


def test_a_kernel_that_runs_over_all_later_ones_of_its_stream(found):
    result, codes = found(*steady(k1=1_754_000))
    finding = codes["busy-over-100"]
    assert (finding.severity, finding.count) == ("error", 1)
    assert "1.75 s as recorded where 20.0 µs are possible" in finding.message
    assert "k1" in finding.message
    assert result.verdict.bound == "unknown"
    assert "impossible" in result.verdict.sentence


def test_a_small_overrun_is_told_and_leaves_the_verdict(found):
    result, codes = found(*steady(k1=45))
    assert codes["busy-over-100"].count == 1
    assert "impossible" not in result.verdict.sentence


def test_a_kernel_that_begins_before_the_end_of_the_one_before_is_no_contradiction(found):
    assert found(*steady(k1=40, k3=39))[1] == {}, (
        "programmatic dependent launch lets the next one begin early"
    )


def test_streams_contexts_and_graphs_run_side_by_side(found):
    events = [launch(10, 1), *(launch(20 + 10 * n, n + 2) for n in range(4))]
    others = [kernel(120 + 20 * n, 15, n + 2, stream=13) for n in range(4)]
    assert found(*events, kernel(100, 500, 1), *others)[1] == {}
    graph = [launch(10, 1), kernel(100, 500, 1), *(kernel(120 + 20 * n, 15, 1) for n in range(4))]
    assert found(*graph)[1] == {}, "nodes of one graph share its launch"


def test_processes_of_one_card_have_streams_of_their_own(tmp_path):
    export, other = Export(tmp_path / "report.sqlite"), THREAD + (1 << 24)
    export.call("cudaLaunchKernel", 10, 12, correlationId=1).kernel("long", 100, 900, correlationId=1)
    for number in range(2, 6):
        at = number * 100
        export.call("cudaLaunchKernel", at - 50, at - 40, correlationId=number, globalTid=other)
        export.kernel("short", at, at + 50, correlationId=number, globalPid=other & ~0xFFFFFF)
    export.connection.close()
    codes = {f.code for f in profkit.analyze(export.path).document.health.findings}
    assert not codes & set(CODES)


# --- the clock


def test_a_stream_that_runs_the_later_launch_first(found):
    events = [launch(10, 1), launch(20, 2), kernel(150, 10, 1), kernel(100, 10, 2)]
    finding = found(*events)[1]["clock-went-back"]
    assert (finding.severity, finding.count) == ("warning", 1)
    assert "1 operation started before" in finding.message


def test_another_stream_or_another_thread_may_be_first(found):
    assert found(launch(10, 1), launch(20, 2), kernel(150, 10, 1), kernel(100, 10, 2, stream=13))[1] == {}
    assert found(launch(10, 1), launch(20, 2, tid=2), kernel(150, 10, 1), kernel(100, 10, 2))[1] == {}


def test_calls_whose_ids_and_times_disagree(found):
    def called(*times, tid=1):
        calls = [launch(ts, at + 1, tid=tid if ts < 15 else 1) for at, ts in enumerate(times)]
        return found(*calls, kernel(500, 10, 1))[1]

    rising = [20 * at for at in range(1, 12)]
    finding = called(*rising, 10)["clock-went-back"]
    assert "1 call started before" in finding.message
    assert called(*rising, 230) == {}
    assert called(*rising, 10, tid=2) == {}, "another thread has a clock of its own turn"
    assert called(*reversed(rising)) == {}, "ids that mean nothing say nothing"


def test_steps_whose_numbers_and_times_disagree(found):
    def stepped(first, second):
        steps = [
            event("user_annotation", f"ProfilerStep#{n}", ts, 50) for n, ts in ((first, 0), (second, 60))
        ]
        return found(*steps, launch(10, 1), launch(70, 2), kernel(100, 10, 1), kernel(150, 10, 2))[1]

    assert "1 step started before" in stepped(4, 3)["clock-went-back"].message
    assert stepped(3, 4) == stepped(3, 9) == stepped(3, 3) == {}


def test_entries_of_a_memory_history_that_go_back(tmp_path):
    def entry(action, time_us):
        return {"action": action, "addr": 4096, "size": 512, "stream": 0, "time_us": time_us, "frames": []}

    def codes(*times):
        path = tmp_path / "snapshot.json"
        entries = [entry("alloc" if at % 2 == 0 else "free_completed", us) for at, us in enumerate(times)]
        path.write_text(json.dumps({"segments": [], "device_traces": [entries]}))
        return [f.code for f in profkit.analyze(path).document.health.findings]

    assert "clock-went-back" in codes(5, 6, 3, 4)
    assert "clock-went-back" not in codes(5, 6, 6, 7)


# --- ids


def test_one_id_for_two_launches(found):
    events = [launch(10, 1), launch(50, 1), kernel(100, 10, 1), kernel(150, 10, 1)]
    finding = found(*events)[1]["correlation-clash"]
    assert (finding.severity, finding.count) == ("warning", 1)


def test_a_driver_call_within_its_runtime_call_and_calls_without_work_share_ids_rightly(found):
    inner = event("cuda_driver", "cuLaunchKernel", 11, 1, correlation=1)
    assert found(launch(10, 1), inner, kernel(100, 10, 1))[1] == {}
    asking = [event("cuda_runtime", "cudaEventQuery", ts, 2, correlation=9) for ts in (30, 40)]
    assert found(launch(10, 1), *asking, kernel(100, 10, 1))[1] == {}
    unlinked = [event("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=0) for ts in (30, 40)]
    assert found(launch(10, 1), *unlinked, kernel(100, 10, 0))[1] == {}


def test_ids_of_two_processes_are_two_ids(tmp_path):
    export, other = Export(tmp_path / "report.sqlite"), THREAD + (1 << 24)
    export.call("cudaLaunchKernel", 10, 12).kernel("a", 100, 200)
    export.call("cudaLaunchKernel", 20, 22, globalTid=other).kernel(
        "b", 300, 400, globalPid=other & ~0xFFFFFF
    )
    export.connection.close()
    codes = {f.code for f in profkit.analyze(export.path).document.health.findings}
    assert "correlation-clash" not in codes


# --- more than the card can do


def product(size, dur):
    """A matrix product of bfloat16; 8192 takes 1.112 ms at the peak of an H100."""
    shapes = {
        "Input Dims": [[size, size]] * 2,
        "Input type": ["c10::BFloat16"] * 2,
        "Input Strides": [[size, 1]] * 2,
    }
    return [
        event("cpu_op", "aten::mm", 0, 50, **shapes),
        launch(10, 1),
        kernel(20, dur, 1, name=MATRIX, grid=[132, 1, 1], block=[384, 1, 1]),
    ]


def test_work_that_no_card_can_do_is_left_out(found):
    """1e15 FLOP in a millisecond: 1011 times the peak."""
    result, codes = found(*product(79_370, 1000))
    finding = codes["efficiency-over-105"]
    assert (finding.severity, finding.count) == ("warning", 1)
    assert "101071 %" in finding.message
    (row,) = result.kernels
    assert {getattr(row, key) for key in ("efficiency", "flop", "tflops", "dram_bytes", "gbs")} == {None}
    assert (row.bound, row.basis) == ("compute", "inferred"), "what the name says remains"
    assert result.verdict.confidence != "modelled"


@pytest.mark.parametrize("dur", [300, 1000, 1050])
def test_work_over_the_peak_has_no_efficiency(found, dur):
    result, codes = found(*product(8192, dur))
    finding = codes["efficiency-over-105"]
    assert (finding.severity, finding.count) == ("info", 1), "an algorithm may save arithmetic"
    (row,) = result.kernels
    assert (row.efficiency, row.flop) == (None, 2 * 8192**3)
    assert row.unsaturated is None


@pytest.mark.parametrize("dur", [1065, 1112, 1400])
def test_work_at_the_peak_or_just_over_it_is_believed(found, dur):
    result, codes = found(*product(8192, dur))
    assert codes == {}
    assert result.kernels[0].efficiency == pytest.approx(1111.3 / dur, rel=1e-3)


def test_a_copy_faster_than_the_memory(found):
    def copied(size, dur):
        copy = event(
            "gpu_memcpy",
            "Memcpy DtoD (Device -> Device)",
            100,
            dur,
            tid=7,
            device=0,
            stream=7,
            correlation=1,
            bytes=size,
        )
        return found(launch(10, 1), copy)[1]

    assert copied(4 << 30, 100)["efficiency-over-105"].count == 1
    assert copied(4 << 30, 1800)["efficiency-over-105"].count == 1, "each byte is read and written"
    assert copied(4 << 30, 3000) == {}
    assert copied(100 << 20, 1) == {}, "as much may stay in a cache"


@pytest.mark.parametrize(
    "path", sorted([*DATA.glob("nsys/*.gz"), *DATA.glob("kineto/*.gz")]), ids=lambda p: p.name
)
def test_real_recordings_do_not_contradict_themselves(path):
    codes = {f.code for f in profkit.analyze(path).document.health.findings}
    assert not codes & set(CODES)
