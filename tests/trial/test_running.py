"""A process that does not get as far as it should."""

import math
import sys
import time

import pytest

from profkit.trial import running
from profkit.trial.running import Failed, Program, Running


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Starts a plain script in place of the one that talks, and gives what it failed with."""
    monkeypatch.chdir(tmp_path)
    started = []

    def run(source, patience_s=20.0):
        monkeypatch.setattr(
            running, "recorded_command", lambda *args: [sys.executable, "-c", source % args[1]]
        )
        started.append(Running(Program(("python", "train.py"))))
        with pytest.raises(Failed) as failure:
            started[-1].warm_up(patience_s, math.inf)
        return failure.value

    yield run
    for each in started:
        each.close()


def test_one_that_connects_and_says_nothing_hangs(failing):
    silent = "import socket, time; s = socket.socket(socket.AF_UNIX); s.connect(%r['socket']); time.sleep(60)"
    assert failing(silent, patience_s=0.5).kind == "hung"


def test_one_that_connects_and_leaves_has_crashed(failing):
    leaving = "import socket; s = socket.socket(socket.AF_UNIX); s.connect(%r['socket']); s.close(); raise KeyError(1)"
    assert failing(leaving).why == "KeyError: 1"


@pytest.mark.parametrize(
    "error", ["urllib.error.URLError('no name')", "RuntimeError('Dataset not found. Use download=True')"]
)
def test_one_that_needs_a_download_is_told_apart(failing, error):
    assert failing(f"import urllib.error; %r; raise {error}").kind == "no-data"


def test_an_error_is_told_before_a_program_with_workers_has_ended(failing):
    slow = (
        "import atexit, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(%r['socket'])\n"
        "s.close(); print('ValueError: mine', flush=True); time.sleep(30)"
    )
    begun = time.monotonic()
    assert failing(slow).why == "ValueError: mine"
    assert time.monotonic() - begun < 8
