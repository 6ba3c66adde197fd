"""A process of the program under trial, which runs only when it is its turn."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import msgspec

from profkit.errors import printable
from profkit.recording.launchers import missing_profkit, recorded_command
from profkit.trial.messages import Block, Hello, Message, Order, Talk, Turn
from profkit.trial.scratch import mirror

__all__ = ["Failed", "Process", "Program", "Running", "Tryable"]

_RUNNER: Final = "profkit.trial.child"
_ERROR_LINE: Final = re.compile(
    r"^[\w.]*(Error|Exception|Interrupt|Exit|Warning)\b.*|.*\berror\b.*", re.IGNORECASE
)
_NO_NETWORK: Final = re.compile(
    r"URLError|gaierror|NameResolutionError|Temporary failure in name|ConnectionError|Dataset not found|LocalEntryNotFound"
)
"""What urllib, requests, torchvision and huggingface_hub say where a download is needed and fails."""
_LAST_WORDS_S: Final = 10.0
_SILENCE_S: Final = 0.5
_OUT_OF_MEMORY: Final = ("out of memory", "OutOfMemoryError", "DefaultCPUAllocator: can't allocate")


class Failed(Exception):
    """A process did not get as far as it should.

    Args:
        kind: ``crashed``, ``no-data`` (which is to be downloaded), ``hung``, ``late`` (for the budget), ``out-of-memory`` or
            ``ended`` (by itself, too soon).
        why: In words.
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(kind, why)
        self.kind, self.why = kind, why
        self.owner: object = None
        """The side that failed: where two are timed in turns, it may be either."""


class Process(Protocol):
    """A side of a trial, which runs only when it is its turn."""

    blocks: list[Block]
    start_s: float
    """What the start and the warm-up took."""

    @property
    def losses(self) -> list[float | None]:
        """Of each backward from the start."""

    @property
    def last(self) -> Block:
        """The latest block."""

    def warm_up(self, patience_s: float, until: float) -> Block:
        """Run until it has warmed up, but no longer than this, and until then."""

    def turn(self, steps: int, expected_s: float = 0.0) -> Block:
        """Run a step that leads in, and so many that are timed."""

    def record(self, folder: str) -> None:
        """Record some steps into a folder, as the last that it does."""

    def pause(self, standing: bool) -> None:
        """Stand still while it starts, or go on."""

    def close(self) -> None:
        """End it."""


class Tryable(Protocol):
    """What is under trial: a `Program`, or a step function of this process."""

    @property
    def command(self) -> tuple[str, ...]:
        """What it is called."""

    @property
    def patience_s(self) -> float:
        """How long a start and its warm-up may take."""

    @property
    def until(self) -> float:
        """When the budget ends, by `time.monotonic`."""

    @property
    def starts_beside_others(self) -> bool:
        """Whether several sides may start at once."""

    def within(self, patience_s: float, until: float) -> Tryable:
        """The same with no more patience than this."""

    def running(self, changes: Sequence[str], seed_shift: int, environment: dict[str, str] | None) -> Process:
        """A side of some changes."""


@dataclass(frozen=True)
class Program:
    """What is run, and how."""

    command: tuple[str, ...]
    warmup: int = 5
    step_by: str | None = None
    step_every: int = 1
    patience_s: float = 300.0
    """How long a start and its warm-up may take; a block may take a tenth of it, or what its length asks for."""
    until: float = math.inf
    """When the budget ends, by `time.monotonic`: a start that is not over by then is late, and none hangs before its time."""
    environment: dict[str, str] = field(default_factory=dict)
    starts_beside_others: bool = True

    def within(self, patience_s: float, until: float) -> Program:
        """The same with no more patience than this."""
        return replace(self, patience_s=min(self.patience_s, patience_s), until=until)

    def running(self, changes: Sequence[str], seed_shift: int, environment: dict[str, str] | None) -> Running:
        """A process of it."""
        return Running(self, changes, seed_shift, environment)


class Running:
    """The program with some changes, in a process (or one a rank) that is frozen between its turns.

    Args:
        program: What is run.
        changes: Names of changes.
        seed_shift: Added to every seed.
        environment: Variables to set.

    Raises of its methods:
        Failed: It crashed, hangs, ran out of memory or ended.
    """

    def __init__(
        self,
        program: Program,
        changes: Sequence[str] = (),
        seed_shift: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.program = program
        self.blocks: list[Block] = []
        self._folder = tempfile.TemporaryDirectory(prefix="pk", ignore_cleanup_errors=True)
        self._talks: list[Talk] = []
        self._world = 1
        self._groups: set[int] = set()
        place = Path(self._folder.name)
        self._log = place / "log"
        run = place / "run"
        run.mkdir()
        mirror(Path.cwd(), run)
        address = str(place / "s")
        order = Order(
            socket=address, changes=list(changes), seed_shift=seed_shift, warmup=program.warmup,
            step_by=program.step_by, step_every=program.step_every, folder=str(Path.cwd()),
        )  # fmt: skip
        command = recorded_command(_found(program.command), msgspec.to_builtins(order), _RUNNER)
        if (obstacle := missing_profkit(command)) is not None:
            raise obstacle
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._begun = time.monotonic()
        self.start_s = 0.0
        """What the start and the warm-up took."""
        port = str(_free_port())
        own = {"PROFKIT_TRIAL": "1", "PYTHONHASHSEED": "0", "PET_MASTER_PORT": port, "MASTER_PORT": port}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=run, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **own, **program.environment, **(environment or {})},
            )  # fmt: skip
        self._groups.add(self._process.pid)

    @property
    def steps(self) -> int:
        """Steps of all blocks, without those that lead in."""
        return sum(block.steps for block in self.blocks)

    @property
    def losses(self) -> list[float | None]:
        """Of each backward from the start."""
        return [loss for block in self.blocks for loss in block.losses]

    @property
    def last(self) -> Block:
        """The latest block."""
        return self.blocks[-1]

    def warm_up(self, patience_s: float, until: float) -> Block:
        """Wait until the program has warmed up, but no longer than this; then it is frozen."""
        deadline = min(self._begun + patience_s, until)
        while len(self._talks) < self._world:
            self._listener.settimeout(0.2)
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._check(deadline, patience_s, until)
                continue
            self._talks.append(Talk(connection))
            hello = self._word(self._talks[-1], deadline, patience_s, until)
            assert isinstance(hello, Hello)
            self._groups.add(hello.group)
            self._world = hello.world
        block = self._hear(patience_s, deadline, until)
        self.start_s = time.monotonic() - self._begun
        return block

    def turn(self, steps: int, expected_s: float = 0.0) -> Block:
        """Run a step that leads in, and so many that are timed; then it is frozen again."""
        self._ask(Turn(steps=steps))
        patience = max(self.program.patience_s / 10, 20 * expected_s)
        return self._hear(min(patience, self.program.patience_s))

    def record(self, folder: str) -> None:
        """Record some steps into a folder; each rank has ended then."""
        self._ask(Turn(steps=0, record=folder))
        deadline = time.monotonic() + self.program.patience_s
        for talk in self._talks:
            self._word(talk, deadline, self.program.patience_s, math.inf)

    def _ask(self, turn: Turn) -> None:
        self._signal(signal.SIGCONT)
        try:
            for talk in self._talks:
                talk.say(turn)
        except EOFError:
            raise self._failure() from None

    def pause(self, standing: bool) -> None:
        """Stand still while it starts, or go on."""
        self._signal(signal.SIGSTOP if standing else signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever it does, and drop what it has written."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for talk in self._talks:
            talk.close()
        self._listener.close()
        self._folder.cleanup()

    def _hear(self, patience_s: float, deadline: float | None = None, until: float = math.inf) -> Block:
        deadline = deadline or time.monotonic() + patience_s
        blocks = []
        for talk in self._talks:
            block = self._word(talk, deadline, patience_s, until)
            assert isinstance(block, Block)
            blocks.append(block)
        self._signal(signal.SIGSTOP)
        slowest = max(blocks, key=lambda block: block.ns)
        first = blocks[0]
        first.ns = slowest.ns
        first.peak_bytes = max((b.peak_bytes for b in blocks if b.peak_bytes is not None), default=None)
        self.blocks.append(first)
        return first

    def _word(self, talk: Talk, deadline: float, patience_s: float, until: float) -> Message:
        while True:
            try:
                return talk.hear(min(max(deadline - time.monotonic(), 0.01), 1.0))
            except TimeoutError:
                self._check(deadline, patience_s, until)
            except EOFError:
                raise self._failure() from None

    def _check(self, deadline: float, patience_s: float, until: float) -> None:
        if self._process.poll() is not None:
            raise self._failure()
        if time.monotonic() > deadline == until:
            waited_s = max(deadline - self._begun, 0)
            raise Failed("late", f"not started after {waited_s:.0f} s: give it a larger --budget")
        if time.monotonic() > deadline:
            raise Failed("hung", f"no block of steps ended within {patience_s:.0f} s")

    def _failure(self) -> Failed:
        text = self._last_words()
        code = self._process.poll()
        line = _last_error(text)
        if any(sign in text for sign in _OUT_OF_MEMORY):
            return Failed("out-of-memory", line)
        if code == 0:
            return Failed("ended", f"the program ended by itself after {self._seen()}")
        if code == -signal.SIGKILL:
            return Failed("out-of-memory", "the system killed it, most likely for lack of memory")
        kind = "no-data" if _NO_NETWORK.search(line) else "crashed"
        return Failed(kind, line or f"exit code {code}")

    def _last_words(self) -> str:
        """What it said, once it has ended or said its error: a program with workers may take long to end."""
        deadline, size = time.monotonic() + _LAST_WORDS_S, -1
        while self._process.poll() is None and time.monotonic() < deadline:
            text = self._log.read_text("utf-8", "replace")
            if len(text) == size and any(map(_ERROR_LINE.match, text.splitlines())):
                break
            size = len(text)
            time.sleep(_SILENCE_S)
        return self._log.read_text("utf-8", "replace")

    def _seen(self) -> str:
        return f"{self.steps} steps" if self.blocks else f"fewer than {self.program.warmup} steps"

    def _signal(self, number: int) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def _found(command: Sequence[str]) -> list[str]:
    """The command with the paths that its scratch folder does not mirror made absolute."""
    return [
        str(Path(each).absolute()) if each.startswith("..") and Path(each).exists() else each
        for each in command
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    return printable((errors or lines or [""])[-1])[:300]
