"""profkit: mark a PyTorch training step once, record it, and read where each millisecond goes.

::

    import profkit

    @profkit.phase("forward")
    def forward(model, batch): ...

    with profkit.record("runs/today", warmup=2, steps=3, memory=True) as recorder:
        for batch in loader:
            train_step(batch)
            recorder.step()

    report = profkit.analyze("runs/today")
    report.save("report.html")

Importing profkit loads neither torch nor pandas nor plotly: each name loads what it needs when it is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from profkit.errors import AnalysisError, OutputError, ProfkitError, ReadError, RecordingError

if TYPE_CHECKING:
    from profkit import saved_runs
    from profkit.api import Report, analyze
    from profkit.api.comparing import compare, gate, load
    from profkit.api.events import export
    from profkit.api.fitting import fit
    from profkit.api.trying import try_
    from profkit.api.what_if import what_if
    from profkit.recording.benchmark import benchmark
    from profkit.recording.instrument import instrument
    from profkit.recording.numerics import numerics
    from profkit.recording.phases import phase
    from profkit.recording.recorder import record

__all__ = [
    "AnalysisError",
    "OutputError",
    "ProfkitError",
    "ReadError",
    "RecordingError",
    "Report",
    "analyze",
    "benchmark",
    "compare",
    "export",
    "fit",
    "gate",
    "instrument",
    "load",
    "numerics",
    "phase",
    "record",
    "saved_runs",
    "try_",
    "what_if",
]

__version__: str

_HOMES = {
    "Report": "profkit.api",
    "analyze": "profkit.api",
    "benchmark": "profkit.recording.benchmark",
    "compare": "profkit.api.comparing",
    "export": "profkit.api.events",
    "fit": "profkit.api.fitting",
    "gate": "profkit.api.comparing",
    "load": "profkit.api.comparing",
    "try_": "profkit.api.trying",
    "what_if": "profkit.api.what_if",
    "instrument": "profkit.recording.instrument",
    "numerics": "profkit.recording.numerics",
    "phase": "profkit.recording.phases",
    "record": "profkit.recording.recorder",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("profkit")
    if name == "saved_runs":  # a room of its own, imported when it is used
        return import_module("profkit.saved_runs")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'profkit' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
