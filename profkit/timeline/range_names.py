"""What a range's name says it is: a step, a fetch of data, a library's own mark, compilation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn

__all__ = [
    "compiles",
    "fetches_data",
    "is_library",
    "is_operator_name",
    "is_torchs_frame",
    "loads_code",
    "matching",
    "profiler_step",
    "step_like",
]

_PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
_STEP = re.compile(
    r"(?:global|train|training|optimi[sz]er)?[ _\-.]?(?:step|iteration|iter)[ _\-#:.]*\d*", re.IGNORECASE
)
_OPERATOR = re.compile(r"(?:aten|autograd|torch::autograd|prims|c10d|_c10d_functional)::")
_LIBRARY = re.compile(
    r"nccl:|gloo:|mpi:|ucc:|hccl:|xccl:|c10d::|Optimizer\.[^#]*#|DistributedDataParallel\.|DataParallel\."
    r"|FSDP::|FullyShardedDataParallel\.|enumerate\(DataLoader\)#|Torch-Compiled Region|## Call CompiledFxGraph"
    r"|Call CompiledFxGraph|CompiledFunction|Pregraph bytecode|TorchDynamo Cache Lookup|PyTorch Profiler"
    r"|Iteration Start: PyTorch Profiler|.*\(dynamo_timed\)|\w+: (?:fn_name=[^,]*, )?compile_id=.*"
)
_DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#.*\.__next__")
_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
"""``getNextBatch``, ``get_next_batch`` and ``GETBatch`` are get, (next,) batch."""
_FETCHES = frozenset({"dataloader", "dataloading", "loader", "collate", "tokenize", "fetch"})
_FETCHED = frozenset({"data", "input", "inputs", "batch"})
_FETCHING = frozenset({"get", "load", "loading", "next", "fetch", "fetching", "read", "prepare"})
_DATA = frozenset({"data", "input", "inputs"})
_FEW = 64
"""With fewer texts than one in so many rows, testing all of them is quicker than finding which are used."""
_TORCHS_FRAME = re.compile(r"<built-in |nn\.Module: |(?:.{0,1000}[/\\])?torch[/\\][^(]{0,200}\(\d{1,9}\): ")


def profiler_step(name: str) -> bool:
    """A step that ``torch.profiler`` marked."""
    return _PROFILER_STEP.fullmatch(name) is not None


def step_like(name: str) -> bool:
    """A step that the user marked, by its usual names: step, iteration, train_step, ``step 12``."""
    return len(name) < 64 and name.strip() != "" and _STEP.fullmatch(name.strip()) is not None


def is_operator_name(name: str) -> bool:
    """A dispatched operator or autograd node, by its namespace."""
    return _OPERATOR.match(name) is not None


def is_library(name: str) -> bool:
    """A mark that torch or a communication library makes by itself."""
    return _LIBRARY.match(name) is not None


def fetches_data(name: str) -> bool:
    """Fetching or preparing data: the DataLoader's own range, or a name whose words say so.

    ``get_batch``, ``data_loading``, ``tokenize`` and ``train/data`` do; ``input_proj``, ``DistributedDataParallel`` and
    ``metadata`` do not.
    """
    if _DATA_LOADER.fullmatch(name):
        return True
    if len(name) > 200 or is_library(name) or is_operator_name(name):
        return False
    tokens = [token.lower() for token in _TOKEN.findall(name)]
    found = set(tokens)
    return (
        not found.isdisjoint(_FETCHES)
        or not (found.isdisjoint(_FETCHED) or found.isdisjoint(_FETCHING))
        or re.split(r"[/.]", name)[-1].strip().lower() in _DATA
    )


def loads_code(name: str) -> bool:
    """Loading of code onto a device, as the profiler's rows call it."""
    return "Lazy Function Loading" in name or "Module Loading" in name


def is_torchs_frame(name: str) -> bool:
    """A Python frame of torch, of the interpreter or of a module's call: no work of the program's own."""
    return _TORCHS_FRAME.match(name) is not None


def compiles(name: str) -> bool:
    """Compilation of code."""
    return name.endswith("(dynamo_timed)") or "Driver Compiler" in name


def matching(strings: Sequence[str], ids: IntColumn, test: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Apply a test of a text to a column of string ids, each distinct text once."""
    if not len(ids):
        return np.zeros(0, bool)
    count = len(strings)
    answers = np.zeros(count + 1, bool)  # the last one is for -1, no text
    numbers: Sequence[int] = range(count)
    if count * _FEW > len(ids):
        present = np.zeros(count + 1, bool)
        present[ids.astype(np.intp)] = True
        numbers = np.flatnonzero(present[:-1]).tolist()
    for number in numbers:
        answers[number] = test(strings[number])
    result: NDArray[np.bool_] = answers.take(ids, mode="wrap")
    return result
