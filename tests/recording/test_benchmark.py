"""profkit.recording.benchmark: warmed up, synchronised, with its doubts."""

import json
from types import SimpleNamespace

import pytest

from profkit.errors import RecordingError
from profkit.recording import benchmark as module
from profkit.recording.benchmark import Benchmark, benchmark, load_function


def test_warm_up_runs_do_not_count(monkeypatch):
    monkeypatch.setattr(module, "_cuda", lambda: None)
    runs, clock = [], SimpleNamespace(ns=0)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter_ns=lambda: clock.ns))

    def slow_at_first():
        runs.append(clock.ns)
        clock.ns += 9_000_000 if len(runs) <= 3 else 2_000_000

    result = benchmark(slow_at_first, warmup=3, repeat=5)
    assert len(runs) == 8
    assert result.times_ns == [2_000_000] * 5
    assert result.median_ns == 2_000_000
    row = json.loads(result.json_line())
    assert row["clock"] == "host"
    assert row["median_ns"] == result.median_ns


def test_slow_first_runs_are_told():
    assert module._doubts([300, 100, 100, 100, 100, 100, 100, 100, 100, 100]) == [
        "the first runs are 3.0 times slower than the rest: raise warmup"
    ]


def test_a_wide_spread_is_told():
    (doubt,) = module._doubts([100, 150] * 10)
    assert "spreads over" in doubt


def test_steady_runs_raise_no_doubt():
    assert module._doubts([100, 101, 99, 100] * 5) == []


def test_on_a_gpu_events_are_read_after_the_device_is_idle(monkeypatch):
    order = []

    class Event:
        def __init__(self, enable_timing):
            self.at = None

        def record(self):
            order.append("record")

        def elapsed_time(self, end):
            order.append("read")
            return 1.25

    cuda = SimpleNamespace(
        Event=Event, synchronize=lambda: order.append("sync"), get_device_name=lambda: "NVIDIA H200"
    )
    monkeypatch.setattr(module, "_cuda", lambda: cuda)
    result = benchmark(lambda: order.append("run"), warmup=1, repeat=2)
    assert order == ["run"] + ["sync", "record", "run", "record"] * 2 + ["sync", "read", "read"]
    assert result.times_ns == [1_250_000, 1_250_000]
    assert (result.device, result.clock) == ("NVIDIA H200", "cuda events")


def test_forward_and_backward_are_timed_apart(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(module, "_cuda", lambda: None)
    weight = torch.ones(3, requires_grad=True)
    result = benchmark(lambda: weight * 2, warmup=1, repeat=4, backward=True)
    row = json.loads(result.json_line())

    # Five runs, each with the result itself as its gradient: 2 * 2.
    assert weight.grad.tolist() == [20.0] * 3
    assert len(result.times_ns) == len(result.backward_ns) == 4
    assert row["backward_median_ns"] > 0
    assert row["torch"] == torch.__version__


def test_without_a_tensor_there_is_no_backward_pass():
    with pytest.raises(RecordingError, match="no tensor with a backward pass"):
        benchmark(lambda: 1, repeat=1, backward=True)


@pytest.mark.parametrize(("target", "problem"), [("x.py", "no function"), ("gone.py:f", "not a file")])
def test_a_wrong_target_is_told(target, problem):
    with pytest.raises(RecordingError, match=problem):
        load_function(target)


def test_a_single_run_has_no_spread():
    result = Benchmark(name="f", device="cpu", clock="host", warmup=0, times_ns=[7])
    assert result.spread_ns == 0


def test_numbers_that_leave_nothing_are_refused():
    with pytest.raises(RecordingError, match="nothing to time"):
        benchmark(lambda: None, repeat=0)
