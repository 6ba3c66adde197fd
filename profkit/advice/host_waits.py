"""Rules about what the step waits for: data, copies, the device, the allocator, debugging aids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.model import CopyKind, OperationKind, RangeKind
from profkit.model.states import State
from profkit.simulation.copies import SMALL_COPY_BYTES, pageable_copies, small_uploads
from profkit.simulation.debugging import anomaly_checks, collections_of, finished_in_call
from profkit.simulation.launching import lift_waits, scalar_reads
from profkit.simulation.preconditions import values_read_one_by_one
from profkit.simulation.step_program import LAUNCH
from profkit.timeline.idle_tables import costliest_syncs, idle_row, sync_rows
from profkit.timeline.start_up import allocates
from profkit.timeline.window_table import states_of
from profkit.units import bytes_text, duration_text, noun_text

__all__ = ["RULES"]

_WORKERS = 8
_UNEVEN = _OWN_WORK = 0.1
"""Of the window."""
_ALIKE = 1.25
"""Costs and prices within this factor are one number."""
_MANY_ALLOCATIONS = 32
"""In a step: so many are no growing segment."""
_CACHE_IS_OFF = (
    "No code calls empty_cache(): the cache is probably off. Unset PYTORCH_NO_CUDA_MEMORY_CACHING. Otherwise let segments "
    "grow, and pad sizes that change."
)
_MOST_INPUTS = 16
"""Large tensors of a batch; a step that uploads more brings weights."""


def _loader(case: Case) -> Evidence | None:
    program = case.step.program
    fetching = float(program.input_ns.sum())
    if fetching < 0.01 * case.step.plain_ns:
        return _uneven_loader(case)
    names = _range_names(case, lambda n: n.startswith("enumerate(DataLoader)#"))
    several = any("MultiProcessing" in n for n in names)
    workers = 2 if several else _WORKERS
    return Evidence(
        f"Fetching data takes the launching thread {duration_text(fetching)} per step"
        + (
            ", although workers prepare it: they are too few or too slow."
            if several
            else ", and nothing is prepared in parallel."
        ),
        [*names[:2], f"fetching: {duration_text(fetching)} per step"],
        ["loader-workers"],
        "medium" if several else "high",
        loader_workers=workers,
    )


def _uneven_loader(case: Case) -> Evidence | None:
    """Data that only some steps wait for; no price, since the priced step is the median one."""
    view, steps = case.view, case.view.kept_count
    idle, window = int(states_of(view, case.device)[State.INPUT]), view.windows[case.device].total_ns
    if steps < 2 or idle < _UNEVEN * window:
        return None
    return Evidence(
        f"The median step hardly waits for data, but others do: over all {steps} steps, the device is idle for "
        f"{duration_text(idle / steps)} per step meanwhile. Workers prepare batches too slowly to keep ahead.",
        [f"input: {duration_text(idle)} in {steps} steps"],
        None,
        "medium",
        action="Give the DataLoader more workers and a longer queue, or do less for each sample.",
    )


def _own_work(case: Case) -> Evidence | None:
    """Work of the program's own that launches nothing; no price, since only a person knows what can be moved."""
    view = case.view
    idle, window = int(states_of(view, case.device)[State.HOST_WORK]), view.windows[case.device].total_ns
    if not view.steps.count or idle < _OWN_WORK * window:
        return None
    rows = sorted(
        (row for row in idle_row(view).by_range if row.cause == "host_work"), key=lambda row: -row.ns
    )
    if not rows:
        return None
    steps = max(view.kept_count, 1)
    return Evidence(
        f"The device is idle for {duration_text(idle / steps)} per step while the host does work that launches nothing, mostly in "
        f"{rows[0].name}.",
        [f"{row.name}: {duration_text(row.ns / steps)} per step" for row in rows[:4]],
        None,
        "medium",
    )


def _syncs(case: Case) -> Evidence | None:
    facts, program = case.facts, case.step.program
    waits = np.flatnonzero(program.kind != LAUNCH)
    inner = waits[waits < program.tokens - 2]
    if not len(inner) or case.facts.once(anomaly_checks).any():
        return None
    before, after = case.step.unchanged, case.step.changed([lift_waits])[0]
    if before.step_ns - after.step_ns > case.step.blocked_ns(before.host_ns, program.tokens - 2):
        return None  # More than these waits take: what is saved is the overlap with the next step.
    host_is_limit = after.host_ns >= 0.97 * after.step_ns
    if host_is_limit and before.host_ns >= 0.8 * before.step_ns:
        return None
    table = sync_rows(case.view)
    idle = sum(r.cost_ns or 0 for r in table) / max(case.view.kept_count, 1)
    rows = [r for r in costliest_syncs(table) if r.cost_ns][:3]
    seen = [
        f"{r.api}{' in ' + r.operator if r.operator else ''}{' at ' + r.where if r.where else ''}: {r.count}x"
        for r in rows
    ]
    return Evidence(
        f"The host waits for the device {noun_text(len(inner), 'time')} per step. After that, the device is idle for {duration_text(idle)} "
        f"per step, the cost in the table of waits{_unlike(case.step.plain_ns - case.step.after_ns([lift_waits]), idle)}.",
        seen
        or kernels_seen(facts, facts.view.trace.operations.copy_kind[facts.program.row] == CopyKind.DTOH),
        ["no-sync"],
    )


def _unlike(saving_ns: float, idle_ns: float) -> str:
    """Why the price is not that cost, where they differ."""
    if saving_ns > _ALIKE * idle_ns:
        return ". Without waits, the host also runs ahead, so more is saved"
    return (
        ". Part of this time would be idle anyway, so less is saved" if saving_ns * _ALIKE < idle_ns else ""
    )


def _scalars(case: Case) -> Evidence | None:
    facts = case.facts
    rest = facts.once(scalar_reads)
    if values_read_one_by_one(case.step, ()) is not None:
        return None
    return Evidence(
        f"{int(rest.sum()) + 1} values are read from the device one by one, each with a copy and a wait. Stacked, one read "
        "fetches them all.",
        kernels_seen(facts, rest),
        ["stacked-reads"],
    )


def _pageable(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = pageable_copies(facts)
    if not chosen.any() or not case.view.steps.count or _moves_weights(case, chosen):
        return None
    size = float(facts.view.trace.operations.bytes[facts.program.row][chosen].sum())
    return Evidence(
        f"{bytes_text(size)} per step are copied from pageable memory, in {duration_text(float(facts.program.duration_ns[chosen].sum()))}. "
        "The driver stages them, so the host blocks and nothing overlaps.",
        kernels_seen(facts, chosen),
        ["pinned"],
    )


def _moves_weights(case: Case, uploads: NDArray[np.bool_]) -> bool:
    """Whether a step uploads weights, which no loader prepares: tensor by tensor, or to bring back what it offloaded."""
    operations, rows = case.view.trace.operations, case.facts.program.row
    down = (operations.copy_kind[rows] == CopyKind.DTOH) & (operations.bytes[rows] > 0)
    up_bytes, down_bytes = (float(operations.bytes[rows][each].sum()) for each in (uploads, down))
    return int(uploads.sum()) > _MOST_INPUTS or down_bytes > 0.5 * up_bytes


def _allocator(case: Case) -> Evidence | None:
    program = case.step.program
    spent = float(program.allocation_ns.sum())
    # Without marked steps, a start that allocates cannot be told from a steady step that does.
    if not case.view.steps.count or spent < 0.01 * case.step.plain_ns:
        return None
    calls, ranges, strings = case.view.trace.calls, case.view.trace.ranges, case.view.trace.strings
    launches, rows = case.view.launches, case.facts.program.row
    inside = (calls.start_ns >= launches.time_ns[rows].min()) & (
        calls.start_ns <= launches.return_ns[rows].max()
    )
    names, counts = np.unique(case.view.trace.names(calls.name[inside]), return_counts=True)
    counted = {str(n): int(c) for n, c in zip(names, counts, strict=True) if allocates(str(n))}
    frames = np.unique(ranges.name[ranges.kind == RangeKind.PYTHON])
    emptied = any("empty_cache" in strings[name] for name in frames.tolist() if name >= 0)
    many = max((c for n, c in counted.items() if "Free" not in n), default=0) >= _MANY_ALLOCATIONS
    return Evidence(
        f"After warm-up, steps still ask the driver for memory: {duration_text(spent)} per step. PyTorch's cache should serve these requests.",
        [f"{name}: {count} per step" for name, count in counted.items()][:4],
        ["no-allocation"],
        # With Python's frames in the file, the call would show.
        action=_CACHE_IS_OFF if many and len(frames) and not emptied else "",
        code="unset PYTORCH_NO_CUDA_MEMORY_CACHING" if many and len(frames) and not emptied else "",
    )


def _blocking(case: Case) -> Evidence | None:
    facts = case.facts
    kernels = facts.view.trace.operations.kind[facts.program.row] == OperationKind.KERNEL
    done = facts.once(finished_in_call)
    if not done.any():
        return None
    return Evidence(
        f"{int(done.sum())} of {int(kernels.sum())} launch calls return only after their kernel has finished, "
        "so CUDA_LAUNCH_BLOCKING=1 is set.",
        kernels_seen(facts, kernels, 2),
        ["no-launch-blocking"],
        "high",
    )


def _anomaly(case: Case) -> Evidence | None:
    chosen = case.facts.once(anomaly_checks)
    if not chosen.any():
        return None

    return Evidence(
        f"The backward pass checks its results for NaN (anomaly mode): {int(chosen.sum())} kernels and copies, each with a "
        "wait.",
        kernels_seen(case.facts, chosen),
        ["no-anomaly-mode"],
        "high",
    )


def _garbage(case: Case) -> Evidence | None:
    ranges, chosen = case.view.trace.ranges, case.facts.once(collections_of)
    # Callbacks nest inside of a collection: the longest counts once.
    spent = float((ranges.end_ns - ranges.start_ns)[chosen].max(initial=0))
    if not spent:
        return None
    return Evidence(
        f"Python collects garbage within the step, for {duration_text(spent)}.",
        [f"{int(chosen.sum())} collections per step"],
        ["garbage-collection"],
    )


def _crumbs(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.once(small_uploads)
    if not chosen.any():
        return None
    return Evidence(
        f"{int(chosen.sum())} copies per step to the device have at most {bytes_text(SMALL_COPY_BYTES)}. Each is a launch, and from "
        "pageable memory a wait.",
        kernels_seen(facts, chosen),
        ["packed-copies"],
        "low",
    )


def _range_names(case: Case, wanted: object) -> list[str]:
    since, until = case.host_span
    ranges, strings = case.view.trace.ranges, case.view.trace.strings
    inside = (ranges.end_ns >= since - (until - since)) & (ranges.start_ns < until)
    names = {strings[i] for i in np.unique(ranges.name[inside]).tolist() if i >= 0}
    return sorted(n for n in names if callable(wanted) and wanted(n))


_TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

RULES = (
    Rule(
        "loader-workers", "Prepare batches in loader workers", _loader,
        "Give the DataLoader workers that persist between epochs, and pin their batches.",
        f"DataLoader(dataset, batch_size=n, num_workers={_WORKERS}, persistent_workers=True, prefetch_factor=4, pin_memory=True)",
        "The loader's range shrinks to the time of taking a finished batch.",
        ("Workers share the host's cores with the step: too many make it slower.", "Each holds its own copy of the dataset's state."),
        "https://docs.pytorch.org/docs/stable/data.html",
        change="loader-workers",
    ),
    Rule(
        "host-work", "Overlap the host's own work with the step", _own_work,
        "Do it for the next step while the device works on this one: in a worker of the DataLoader, a thread or a process. Or do it less often.",
        "DataLoader(dataset, collate_fn=preprocess, num_workers=4)   # where it prepares inputs\nif step % 100 == 0:\n    log(...)   # where it writes results",
        "The function no longer fills idle time.",
        ("A thread that computes in Python holds the interpreter lock: use a process.",), _TUNING,
    ),
    Rule(
        "hidden-sync", "Do not wait for the device inside the step", _syncs,
        "Keep results on the device, and read them only every few hundred steps. Copy with non_blocking=True.",
        'losses.append(loss.detach())            # not: loss.item()\ntorch.cuda.set_sync_debug_mode("warn")  # names every wait',
        "The calls above no longer appear in the step.",
        ("Little to gain if the step is host-bound (measured: 0.85 to 1.7 times as fast).", "Control flow that depends on values needs these waits."), _TUNING,
        change="no-sync",
    ),
    Rule(
        "stacked-reads", "Read many values at once", _scalars,
        "Stack the values on the device, and read them with one call.",
        "values = torch.stack(values).tolist()   # not: [value.item() for value in values]",
        "One copy to the host replaces many.",
        ("A value that decides what is launched next has to be read by itself.",), _TUNING,
        change="stacked-reads",
    ),
    Rule(
        "pinned-copies", "Copy batches early, from pinned memory", _pageable,
        "Pin in the loader and copy with non_blocking=True, best on a separate stream one step ahead.",
        "DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        "Copies are named Pinned, and overlap with kernels.",
        ("Pinning within the step (x.pin_memory().to(...)) is slower than a pageable copy.", "Wait for what a side stream copies, and record it (wait_stream, record_stream)."),
        "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        change="pinned",
    ),
    Rule(
        "allocator-churn", "Stop allocating from the driver in every step", _allocator,
        "Remove torch.cuda.empty_cache() from the loop. Otherwise let segments grow, and pad sizes that change.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
        "No cudaMalloc or cudaFree after the first steps.",
        ("The first steps of a shape do allocate: record after warm-up.",),
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        change="no-allocation",
    ),
    Rule(
        "launch-blocking", "Unset CUDA_LAUNCH_BLOCKING", _blocking,
        "Set it only to find the line of an error: the host waits for every kernel.",
        "unset CUDA_LAUNCH_BLOCKING",
        "Launch calls return within microseconds.", (), "https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
        change="no-launch-blocking",
    ),
    Rule(
        "anomaly-mode", "Turn anomaly mode off", _anomaly,
        "Use it to find a NaN, then turn it off.",
        "torch.autograd.set_detect_anomaly(False)",
        "The backward pass has no isnan kernels.", (), "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",
        change="no-anomaly-mode",
    ),
    Rule(
        "garbage-collection", "Collect garbage between steps, not within", _garbage,
        "Turn automatic collection off, and collect at a time of your choice.",
        "gc.disable()\nif step % 1000 == 0:\n    gc.collect()",
        "No collection inside a step.", ("Reference cycles keep their memory until then.",), "https://docs.python.org/3/library/gc.html",
        change="garbage-collection",
    ),
    Rule(
        "small-copies", "Send small inputs in one copy", _crumbs,
        "Pack them into one pinned tensor and slice it on the device.",
        "torch.cat(parts, out=pinned)                       # pinned once, before the loop\npacked = pinned.to(device, non_blocking=True)",
        "One copy per step replaces many.", (), _TUNING,
        change="packed-copies",
    ),
)  # fmt: skip
