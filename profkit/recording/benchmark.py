"""`benchmark`: the time of a function, warmed up and synchronised, with its spread; its backward pass apart."""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profkit.errors import RecordingError
from profkit.recording.environment import git_state, versions

__all__ = ["Benchmark", "benchmark", "load_function"]

WARMUP_DRIFT: Final = 1.1
"""The first tenth of the runs may be this much slower than the rest before it counts as too little warm-up."""

WIDE_SPREAD: Final = 0.1
"""The middle half of the runs may spread over this part of the median."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What a function takes. Times are nanoseconds."""

    name: str
    device: str
    """The GPU's name, or ``cpu``."""
    clock: str
    """``cuda events`` or ``host``."""
    warmup: int
    times_ns: list[int]
    """One a run, in the order of the runs."""
    """Of the function; of its forward pass where ``backward_ns`` has the rest."""
    backward_ns: list[int] = field(default_factory=list)
    """The backward pass of what it returned, one a run; empty where that was not asked for."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """What it was called with."""
    torch: str | None = None
    """The version of torch; None without torch."""
    revision: str | None = None
    """The git commit of the working folder, with ``+`` where files differ from it; None outside of git."""
    warnings: list[str] = field(default_factory=list)

    @property
    def median_ns(self) -> int:
        """The middle run."""
        return round(statistics.median(self.times_ns))

    @property
    def spread_ns(self) -> int:
        """From the first to the third quartile: the middle half of the runs."""
        return _quartile_range(self.times_ns)

    def json_line(self) -> str:
        """One line of JSON."""
        row = {
            "name": self.name,
            "device": self.device,
            "clock": self.clock,
            "warmup": self.warmup,
            "repeat": len(self.times_ns),
            "median_ns": self.median_ns,
            "spread_ns": self.spread_ns,
            "min_ns": min(self.times_ns),
            "max_ns": max(self.times_ns),
            "times_ns": self.times_ns,
            "parameters": self.parameters,
            "torch": self.torch,
            "revision": self.revision,
            "warnings": self.warnings,
        }
        if self.backward_ns:
            row["backward_median_ns"] = round(statistics.median(self.backward_ns))
            row["backward_spread_ns"] = _quartile_range(self.backward_ns)
            row["backward_times_ns"] = self.backward_ns
        return json.dumps(row)


def benchmark(
    function: Callable[..., object],
    *,
    warmup: int = 10,
    repeat: int = 50,
    parameters: Mapping[str, Any] | None = None,
    backward: bool = False,
) -> Benchmark:
    """Time a function.

    On a GPU each run is timed between CUDA events and the device is idle before and after all of them, so
    that work of another run is never part of one. What a function returns is thrown away.

    Args:
        function: What to time. One that takes parameters may prepare its inputs and return a function without any:
            then that is timed.
        warmup: Runs before the first that counts: they allocate, compile and tune.
        repeat: Runs that count.
        parameters: What to call it with, by name.
        backward: Whether to time the backward pass of the tensor that it returns too, apart.

    Raises:
        RecordingError: ``repeat`` is less than 1 or ``warmup`` less than 0, or there is no tensor with a backward pass.
    """
    if not callable(function):
        raise RecordingError("profkit.benchmark", f"cannot call {function!r}", "Give a function")
    if repeat < 1 or warmup < 0:
        raise RecordingError("profkit.benchmark", f"warmup={warmup}, repeat={repeat} leave nothing to time")
    given = dict(parameters or {})
    stages = _stages(_prepared(function, given), backward=backward)
    for _ in range(warmup):
        for stage in stages:
            stage()
    cuda = _cuda()
    times = _host_times(stages, repeat) if cuda is None else _device_times(cuda, stages, repeat)
    return Benchmark(
        name=getattr(function, "__qualname__", type(function).__name__),
        device="cpu" if cuda is None else cuda.get_device_name(),
        clock="host" if cuda is None else "cuda events",
        warmup=warmup,
        times_ns=times[0],
        backward_ns=times[1] if backward else [],
        parameters=given,
        torch=versions().get("torch"),
        revision=_revision(),
        warnings=[doubt for each in times for doubt in _doubts(each)],
    )


def _prepared(function: Callable[..., object], parameters: Mapping[str, Any]) -> Callable[[], object]:
    """What is timed: the function with its parameters, or the one that it makes of them."""
    if not parameters:
        return function
    made = function(**parameters)
    return made if callable(made) else lambda: function(**parameters)


def _stages(function: Callable[[], object], *, backward: bool) -> list[Callable[[], object]]:
    """What is timed apart in each run: the function, and the backward pass of its result."""
    if not backward:
        return [function]
    results: list[Any] = []

    def forward() -> None:
        results.append(function())

    def back() -> None:
        result = results.pop()
        if not hasattr(result, "requires_grad") or not result.requires_grad:
            raise RecordingError(
                "profkit.benchmark", "the function returns no tensor with a backward pass", "Return the loss"
            )
        result.backward(None if result.numel() == 1 else result.detach())

    return [forward, back]


def _revision() -> str | None:
    state = git_state(Path.cwd())
    return f"{state['revision']}{'+' if state['dirty'] else ''}" if state else None


def load_function(target: str) -> Callable[..., object]:
    """The function of ``script.py:function``; the script is run as a module, not as a program.

    Raises:
        RecordingError: There is no such script or function.
    """
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise RecordingError(target, "names no function", "Write script.py:function")
    if not Path(path).is_file():
        raise RecordingError(path, "is not a file", "Write script.py:function")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise RecordingError(path, "is not a Python script", "Write script.py:function")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Any = getattr(module, name, None)
    if not callable(function):
        raise RecordingError(target, f"the script has no function {name}")
    return function  # type: ignore[no-any-return]


def _cuda() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda if torch.cuda.is_available() else None


def _host_times(stages: list[Callable[[], object]], repeat: int) -> list[list[int]]:
    """The times of each stage, one a run."""
    times: list[list[int]] = [[] for _ in stages]
    for _ in range(repeat):
        for at, stage in enumerate(stages):
            began = time.perf_counter_ns()
            stage()
            times[at].append(time.perf_counter_ns() - began)
    return times


def _device_times(cuda: Any, stages: list[Callable[[], object]], repeat: int) -> list[list[int]]:
    """The times of each stage, one a run."""
    runs = []
    for _ in range(repeat):
        cuda.synchronize()
        marks = [cuda.Event(enable_timing=True) for _ in range(len(stages) + 1)]
        marks[0].record()
        for stage, mark in zip(stages, marks[1:], strict=True):
            stage()
            mark.record()
        runs.append(marks)
    cuda.synchronize()
    return [
        [round(marks[at].elapsed_time(marks[at + 1]) * 1e6) for marks in runs] for at in range(len(stages))
    ]


def _doubts(times: list[int]) -> list[str]:
    """Why the median may not be trusted."""
    doubts = []
    early = times[: max(1, len(times) // 10)]
    rest = times[len(early) :]
    if rest and statistics.median(early) > WARMUP_DRIFT * statistics.median(rest):
        slower = statistics.median(early) / statistics.median(rest)
        doubts.append(f"the first runs are {slower:.1f} times slower than the rest: raise warmup")
    spread = _quartile_range(times) / max(1, statistics.median(times))
    if spread > WIDE_SPREAD:
        doubts.append(
            f"the middle half of the runs spreads over {spread:.0%} of the median: raise repeat, or quiet the machine"
        )
    return doubts


def _quartile_range(times: list[int]) -> int:
    if len(times) < 2:
        return 0
    first, _, third = statistics.quantiles(times, n=4)
    return round(third - first)
