"""Calibration with a stand-in for torch: the device's answers are given, what is concluded from them is tested."""

import sys
from types import SimpleNamespace

import pytest

from profkit.errors import RecordingError
from profkit.hardware import keep_calibration, load_peaks
from profkit.recording import calibration
from profkit.recording.calibration import measure_gpu

SECONDS = 0.001
KERNEL_NS, GAP_NS = 900, 1200


class Tensor:
    def __init__(self, size=1):
        self.nbytes = size

    def to(self, dtype):
        if dtype == "float64":
            raise RuntimeError("no double precision here")
        return self

    def t(self):
        return self

    def copy_(self, other):
        return self

    def add_(self, number):
        return self

    def __matmul__(self, other):
        return self


class OutOfMemory(RuntimeError):
    """`torch.cuda.OutOfMemoryError`."""


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
        assert activities == ["CPU", "CUDA"]
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
        int8="int8", float8_e4m3fn="float8_e4m3fn", randint=lambda *args, **kwargs: Tensor(),
        _int_mm=lambda a, b: Tensor(), _scaled_mm=lambda a, b, **scales: Tensor(),
        randn=lambda *shape, **kwargs: Tensor(), ones=lambda *shape, **kwargs: Tensor(),
        empty=lambda size, **kwargs: Tensor(size), empty_like=lambda other: other,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))),
        cuda=SimpleNamespace(
            is_available=lambda: True, current_device=lambda: 0, mem_get_info=lambda: (8 * 2**30, 16 * 2**30), Event=Event,
            get_device_properties=lambda device: SimpleNamespace(
                name="Card 9000", multi_processor_count=10, total_memory=2**34, major=9, minor=0
            ),
            synchronize=lambda: None, empty_cache=lambda: None, _sleep=lambda cycles: None,
            OutOfMemoryError=OutOfMemory,
        ),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", fake)
    profiler = SimpleNamespace(profile=Profile, ProfilerActivity=SimpleNamespace(CPU="CPU", CUDA="CUDA"))
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    return fake


def test_rates_come_from_work_over_time(torch):
    gpu = measure_gpu()
    assert (gpu.name, gpu.sm_count) == ("Card 9000", 10)
    assert gpu.bandwidth_bytes_per_s == pytest.approx(2 * 2**31 / SECONDS)
    assert gpu.peak("bf16", "tensor") == pytest.approx(2 * 8192**3 / SECONDS)
    assert gpu.peak("fp8", "tensor") == gpu.peak("int8", "tensor") == pytest.approx(2 * 8192**3 / SECONDS)
    assert gpu.peak("fp32", "vector") == pytest.approx(2 * 4096**3 / SECONDS)


def test_a_type_that_the_card_lacks_is_left_out(torch):
    assert measure_gpu().peak("fp64", "tensor") is None


def test_a_full_card_lacks_no_type(torch, monkeypatch):
    def full(*shape, **kwargs):
        raise OutOfMemory("CUDA out of memory")

    monkeypatch.setattr(torch, "randn", full)

    with pytest.raises(RecordingError, match="nothing else uses the GPU"):
        measure_gpu()


def test_a_torch_without_8_bit_products_leaves_them_out(torch):
    del torch._int_mm, torch.float8_e4m3fn
    gpu = measure_gpu()
    assert gpu.peak("int8", "tensor") is None
    assert gpu.peak("fp8", "tensor") is None
    assert gpu.peak("bf16", "tensor")


def test_fixed_times_come_from_the_recorders_clock(torch):
    gpu = measure_gpu()
    assert (gpu.overhead_ns, gpu.queue_ns) == (KERNEL_NS, 2 * GAP_NS)


def test_a_profiler_without_kernels_leaves_the_usual_fixed_times(torch, monkeypatch):
    monkeypatch.setattr(Profile, "kernels", 5)
    assert measure_gpu().overhead_ns == 930.0


def test_the_users_choice_of_tf32_is_given_back(torch):
    torch.backends.cuda.matmul.allow_tf32 = True
    measure_gpu()
    assert torch.backends.cuda.matmul.allow_tf32 is True


class NewSwitch:
    """`torch.backends.cuda.matmul` once a program has used the switch of torch 2.9."""

    fp32_precision = "none"

    @property
    def allow_tf32(self):
        raise RuntimeError("you have used mix of the legacy and new APIs")


def test_the_newer_switch_of_tf32_is_used_where_the_program_uses_it(torch):
    matmul = torch.backends.cuda.matmul = NewSwitch()
    used = []
    plain = Tensor.__matmul__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "__matmul__", lambda a, b: (used.append(matmul.fp32_precision), plain(a, b))[1])
        gpu = measure_gpu()
    assert set(used) == {"tf32", "ieee"}
    assert gpu.peak("tf32", "tensor") is not None
    assert matmul.fp32_precision == "none"


class Stubborn:
    """A torch whose environment keeps TF32 on."""

    allow_tf32 = property(lambda self: True, lambda self, on: None)


def test_no_rate_is_called_fp32_that_was_measured_in_tf32(torch):
    torch.backends.cuda.matmul = Stubborn()
    gpu = measure_gpu()
    assert gpu.peak("tf32", "tensor") is not None
    assert gpu.peak("fp32", "vector") is None


@pytest.mark.parametrize(
    ("major", "minor", "tf32", "fp64_unit"),
    [(9, 0, True, "tensor"), (8, 0, True, "tensor"), (8, 9, True, "vector"), (12, 0, True, "vector"), (7, 5, False, "vector")],
)  # fmt: skip
def test_a_card_has_the_units_of_its_generation(torch, monkeypatch, major, minor, tf32, fp64_unit):
    monkeypatch.setattr(Tensor, "to", lambda self, dtype: self)
    card = torch.cuda.get_device_properties(0)
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(
        **vars(card) | {"major": major, "minor": minor}
    )
    gpu = measure_gpu()
    assert gpu.compute_capability == f"{major}.{minor}"
    assert (("tf32", "tensor") in gpu.peaks) is tf32
    assert [unit for dtype, unit in gpu.peaks if dtype == "fp64"] == [fp64_unit]


def test_what_was_measured_is_read_back(torch, tmp_path):
    gpu = measure_gpu()
    kept = load_peaks(keep_calibration(gpu, tmp_path / "card.json"))
    assert kept.peaks == pytest.approx(gpu.peaks, rel=1e-2)
    assert (kept.overhead_ns, kept.queue_ns, kept.compute_capability) == (
        gpu.overhead_ns,
        gpu.queue_ns,
        "9.0",
    )
    assert kept.warp_instructions_per_s == pytest.approx(gpu.warp_instructions_per_s, rel=1e-2)


def test_a_device_that_fails_is_one_line(torch):
    def full(*_, **__):
        raise RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA")

    torch.empty = full
    with pytest.raises(RecordingError, match="the GPU failed: CUDA error: out of memory") as caught:
        measure_gpu()
    assert "DSA" not in str(caught.value)


def test_progress_is_told(torch):
    told = []
    measure_gpu(told.append)
    assert told[0] == "copy bandwidth"
    assert "bf16 products" in told


def test_without_a_device_it_says_so(torch):
    torch.cuda.is_available = lambda: False
    with pytest.raises(RecordingError, match="no CUDA device"):
        measure_gpu()


def test_without_torch_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RecordingError, match="torch is not installed"):
        measure_gpu()


@pytest.mark.torch
def test_the_real_profiler_and_switch_are_as_the_stand_in():
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        torch.ones(8).add_(1)
    events = list(recorded.profiler.kineto_results.events())
    assert events
    assert all(event.start_ns() > 0 and event.duration_ns() >= 0 for event in events)
    assert {str(event.device_type()) for event in events} == {"DeviceType.CPU"}
    assert calibration._kernel_spans(recorded) == []
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    for on in (True, False):
        with calibration._tf32(torch, on):
            assert matmul.allow_tf32 is on
        assert matmul.allow_tf32 is before
