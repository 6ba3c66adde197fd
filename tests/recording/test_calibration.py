"""Calibration with a stand-in for torch: the device's answers are given, what is concluded from them is tested."""

import sys
from types import SimpleNamespace

import pytest

from profkit.errors import RecordingError
from profkit.recording.calibration import measure_card

SECONDS = 0.001
KERNEL_NS, GAP_NS = 900, 1200


class Tensor:
    def __init__(self, size=1):
        self.nbytes = size

    def to(self, dtype):
        if dtype == "float64":
            raise RuntimeError("no double precision here")
        return self

    def copy_(self, other):
        return self

    def add_(self, number):
        return self

    def __matmul__(self, other):
        return self


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        pass

    synchronize = record

    def elapsed_time(self, other):
        return SECONDS * 1e3


class Profile:
    kernels = 401

    def __init__(self, activities):
        spans = [(i * (KERNEL_NS + GAP_NS), KERNEL_NS) for i in range(self.kernels)]
        spans[0] = (-10_000_000, 9_000_000)  # the kernel that lets the host run ahead
        events = [
            SimpleNamespace(
                start_ns=lambda s=s: s, duration_ns=lambda d=d: d, device_type=lambda: "DeviceType.CUDA"
            )
            for s, d in spans
        ]
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


@pytest.fixture
def torch(monkeypatch):
    fake = SimpleNamespace(
        __version__="9.9", bfloat16="bfloat16", float16="float16", float32="float32", float64="float64", uint8="uint8",
        randn=lambda *shape, **kwargs: Tensor(), ones=lambda *shape, **kwargs: Tensor(),
        empty=lambda size, **kwargs: Tensor(size), empty_like=lambda other: other,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))),
        cuda=SimpleNamespace(
            is_available=lambda: True, current_device=lambda: 0, mem_get_info=lambda: (8 * 2**30, 16 * 2**30), Event=Event,
            get_device_properties=lambda device: SimpleNamespace(name="Card 9000", multi_processor_count=10, total_memory=2**34),
            synchronize=lambda: None, empty_cache=lambda: None, _sleep=lambda cycles: None,
        ),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", fake)
    profiler = SimpleNamespace(profile=Profile, ProfilerActivity=SimpleNamespace(CUDA="CUDA"))
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    return fake


def test_rates_come_from_work_over_time(torch):
    gpu = measure_card()
    assert (gpu.name, gpu.sm_count) == ("Card 9000", 10)
    assert gpu.bandwidth_bytes_per_s == pytest.approx(2 * 2**31 / SECONDS)
    assert gpu.peak("bf16", "tensor") == pytest.approx(2 * 8192**3 / SECONDS)
    assert gpu.peak("fp32", "vector") == pytest.approx(2 * 4096**3 / SECONDS)


def test_a_type_that_the_card_lacks_is_left_out(torch):
    assert measure_card().peak("fp64", "tensor") is None


def test_fixed_times_come_from_the_recorders_clock(torch):
    gpu = measure_card()
    assert (gpu.overhead_ns, gpu.queue_ns) == (KERNEL_NS, GAP_NS)


def test_a_profiler_without_kernels_leaves_the_usual_fixed_times(torch, monkeypatch):
    monkeypatch.setattr(Profile, "kernels", 5)
    assert measure_card().overhead_ns == 930.0


def test_the_users_choice_of_tf32_is_given_back(torch):
    torch.backends.cuda.matmul.allow_tf32 = True
    measure_card()
    assert torch.backends.cuda.matmul.allow_tf32 is True


def test_progress_is_told(torch):
    told = []
    measure_card(told.append)
    assert told[0] == "copy bandwidth"
    assert "bf16 products" in told


def test_without_a_device_it_says_so(torch):
    torch.cuda.is_available = lambda: False
    with pytest.raises(RecordingError, match="no CUDA device"):
        measure_card()


def test_without_torch_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RecordingError, match="torch is not installed"):
        measure_card()
