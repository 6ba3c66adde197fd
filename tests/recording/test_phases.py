"""profkit.recording.phases: one mark, balanced whatever the marked code does."""

import asyncio
import contextlib
import gc
import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from profkit.errors import RecordingError
from profkit.recording import phases
from profkit.recording.phases import phase
from tests.shared import DATA

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")


def load_case(name):
    spec = importlib.util.spec_from_file_location(name, DATA / "cases" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeDomain:
    """An NVTX domain whose ranges go to ``nvtx``: range_push, range_pop, range_start, range_end by name."""

    def __init__(self, nvtx):
        self.nvtx = nvtx

    def get_event_attributes(self, message, color, payload):
        return SimpleNamespace(message=message, color=color, payload=payload)

    def push_range(self, event):
        self.nvtx.range_push(event.message)

    def pop_range(self):
        self.nvtx.range_pop()

    def start_range(self, event):
        return self.nvtx.range_start(event.message)

    def end_range(self, handle):
        self.nvtx.range_end(handle)


@pytest.fixture
def nvtx(monkeypatch):
    """The fake back end of case 60, attached."""
    fake = load_case("60_nvtx_balance_rec").FakeNvtx()
    monkeypatch.setattr(phases, "_domain", FakeDomain(fake))
    phases._event.cache_clear()
    yield fake
    phases._event.cache_clear()
    assert fake.open_ranges() == 0
    assert fake.errors == 0


def recorded(run):
    """Names of the user annotations that torch.profiler sees while ``run`` runs, in order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run()
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    return [event.name for event in events if event.is_user_annotation and "profkit" in event.name]


def test_case_60_every_push_has_its_pop(nvtx):
    case = load_case("60_nvtx_balance_rec")
    assert case.scenario(phase, nvtx) == case.EXPECT_SEEN
    assert case.check(nvtx) == []
