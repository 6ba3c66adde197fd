"""What an answer of `profkit fit` rests on, and what it leaves out."""

from __future__ import annotations

from profkit.memory.private_pools import private_pools
from profkit.model.report_fit import FitNote
from profkit.simulation.autocast_memory import under_autocast
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.fit_changes import FitChanges
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.recompute_memory import cheapest_places, find_segments

__all__ = ["about_recording"]


def about_recording(
    program: MemoryProgram, changes: FitChanges, operators: BlockOperators | None
) -> list[FitNote]:
    """Notes on a recording and on what is asked of it."""
    notes = []
    replayed = program.replayed
    if replayed.lost_frees or replayed.unmatched:
        notes.append(FitNote(code="history-incomplete"))
    if replayed.resized:
        notes.append(FitNote(code="other-allocator"))
    pools = private_pools(program.history, replayed.device)
    if pools is not None:
        notes.append(FitNote(code="private-pools", params={"bytes": pools.reserved_bytes}))
    if changes.sequence != 1 and operators is None:
        notes.append(FitNote(code="scores-unknown"))
    if changes.bf16 and operators is not None and under_autocast(program, operators):
        notes.append(FitNote(code="bf16-already"))
    if changes.recompute is not None and changes.recompute.isdecimal():
        every = find_segments(program)
        chosen = sorted(place + 1 for place in cheapest_places(program, every, int(changes.recompute)))
        layers = sum(each.step == every[-1].step for each in every)
        notes.append(
            FitNote(code="some-layers", params={"of": layers, "layers": ", ".join(map(str, chosen))})
        )
    if changes.stores_scores(program, operators):
        notes.append(FitNote(code="scores-stored"))
    timed = {"offload-roughly-timed": changes.offload_optimizer, "ranks-not-timed": changes.shard is not None}
    notes += [FitNote(code=code) for code, asked in timed.items() if asked]
    maybe = int(program.bytes[program.maybe_batched & program.before].sum())
    moved = {
        "unexplained-blocks": changes.batch != 1 or changes.sequence != 1,
        "unshared-blocks": changes.shard in ("zero2", "zero3"),
    }
    return [
        *notes,
        *(FitNote(code=code, params={"bytes": maybe}) for code, asked in moved.items() if asked and maybe),
    ]
