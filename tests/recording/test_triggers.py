"""Long runs: recordings on demand, every so many steps, and run files that are complete after each cycle."""

import json
import os
import signal
import time

import pytest

from profkit import api
from profkit.errors import RecordingError
from profkit.recording import recorder as recorders
from profkit.recording.phases import phase
from profkit.recording.recorder import record

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")


@pytest.fixture(autouse=True)
def nothing_left_recording():
    handler = signal.getsignal(signal.SIGUSR2)
    yield
    assert recorders._active is None
    assert signal.getsignal(signal.SIGUSR2) == handler


def run(recording, steps, before_step):
    for step in range(steps):
        before_step(step)
        torch.ones(3).sum()
        recording.step()
    return [(cycle["first_step"], cycle["steps"]) for cycle in facts(recording)["traces"]]


def facts(recording):
    return json.loads((recording.folder / "run.json").read_text())


def kick(step, at):
    if step in at:
        os.kill(os.getpid(), signal.SIGUSR2)


def test_a_signal_asks_for_a_cycle(tmp_path):
    theirs = []
    signal.signal(signal.SIGUSR2, lambda *_: theirs.append(1))
    with record(tmp_path, on="signal", warmup=1, steps=2) as recording:
        cycles = run(recording, 20, lambda step: kick(step, (4, 11)))
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    assert cycles == [(6, 2), (13, 2)]
    assert theirs == [1, 1], "the program's own handler is called too"
    assert recording.problems == []


def test_a_touched_file_asks_for_a_cycle_also_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PROFKIT_TRIGGER", str(tmp_path / "go"))
    with record(tmp_path / "run", warmup=0, steps=1) as recording:
        cycles = run(recording, 9, lambda step: step == 3 and (tmp_path / "go").touch())
    assert cycles == [(4, 1)]
    assert len(facts(recording)["plain_step_ns"]) >= 3


def test_a_slow_step_asks_for_a_cycle(tmp_path):
    with record(tmp_path, slower_than=0.3, warmup=0, steps=1) as recording:
        cycles = run(recording, 8, lambda step: time.sleep(0.5 if step in (0, 4) else 0))
    assert cycles == [(5, 1)], "the first step, which holds the start, always is slow"


def test_a_request_that_never_comes_is_told(tmp_path):
    options = record(tmp_path, on="signal")
    run(options.__enter__(), 20, lambda step: None)
    with pytest.warns(UserWarning, match="nothing asked for one by the signal SIGUSR2"):
        options.__exit__(None, None, None)


def test_a_cycle_in_every_so_many_steps(tmp_path):
    with record(tmp_path, every=5, warmup=1, steps=2) as recording:
        seen = []
        cycles = run(recording, 14, lambda step: seen.append(facts(recording)))
    assert cycles == [(3, 2), (8, 2)][: len(cycles)] + [(13, 1)] * (len(cycles) - 2)
    after_first = seen[6]
    assert after_first["state"] == "running"
    assert after_first["traces"] == [{"file": "trace.json.gz", "first_step": 3, "steps": 2, "complete": True}]
    assert after_first["versions"]["torch"] == torch.__version__, "complete, should the program be killed now"
    assert after_first["plain_step_median_ns"] > 0
    with pytest.raises(RecordingError, match="every is 2, less than warmup"):
        record(tmp_path, every=2, warmup=1, steps=2)


def test_the_cycles_of_a_run_are_one_recording_to_the_analyzer(tmp_path):
    model = torch.nn.Linear(8, 8)
    with record(tmp_path / "run", wait=2, warmup=1, steps=2, repeat=2) as recording:
        for _ in range(12):
            with phase("forward"):
                model(torch.ones(2, 8)).sum().backward()
            recording.step()
    assert len(recording.files) == 2
    report = json.loads(api.analyze(tmp_path / "run").render("json"))
    assert len(report["window"]["steps"]) == 4
    assert [row["count"] for row in report["phases"] if row["path"] == "forward"] == [4]
