"""`benchmark`: the time of a function, warmed up and synchronised, with its spread."""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profkit.errors import RecordingError

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
            "warnings": self.warnings,
        }
        return json.dumps(row)


def benchmark(function: Callable[[], object], *, warmup: int = 10, repeat: int = 50) -> Benchmark:
    """Time a function that takes no arguments.

    On a GPU each run is timed between two CUDA events and the device is idle before and after all of them, so
    that work of another run is never part of one. What a function returns is thrown away.

    Args:
        function: What to time.
        warmup: Runs before the first that counts: they allocate, compile and tune.
        repeat: Runs that count.

    Raises:
        RecordingError: ``repeat`` is less than 1 or ``warmup`` less than 0.
    """
    if repeat < 1 or warmup < 0:
        raise RecordingError("profkit.benchmark", f"warmup={warmup}, repeat={repeat} leave nothing to time")
    for _ in range(warmup):
        function()
    cuda = _cuda()
    times = _host_times(function, repeat) if cuda is None else _device_times(cuda, function, repeat)
    return Benchmark(
        name=getattr(function, "__qualname__", type(function).__name__),
        device="cpu" if cuda is None else cuda.get_device_name(),
        clock="host" if cuda is None else "cuda events",
        warmup=warmup,
        times_ns=times,
        warnings=_doubts(times),
    )


def load_function(target: str) -> Callable[[], object]:
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


def _host_times(function: Callable[[], object], repeat: int) -> list[int]:
    times = []
    for _ in range(repeat):
        began = time.perf_counter_ns()
        function()
        times.append(time.perf_counter_ns() - began)
    return times


def _device_times(cuda: Any, function: Callable[[], object], repeat: int) -> list[int]:
    marks = []
    for _ in range(repeat):
        cuda.synchronize()
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        marks.append((start, end))
    cuda.synchronize()
    return [round(start.elapsed_time(end) * 1e6) for start, end in marks]


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
