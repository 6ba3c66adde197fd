"""What the trial and the program under it say to each other: lines of JSON over a socket."""

from __future__ import annotations

import os
import socket
from typing import Any, Final

import msgspec

__all__ = [
    "RECORDED",
    "Block",
    "Facts",
    "Hello",
    "LoaderFacts",
    "Message",
    "OptimizerFacts",
    "Order",
    "Talk",
    "Turn",
]


RECORDED: Final[dict[str, Any]] = {"wait": 1, "warmup": 2, "steps": 3}
"""The steps of a recording, once a program has warmed up."""


class Order(msgspec.Struct, kw_only=True):
    """How a process of the program shall run."""

    socket: str
    changes: list[str] = []
    seed_shift: int = 0
    """Added to every seed that the program sets; 0 leaves them as they are."""
    warmup: int = 5
    """Steps before the first word."""
    step_by: str | None = None
    step_every: int = 1
    folder: str | None = None
    """The program's own folder, which the folder that it runs in mirrors."""


class Hello(msgspec.Struct, tag=True, kw_only=True):
    """A rank is there."""

    world: int
    group: int
    """Its process group, which the trial freezes while another process has its turn."""


class OptimizerFacts(msgspec.Struct, kw_only=True, frozen=True):
    """One optimizer as it was constructed."""

    name: str
    fused: bool
    foreach: bool
    can_fuse: bool
    can_foreach: bool


class LoaderFacts(msgspec.Struct, kw_only=True, frozen=True):
    """One loader as it was constructed."""

    workers: int
    pinned: bool
    iterable: bool
    ahead: int = 0
    """Batches that its workers prepare ahead."""


class Facts(msgspec.Struct, kw_only=True):
    """What the program's steps are made of: what a change needs, and what is so already."""

    cuda: bool = False
    capability: tuple[int, int] | None = None
    cpu_bf16: bool = False
    cpus: int = 1
    threads: int = 1
    host_free_bytes: int = 0
    gpu_free_bytes: int | None = None
    modules: int = 0
    """Modules with parameters that are no part of another."""
    layers: int = 0
    convolutions: int = 0
    channels_last: bool = False
    compiled: bool = False
    autocast: bool = False
    half: bool = False
    """Whether the weights are in bf16 or fp16 already."""
    tf32: bool = False
    cudnn_benchmark: bool = False
    collects: bool = True
    """Whether Python's garbage collector runs by itself."""
    zeroed: bool = False
    """Whether gradients are set to zero, not dropped."""
    slow_attention: bool = False
    """Whether a model of transformers runs attention as separate operators."""
    optimizers: list[OptimizerFacts] = []
    loaders: list[LoaderFacts] = []
    in_process: bool = False
    """Whether it is a step function of a process that runs already."""


class Block(msgspec.Struct, tag=True, kw_only=True):
    """Some steps are over, and the device has done all their work."""

    steps: int
    ns: int
    """The time of those steps, from one idle device to the next."""
    first_ns: int | None = None
    """The first step of the program, with all that is done once; with the first block only."""
    losses: list[float | None] = []
    """Of each call of backward since the last word; None where it is not a finite number."""
    peak_bytes: int | None = None
    """The most that torch has held on the device."""
    applied: dict[str, int] = {}
    """How often each change found something to change."""
    refused: dict[str, str] = {}
    """What the program said to a change that did not fit."""
    outside: list[str] = []
    """Files that it has written so far outside its scratch folder."""
    facts: Facts | None = None
    """With the first block only."""


class Turn(msgspec.Struct, tag=True, kw_only=True):
    """It is this process' turn: run a step that is not timed, then so many that are; or record some, and end."""

    steps: int
    record: str | None = None
    """The folder of a recording."""


Message = Hello | Block | Turn


class Talk:
    """One end of a connection.

    Raises of all methods:
        EOFError: The other end is gone.
        TimeoutError: Nothing was said in time.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._decoder = msgspec.json.Decoder(Message)

    @classmethod
    def to(cls, address: str) -> Talk:
        """Connect to the trial."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        os.set_inheritable(connection.fileno(), False)
        return cls(connection)

    def say(self, message: Message) -> None:
        """Send a message."""
        try:
            self._connection.sendall(msgspec.json.encode(message) + b"\n")
        except (BrokenPipeError, ConnectionError) as error:
            raise EOFError from error

    def hear(self, within_s: float | None = None) -> Message:
        """Wait for the next message."""
        self._connection.settimeout(within_s)
        while b"\n" not in self._received:
            try:
                more = self._connection.recv(1 << 16)
            except ConnectionError as error:
                raise EOFError from error
            if not more:
                raise EOFError
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        message: Message = self._decoder.decode(line)
        return message

    def close(self) -> None:
        """Say nothing more."""
        self._connection.close()
