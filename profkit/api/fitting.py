"""A recording and some changes in, memory and time out: what ``profkit.fit`` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from profkit.api.inputs import PathLike, expand
from profkit.api.run_folder import run_steps, stated_step_ns
from profkit.errors import AnalysisError, ProfkitError
from profkit.model import Trace
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_fit import Fit
from profkit.readers import read
from profkit.rendering.fit import render_fit_text
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.answer import first_step
from profkit.simulation.block_operators import BlockOperators, block_operators
from profkit.simulation.cheapest_fit import cheapest_fit
from profkit.simulation.fit import failed_request, fit_program, gpu_bytes, largest_batch, room_bytes
from profkit.simulation.fit_changes import FitChanges
from profkit.simulation.loss_memory import find_loss
from profkit.simulation.memory_program import MemoryProgram, memory_program
from profkit.simulation.recompute_memory import find_segments
from profkit.simulation.shard_memory import is_sharded
from profkit.units import bytes_text, parse_bytes

__all__ = ["fit"]

_NAME_LAYERS: Final = "Name all, a phase, or the file or function that calls the layers"
_LAYERS_ARE: Final = (
    "Layers show in the stacks of a loop over them. Record whole steps from their start, with Python stacks"
)
_OPTIMIZERS: Final = ("sgd", "adam", "adam8bit")
_SHARDS: Final = ("zero1", "zero2", "zero3")


class _Answer(Fit, frozen=True, kw_only=True):
    """It reads as the command line prints it, also in a notebook."""

    def __str__(self) -> str:
        return render_fit_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def fit(  # noqa: PLR0913 - options by name, as on the command line
    paths: PathLike | Iterable[PathLike],
    *,
    batch: float | Literal["max"] = 1.0,
    sequence: float = 1.0,
    bf16: bool = False,
    recompute: str | None = None,
    fused_attention: bool = False,
    fused_loss: bool = False,
    optimizer: Literal["sgd", "adam", "adam8bit"] | None = None,
    fused_optimizer: bool = False,
    ranks: int = 1,
    shard: Literal["zero1", "zero2", "zero3"] | None = None,
    accumulate: int = 1,
    keep_gradients: bool = False,
    offload_optimizer: bool = False,
    inference: bool = False,
    memory: str | None = None,
    memory_bytes: int | None = None,
    plain_step: str | None = None,
    plain_step_ns: int | None = None,
) -> Fit:
    """Whether the recorded step fits into memory after some changes, and what it then takes.

    Args:
        paths: A run folder, or a memory snapshot with the trace of the same steps (for the time).
        batch: The batch as a multiple of the recorded one; ``max`` for the largest that fits.
        sequence: The length of the sequence as a multiple of the recorded one.
        bf16: Forward and loss under autocast to bf16.
        recompute: Activations to recompute, each layer by itself: ``all``, the path of a phase, a part of the name
            of the file or function that calls the layers, or how many layers (``"6"``: those that keep the most for their time).
        fused_attention: Attention by scaled_dot_product_attention, which stores no scores.
        fused_loss: Cross entropy over a vocabulary in chunks, which stores no logits (Liger's fused linear cross entropy).
        optimizer: Another optimizer: ``sgd`` (without momentum), ``adam``, ``adam8bit``.
        fused_optimizer: The optimizer in one kernel, without temporaries.
        ranks: Over how many ranks ``shard`` goes.
        shard: ``zero1`` (optimizer state: ZeroRedundancyOptimizer with DistributedDataParallel), ``zero2`` (gradients too) or
            ``zero3`` (parameters too: FSDP).
        accumulate: The batch in so many parts, whose gradients add up.
        keep_gradients: ``zero_grad(set_to_none=False)``.
        offload_optimizer: The optimizer's state and its update in the host's memory.
        inference: The forward pass alone, under ``torch.no_grad()``.
        memory: What it has to fit into: ``24GB``. By default the memory of the recorded GPU, where a trace says it.
        memory_bytes: The same in bytes.
        plain_step: The step's time without a profiler: ``38.3ms``. A run folder tells it by itself.
        plain_step_ns: The same in ns.

    Raises:
        ReadError: A file cannot be read.
        AnalysisError: There is no memory snapshot, or it has no history.
        ProfkitError: A value is none that its option takes. The largest batch is asked for without a limit, or of a
            recording that ends where memory ran out, or not even the smallest fits.
    """
    asked = FitChanges(
        sequence=sequence,
        bf16=bf16,
        recompute=recompute,
        fused_attention=fused_attention,
        fused_loss=fused_loss,
        optimizer=optimizer,
        fused_optimizer=fused_optimizer,
        ranks=ranks,
        shard=shard,
        accumulate=accumulate,
        keep_gradients=keep_gradients,
        offload_optimizer=offload_optimizer,
        inference=inference,
    )
    _refuse_wrong(asked, batch)
    memory_bytes = _stated_bytes(memory, memory_bytes)
    files = expand(paths)
    recordings = [read(file) for file in files]
    program = _program(files, [each for each in recordings if isinstance(each, MemoryHistory)])
    traces = [each for each in recordings if isinstance(each, Trace)]
    views, _ = timelines(
        traces, Options(plain_step_ns=stated_step_ns(plain_step, plain_step_ns), run_steps=run_steps(files))
    )
    operators = next((made for each in traces if (made := block_operators(program, each))), None)
    _refuse_unknown(files, program, asked, operators)
    card_bytes = gpu_bytes(traces, program)
    if batch == "max":
        batch = _largest(program, asked, operators, room_bytes(program, memory_bytes, card_bytes))
    asked, step = replace(asked, batch=batch), first_step(views)
    found = fit_program(program, asked, operators, step=step, memory_bytes=memory_bytes, gpu_bytes=card_bytes)
    if found.fits or found.memory_bytes is None or any(note.code == "grows" for note in found.notes):
        return _Answer(**msgspec.structs.asdict(found))
    cheapest = cheapest_fit(
        program, asked, operators, step=step, memory_bytes=memory_bytes, gpu_bytes=card_bytes
    )
    return _Answer(**msgspec.structs.asdict(found) | {"cheapest": cheapest})


def _refuse_wrong(asked: FitChanges, batch: float | Literal["max"]) -> None:
    """Refuse what the command line would."""
    factors: dict[str, object] = {"sequence": asked.sequence, "batch": 1 if batch == "max" else batch}
    for name, factor in factors.items():
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1024:
            wrong = f"{name}={factor!r} is no multiple of the recorded one"
            raise ProfkitError(f"{wrong}. Write a number over 0 and up to 1024")
    for name, number in {"ranks": asked.ranks, "accumulate": asked.accumulate}.items():
        if type(number) is not int or number < 1:
            raise ProfkitError(f"{name}={number!r} is not a whole number from 1 on")
    for name, value, known in (
        ("optimizer", asked.optimizer, _OPTIMIZERS),
        ("shard", asked.shard, _SHARDS),
    ):
        if value is not None and value not in known:
            raise ProfkitError(f"no {name} is called {value!r}. Known: {', '.join(known)}")
    if (asked.shard is None) != (asked.ranks == 1):
        raise ProfkitError('shard="zero1" (or zero2, zero3) and ranks=2 (or more) belong together: give both')
    which: object = asked.recompute
    if which is not None and not (isinstance(which, str) and which):
        raise ProfkitError(
            f'recompute={which!r} names no layers. Write "all", how many ("6"), a phase, or the file or function that calls them'
        )


def _stated_bytes(text: str | None, size: object) -> int | None:
    """What it has to fit into, as text or in bytes; None where neither is given."""
    if text is not None and size is not None:
        raise ProfkitError("the memory is given twice: give memory or memory_bytes")
    if text is not None:
        return parse_bytes(text)
    if size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 0):
        return size
    raise ProfkitError(f'memory_bytes={size!r} is no whole number of bytes. Write one, or memory="24GB"')


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


def _refuse_unknown(
    files: Sequence[str], program: MemoryProgram, asked: FitChanges, operators: BlockOperators | None
) -> None:
    """Refuse what needs operators that are not known, and layers that are not found."""
    unknown = asked.without_operators()
    if unknown and operators is None:
        raise AnalysisError(
            files[0],
            f"{' and '.join(unknown)} needs the operators that made the blocks",
            "Give the trace of the same steps too, recorded with shapes and memory: profkit.record(memory=True) writes both",
        )
    if asked.fused_loss and operators is not None and find_loss(operators) is None:
        raise AnalysisError(
            files[0],
            "no cross entropy over a large vocabulary is found",
            "It needs a vocabulary that is larger than the last layer is wide, and a product in front of the loss",
        )
    if asked.shard is not None and operators is not None and is_sharded(operators):
        raise AnalysisError(
            files[0],
            "the recorded step is one rank's of a sharded model already",
            "Record it on one GPU, or with DistributedDataParallel",
        )
    if asked.recompute is not None and not find_segments(program, asked.recompute):
        raise AnalysisError(
            files[0],
            f"no layers to recompute are found for {asked.recompute!r}",
            _LAYERS_ARE if asked.recompute == "all" or asked.recompute.isdecimal() else _NAME_LAYERS,
        )


def _largest(
    program: MemoryProgram, asked: FitChanges, operators: BlockOperators | None, limit: int | None
) -> float:
    if limit is None:
        raise ProfkitError('the largest batch needs a limit. Name it: memory="24GB", or --memory 24GB')
    if failed_request(program) is not None:
        raise ProfkitError(
            "the recording ends where memory ran out, so that the largest batch is not known. Record a smaller batch"
        )
    found = largest_batch(program, asked, operators, limit)
    if found is None:
        raise ProfkitError(
            f"not even a 64th of the recorded batch fits into {bytes_text(limit)}. Name more memory, or changes too"
        )
    return found
