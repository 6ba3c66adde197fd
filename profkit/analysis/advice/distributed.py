"""Rules about several devices: exposed collectives, small buckets, reductions in every micro-step, DataParallel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.analysis.states import State
from profkit.analysis.tables.window import states_of
from profkit.analysis.whatif.draft import Draft
from profkit.analysis.work.families import Family
from profkit.units import duration_text, percent_text

__all__ = ["RULES"]

_SMALL_NS = 60_000
_FEWEST_BUCKETS = 16


def _exposed_share(case: Case) -> float:
    states = states_of(case.view, case.device)
    return float(states[State.COMMUNICATION]) / max(float(states.sum()), 1.0)


def _collectives(case: Case) -> NDArray[np.bool_]:
    return case.facts.of_family(Family.COMMUNICATION)


def _exposed(case: Case) -> Evidence | None:
    chosen = _collectives(case)
    share = _exposed_share(case)
    if not chosen.any() or share < 0.05:
        return None
    wide = chosen & np.isin(case.facts.dtype.astype(str), ("fp32", ""))

    def halved(draft: Draft) -> None:
        draft.retime(wide, draft.duration_ns * 0.5)

    return Evidence(
        f"Collectives run alone for {percent_text(share)} of the window: nothing computes meanwhile.",
        kernels_seen(case.facts, chosen),
        [halved] if wide.any() else None,
        "low",
    )


def _buckets(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = _collectives(case)
    small = chosen & (facts.program.duration_ns < _SMALL_NS)
    if small.sum() < _FEWEST_BUCKETS or facts.share(chosen) < 0.02:
        return None
    rest = small & (np.cumsum(small) % 8 != 1)

    def merged(draft: Draft) -> None:
        draft.drop(rest)

    return Evidence(
        f"{int(small.sum())} collectives a step are shorter than {duration_text(_SMALL_NS)}: latency, not bandwidth.",
        kernels_seen(facts, small),
        [merged],
        "low",
    )


def _accumulation(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = np.flatnonzero(_collectives(case) & facts.backward)
    names = facts.view.trace.ranges
    since, until = (
        facts.view.launches.time_ns[facts.program.row].min(),
        facts.view.launches.return_ns[facts.program.row].max(),
    )
    forward = np.array([s == "DistributedDataParallel.forward" for s in facts.view.trace.strings] or [False])[
        names.name
    ]
    passes = int((forward & (names.start_ns >= since) & (names.start_ns < until)).sum())
    if passes < 2 or len(chosen) < passes:
        return None
    early = np.zeros(facts.count, bool)
    early[chosen[: len(chosen) * (passes - 1) // passes]] = True
    return Evidence(
        f"The step has {passes} forward passes, and gradients are reduced in each: only the last one needs it.",
        kernels_seen(facts, early),
        [lambda draft: draft.drop(early)],
    )


def _data_parallel(case: Case) -> Evidence | None:
    view = case.view
    if len(view.trace.devices) < 2 or len(view.trace.processes) > 1:
        return None
    named = [
        s
        for s in view.trace.strings
        if s
        in (
            "DataParallel.forward",
            "Broadcast",
            "BroadcastBackward",
            "Scatter",
            "Gather",
            "GatherBackward",
            "ReduceAddCoalesced",
        )
    ]
    copies = [
        s
        for s in view.trace.strings
        if s.startswith(
            ("ncclDevKernel_Broadcast", "ncclKernel_Broadcast", "ncclDevKernel_Reduce_", "ncclKernel_Reduce_")
        )
    ]
    if not named or not copies:
        return None
    return Evidence(
        "One process drives several devices: the model is copied to each in every step, and Python launches for all.",
        [*named[:2], *copies[:2]],
        None,
    )


_DDP = "https://docs.pytorch.org/docs/stable/notes/ddp.html"

RULES = (
    Rule(
        "exposed-communication", "Hide or shrink the collectives", _exposed,
        "Reduce gradients in bf16, check that buckets start early in backward, and that no rank is late.",
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\nmodel.register_comm_hook(None, bf16_compress_hook)",
        "Collectives overlap the backward pass.",
        ("A rank that arrives late makes all others wait in the collective: balance the work first.",), _DDP,
    ),
    Rule(
        "ddp-buckets", "Use larger gradient buckets", _buckets,
        "Raise bucket_cap_mb, and let gradients be views of their buckets.",
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
        "Fewer, longer collectives.", ("A single bucket cannot overlap anything.",), _DDP,
    ),
    Rule(
        "ddp-no-sync", "Reduce gradients only in the last micro-step", _accumulation,
        "Wrap the earlier ones in no_sync().",
        "with model.no_sync():\n    loss(micro_batch).backward()",
        "Collectives only in the last backward of a step.", (), "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    Rule(
        "data-parallel", "Use DistributedDataParallel instead of DataParallel", _data_parallel,
        "One process for each device; the model is not copied in every step.",
        "torchrun --nproc-per-node=2 train.py   # and: model = DistributedDataParallel(model, device_ids=[rank])",
        "No broadcast of parameters in forward.", (), "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
    ),
)  # fmt: skip
