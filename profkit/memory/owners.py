"""Whose memory it is: the first frame of the user's own code, and what the stack says that the block is for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN, IntColumn
from profkit.model.memory_history import MemoryHistory

__all__ = ["Mark", "Owners"]

_NATIVE_FILE = re.compile(r"|\?\?|.*\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|o|s|so[.\d]*)", re.IGNORECASE)
_LIBRARY_FILE = re.compile(
    r"<.*|.*(?:^|/)(?:site|dist)-packages/.*|.*(?:^|/)lib/python\d[\d.]*/.*|.*/torchinductor_[^/]*/.*"
    r"|(?:.*/)?torch/(?:_\w+|amp|autograd|cuda|distributed|fx|jit|nn|optim|profiler|utils)/.*"
    r"|(?:.*/)?torch/(?:__init__|_\w+|functional|hub|overrides|serialization|storage)\.py"
    r"|.*(?:^|/)(?:(?:ana|mini)conda\d*|miniforge\d*|envs/[^/]+|python\d+)/lib/.*"
    r"|(?:.*/)?c[a-z2-7]{50,}\.py|(?:.*/)?profkit/recording/.*",
    re.IGNORECASE,
)
_IN_PACKAGES = re.compile(r"\A.*(?:site|dist)-packages/")
_AUTOGRAD_NODE = re.compile(r"torch::autograd::generated::(\w+)::apply")
_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_ENGINE = re.compile(r"torch::autograd::(?:Engine::|Node::operator|python::PythonEngine)")
_BACKWARD_CODE = re.compile(
    r"(?:.*/)?torch/(?:autograd/(?:__init__|graph)\.py|_tensor\.py|utils/checkpoint\.py)"
)
_OPTIMIZER_CODE = re.compile(r"(?:.*/)?(?:torch/optim|apex/optimizers|bitsandbytes/optim)/.*")
_MODULE_CODE = re.compile(r"(?:.*/)?torch/nn/modules/\w+\.py")
_INITIALISERS = frozenset({"_apply", "convert", "reset_parameters", "__init__", "to_empty", "to", "cuda"})
_WORKSPACE = re.compile(r".*(?:getNewWorkspace|[Ww]orkspace|getCurrentCUDABlasHandle|CUDABlasLt).*")
_COMPILED_BACKWARD = re.compile(r"(?:.*/)?torch/_functorch/_aot_autograd/runtime_wrappers\.py")


class Mark(IntFlag):
    """What a stack passes through."""

    BACKWARD = 1
    OPTIMIZER = 2
    MODULE_CALL = 4
    """A module's forward."""
    INITIALISER = 8
    """A module is built or moved: its parameters and buffers."""
    WORKSPACE = 16
    """Scratch memory of cuBLAS and the like."""


@dataclass(frozen=True)
class _Frame:
    label: str
    python: bool
    user: bool
    marks: Mark
    node: str | None
    operator: str | None


class Owners:
    """Names and marks of the stacks of one history; each stack is looked at once."""

    def __init__(self, history: MemoryHistory) -> None:
        self._history = history
        self._frames = [_frame(*self._texts(row)) for row in range(len(history.frames))]
        self.names: list[str | None] = []
        """Owners: ``train.py:12 forward``; None for blocks without a stack."""
        self._ids: dict[str | None, int] = {}
        count = len(history.stacks)
        stacks = [self._summary(stack) for stack in range(count)]
        # The last entry stands for no stack: id -1 finds it.
        self.of_stack = np.array([self._id(name) for name, _ in stacks] + [self._id(None)], np.int64)
        """For each stack its owner's index in ``names``; index with -1 for no stack."""
        self.marks = np.array([int(marks) for _, marks in stacks] + [0], np.int64)

    def owner(self, stacks: IntColumn) -> NDArray[np.int64]:
        """Owner indices of stack ids."""
        owners: NDArray[np.int64] = self.of_stack[stacks]
        return owners

    def marked(self, stacks: IntColumn, mark: Mark) -> NDArray[np.bool_]:
        """Which stack ids pass through something."""
        marked: NDArray[np.bool_] = (self.marks[stacks] & int(mark)) != 0
        return marked

    def where(self, stack: int) -> str | None:
        """The owner of one stack."""
        return self.names[int(self.of_stack[stack])]

    def path(self, stack: int) -> list[str]:
        """A stack for people, outermost first: Python frames, then the operator or autograd node inside."""
        if stack == UNKNOWN:
            return []
        frames = [self._frames[row] for row in self._history.stacks[stack].tolist()]
        inner = _inner_name(frames)
        return [frame.label for frame in reversed(frames) if frame.python] + ([inner] if inner else [])

    def _texts(self, row: int) -> tuple[str, int, str]:
        frames, text = self._history.frames, self._history.text
        return text(int(frames.file[row])) or "", int(frames.line[row]), text(int(frames.function[row])) or ""

    def _id(self, name: str | None) -> int:
        known = self._ids.setdefault(name, len(self.names))
        if known == len(self.names):
            self.names.append(name)
        return known

    def _summary(self, stack: int) -> tuple[str | None, Mark]:
        frames = [self._frames[row] for row in self._history.stacks[stack].tolist()]
        marks = Mark(0)
        for frame in frames:
            marks |= frame.marks
        user = next((frame.label for frame in frames if frame.user), None)
        library = next((frame.label for frame in frames if frame.python), None)
        return user or _inner_name(frames) or library, marks


def _inner_name(frames: list[_Frame]) -> str | None:
    """The autograd node, else the outermost operator, of the native frames."""
    node = next((frame.node for frame in frames if frame.node), None)
    return node or next((frame.operator for frame in reversed(frames) if frame.operator), None)


def _frame(file: str, line: int, function: str) -> _Frame:
    path = file.replace("\\", "/")
    if _NATIVE_FILE.fullmatch(path):
        return _native_frame(function)
    library = _LIBRARY_FILE.fullmatch(path) is not None
    shown = _IN_PACKAGES.sub("", path) if _IN_PACKAGES.match(path) else path.rpartition("/")[2]
    label = f"{shown}:{line} {function}" if line >= 0 else f"{shown} {function}"
    return _Frame(label, True, not library, _python_marks(path, function), None, None)


def _native_frame(function: str) -> _Frame:
    marks = Mark.BACKWARD if _ENGINE.match(function) else Mark(0)
    if "::" in function and _WORKSPACE.fullmatch(function):
        marks |= Mark.WORKSPACE
    node, operator = _AUTOGRAD_NODE.match(function), _OPERATOR.match(function)
    return _Frame(
        function,
        False,
        False,
        marks,
        f"autograd {node[1]}" if node else None,
        f"aten::{operator[1]}" if operator else None,
    )


def _python_marks(path: str, function: str) -> Mark:
    marks = Mark(0)
    if _BACKWARD_CODE.fullmatch(path) and "backward" in function:
        marks |= Mark.BACKWARD
    if _COMPILED_BACKWARD.fullmatch(path) and "backward" in function:
        marks |= Mark.BACKWARD
    if _OPTIMIZER_CODE.fullmatch(path):
        marks |= Mark.OPTIMIZER
    if _MODULE_CODE.fullmatch(path):
        if function == "_call_impl":
            marks |= Mark.MODULE_CALL
        if function in _INITIALISERS:
            marks |= Mark.INITIALISER
    if path.endswith("torch/nn/init.py"):
        marks |= Mark.INITIALISER
    return marks
