"""What others reported of recorders, and that no test of the recorder itself says."""

import inspect

import pytest

from profkit.recording import memory_history, recorder, torch_profiler
from profkit.recording.recorder import record

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")


def test_under_nsys_the_torch_profiler_stays_off(tmp_path, monkeypatch):
    """Two subscribers of CUPTI are an error (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS): nsys has it, so NVTX alone is used."""
    monkeypatch.setattr(recorder, "under_nsys", lambda: True)
    monkeypatch.setattr(torch_profiler, "make_profile", lambda *_: pytest.fail("a second subscriber"))
    with record(tmp_path, wait=0, warmup=0, steps=1) as recording:
        assert not torch.autograd.profiler._is_profiler_enabled
        recording.step()
    assert recording.files == []


def test_work_is_waited_for_before_a_capture_begins_and_before_it_ends(tmp_path, monkeypatch):
    """Kernels of tight loops were missing where the range closed before the device was done."""
    said = []
    monkeypatch.setattr(recorder, "under_nsys", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: said.append("wait"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: said.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: said.append("stop"))
    with record(tmp_path, wait=0, warmup=0, steps=1) as recording:
        recording.step()
    assert said == ["wait", "start", "wait", "stop"]


def test_the_torch_profiler_waits_for_the_device_when_it_stops():
    """torch does so by itself; profkit relies on it."""
    assert ".synchronize()" in inspect.getsource(torch.autograd.profiler.profile.__exit__)


def test_stacks_of_the_memory_history_are_pythons_unless_asked_for_more(monkeypatch):
    """Native frames took 461 s to be named, and a history without bound fills the memory."""
    asked = {}

    def start(enabled="all", *, stacks="all", max_entries=1 << 63, **_):
        asked.update(stacks=stacks, max_entries=max_entries)

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", start)
    memory_history.turn_on("python")
    assert asked["stacks"] == "python"
    assert 0 < asked["max_entries"] <= 10_000_000
    assert inspect.signature(record).parameters["stacks"].default is False
