"""A recording and some changes in, memory and time out: what ``profkit.fit`` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from profkit.api.report import PathLike, expand
from profkit.api.run_folder import run_steps
from profkit.errors import AnalysisError, ProfkitError
from profkit.model import Trace
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_fit import Fit
from profkit.readers import read
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.answer import first_step
from profkit.simulation.fit import FitChanges, fit_program, largest_batch
from profkit.simulation.memory_program import MemoryProgram, memory_program
from profkit.timeline.view import TraceView

__all__ = ["fit"]


def fit(  # noqa: PLR0913 - options by name, as on the command line
    paths: PathLike | Iterable[PathLike],
    *,
    batch: float | Literal["max"] = 1.0,
    optimizer: Literal["sgd", "adam", "adam8bit"] | None = None,
    fused_optimizer: bool = False,
    ranks: int = 1,
    shard: Literal["zero1", "zero2", "zero3"] | None = None,
    memory_bytes: int | None = None,
    plain_step_ns: int | None = None,
) -> Fit:
    """Whether the recorded step fits into memory after some changes, and what it then takes.

    Args:
        paths: A run folder, or a memory snapshot with the trace of the same steps (for the time).
        batch: The batch as a multiple of the recorded one; ``max`` for the largest that fits.
        optimizer: Another optimizer: ``sgd`` (without momentum), ``adam``, ``adam8bit``.
        fused_optimizer: The optimizer in one kernel, without temporaries.
        ranks: Over how many ranks ``shard`` goes.
        shard: ``zero1`` (optimizer state), ``zero2`` (gradients too) or ``zero3`` (parameters too).
        memory_bytes: What it has to fit into; by default the memory of the recorded GPU, where a trace says it.
        plain_step_ns: The step's time without a profiler, in ns; a run folder tells it by itself.

    Raises:
        ReadError: A file cannot be read.
        AnalysisError: There is no memory snapshot, or it has no history.
        ProfkitError: The largest batch is asked for without a limit, or not even the smallest fits.
    """
    files = expand(paths)
    recordings = [read(file) for file in files]
    program = _program(files, [each for each in recordings if isinstance(each, MemoryHistory)])
    options = Options(plain_step_ns=plain_step_ns, run_steps=run_steps(files))
    views, _ = timelines([r for r in recordings if isinstance(r, Trace)], options)
    asked = FitChanges(optimizer=optimizer, fused_optimizer=fused_optimizer, ranks=ranks, shard=shard)
    gpu_bytes = _gpu_bytes(views, program.replayed.device)
    if batch == "max":
        limit = memory_bytes if memory_bytes is not None else gpu_bytes
        batch = _largest(program, asked, limit)
    return fit_program(
        program,
        replace(asked, batch=batch),
        step=first_step(views),
        memory_bytes=memory_bytes,
        gpu_bytes=gpu_bytes,
    )


def _program(files: Sequence[str], histories: Sequence[MemoryHistory]) -> MemoryProgram:
    if not histories:
        raise AnalysisError(
            files[0],
            "there is no memory snapshot",
            "Record one with profkit.record(memory=True), or with profkit record memory",
        )
    program = memory_program(histories[0])
    if program is None:
        raise AnalysisError(
            histories[0].source.name,
            "it has no history of allocations, only their end",
            "Record it with profkit.record(memory=True), or with torch.cuda.memory._record_memory_history()",
        )
    return program


def _largest(program: MemoryProgram, asked: FitChanges, limit: int | None) -> float:
    if limit is None:
        raise ProfkitError("the largest batch needs a limit. Name it: memory_bytes, or --memory 24GB")
    found = largest_batch(program, asked, limit)
    if found is None:
        raise ProfkitError("not even a 64th of the recorded batch fits")
    return found


def _gpu_bytes(views: Sequence[TraceView], ordinal: int) -> int | None:
    """The memory of a GPU, where a trace says it."""
    found = [
        d.memory_bytes for v in views for d in v.trace.devices if d.memory_bytes and d.ordinal == ordinal
    ]
    return found[0] if found else None
