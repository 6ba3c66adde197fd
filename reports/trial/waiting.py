"""Processes of `timing.py` that start side by side, and of which one at a time runs when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

_LOOK_EVERY_S = 0.05


class Waiting:
    """A process that warms up by itself, and then times some steps at each `turn`.

    Args:
        command: Of `timing.py`.
        folder: Where it runs.
        environment: Its variables.
        log: What it says.
    """

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        """All that it has said."""
        return self._log.read_bytes().decode("utf-8", "replace")

    def _found(self) -> list[str]:
        return [line for line in self.said().splitlines() if line.startswith("{") and "_ms" in line]

    def is_ready(self, until: float) -> bool:
        """Wait until it has warmed up; not where it ends or the time does."""
        while time.monotonic() < until and self._process.poll() is None:
            if "\nREADY\n" in self.said():
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def turn(self, until: float) -> dict[str, Any]:
        """Let it time some steps: what it found, or its exit code (None where it was too slow) and what it said.

        One that has not warmed up by now is not waited for: the time is the others'.
        """
        count = len(self._found())
        if self.is_ready(min(until, time.monotonic() + 2 * _LOOK_EVERY_S)):
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()
            while time.monotonic() < until:
                if len(lines := self._found()) > count:
                    found: dict[str, Any] = json.loads(lines[-1])
                    return found
                if self._process.poll() is not None:
                    break
                time.sleep(_LOOK_EVERY_S)
        return {"code": self._process.poll(), "said": self.said()[-1000:]}

    def end(self) -> None:
        """Kill it, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
