"""Rules about several devices: exposed collectives and messages, small buckets, reductions in every micro-step, DataParallel."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.model.kernel_class import Family
from profkit.ranks.collective_table import describe_communication
from profkit.simulation.collectives import asked_earlier, exposed_ns, shrunk, transfer_ns
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.launching import without_ranges
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView
from profkit.units import duration_text

__all__ = ["RULES"]

_EXPOSED = 0.05
"""Of the step."""
_MOSTLY_SENT = 0.8
_SMALL_NS = 60_000
_FEWEST_BUCKETS = 16
_MERGED = 8
_FEWEST_LAYERS = 4
_WRAPPERS = {
    "fsdp2": r"FSDP::.*|fsdp::.*",
    "fsdp": r"FullyShardedDataParallel\..*",
    "ddp": r"DistributedDataParallel\..*|torch\.distributed\.ddp\.reducer::.*",
}
_NARROWED = {
    "ddp": (
        "Reduce gradients in bf16, check that buckets start early in backward, and that no rank is late.",
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n"
        "model.register_comm_hook(None, bf16_compress_hook)",
    ),
    "fsdp": (
        "Gather parameters and reduce gradients in bf16, and check that no rank is late.",
        "FullyShardedDataParallel(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))",
    ),
    "fsdp2": (
        "Gather parameters and reduce gradients in bf16, and check that no rank is late.",
        "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)\n"
        "fully_shard(layer, mp_policy=policy)",
    ),
    "": (
        "Start each collective as soon as its input is ready, send 16 bits, and check that no rank is late.",
        "work = dist.all_reduce(tensor, async_op=True)\n...                                           # what does not need it\nwork.wait()",
    ),
}
"""What to do and to write, by what shares the model among the ranks."""
_ONE_RANK = " One rank alone does not tell transfer from waiting, so this has no price: analyse the files of all ranks together."
_ALL_TO_ALL = r"(?is).*all.?to.?all.*"
_SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
_WHOLE = re.compile(r"nccl\w{0,64}_[iu](?:32|64)(?:_|\b)")
_ACCUMULATED = "torch::autograd::AccumulateGrad"


def _collectives(case: Case) -> NDArray[np.bool_]:
    """Operations of the step in which all ranks of a group take part."""
    return case.facts.of_family(Family.COMMUNICATION) & ~_messages(case)


def _messages(case: Case) -> NDArray[np.bool_]:
    """Sends and receives between two ranks, as the stages of a pipeline have."""
    described = describe_communication(case.view)
    message = np.array([key[0] == "send_recv" for key in described.keys] or [False])[described.kind]
    found: NDArray[np.bool_] = np.isin(case.facts.program.row, described.rows[message])
    return found


def _exposed(case: Case) -> Evidence | None:
    facts, chosen = case.facts, _collectives(case)
    alone = float(exposed_ns(facts, chosen).sum())
    if alone < _EXPOSED * case.step.plain_ns:
        return None
    wide = chosen & np.isin(facts.dtype.astype(str), ("fp32", ""))
    action, code = _NARROWED[_wrapper(case)]
    told = f"Collectives run alone for {duration_text(alone)} of the step, while nothing computes."
    if _one_rank(case):
        if not _could_save(case, chosen):
            return None
        return Evidence(told + _ONE_RANK, kernels_seen(facts, chosen), None, "low", action, code)
    transfer = transfer_ns(case.views or [case.view], case.view, facts.program)
    late = _waiting_within(facts, chosen, transfer, "collectives")
    changes = [shrunk(wide, 0.5 * transfer)] if wide.any() else None
    return Evidence(told + late, kernels_seen(facts, chosen), changes, "low", action, code)


def _one_rank(case: Case) -> bool:
    """Whether collectives of only one rank were recorded: what of them is waiting for another rank is unknown."""
    views = case.views or [case.view]
    ranks = sum(
        len(np.unique(view.trace.operations.device[describe_communication(view).rows])) for view in views
    )
    return ranks < 2


def _could_save(case: Case, chosen: NDArray[np.bool_]) -> bool:
    """Whether the step would be shorter without what of some collectives is exposed: not where the host is the limit."""
    alone = shrunk(chosen, exposed_ns(case.facts, chosen))
    return case.step.predict_where_worth([alone], _EXPOSED) is not None


def _wrapper(case: Case) -> str:
    """What shares the model among the ranks, by its ranges, else by its collectives: ``ddp``, ``fsdp``, ``fsdp2`` or ""."""
    for wrapper, ranges in _WRAPPERS.items():
        if _names(case, ranges).any():
            return wrapper
    return (
        "fsdp2"
        if _kernel_named(case, "reducescatter").any() and _kernel_named(case, "allgather").any()
        else ""
    )


def _waiting_within(
    facts: StepFacts, chosen: NDArray[np.bool_], transfer: NDArray[np.float64], where: str
) -> str:
    """A sentence on what is not transfer, if that is much."""
    whole, sent = float(facts.program.duration_ns[chosen].sum()), float(transfer[chosen].sum())
    if sent >= _MOSTLY_SENT * whole:
        return ""
    return f" Of {duration_text(whole)} in {where} {duration_text(whole - sent)} is waiting for a rank that arrives later."


def _bubble(case: Case) -> Evidence | None:
    facts, chosen = case.facts, _messages(case)
    alone = float(exposed_ns(facts, chosen).sum())
    # Sends and receives of all to all ranks have the kernel of those between two stages.
    if alone < _EXPOSED * case.step.plain_ns or _names(case, _ALL_TO_ALL).any():
        return None
    late = (
        ""
        if _one_rank(case)
        else _waiting_within(
            facts, chosen, transfer_ns(case.views or [case.view], case.view, facts.program), "them"
        )
    )
    return Evidence(
        f"Sends and receives run alone for {duration_text(alone)} of the step. This is the pipeline's bubble, or a stage "
        f"with more work than the others.{late}",
        kernels_seen(facts, chosen),
        None,
        "low",
    )


def _prefetch(case: Case) -> Evidence | None:
    facts = case.facts
    gathers = _collectives(case) & _kernel_named(case, "allgather")
    sharded = _kernel_named(case, "reducescatter").any() or _wrapper(case).startswith("fsdp")
    alone = float(exposed_ns(facts, gathers).sum())
    if gathers.sum() < _FEWEST_LAYERS or not sharded or alone < _EXPOSED * case.step.plain_ns:
        return None
    if not _could_save(case, gathers):
        return None
    return Evidence(
        f"{int(gathers.sum())} all-gathers of sharded parameters a step run alone for {duration_text(alone)}: layers wait "
        "for their parameters.",
        kernels_seen(facts, gathers),
        None
        if _one_rank(case)
        else [asked_earlier(gathers, transfer_ns(case.views or [case.view], case.view, facts.program))],
        "low",
    )


def _unused(case: Case) -> Evidence | None:
    view, (since, until) = case.view, case.host_span
    ranges = view.trace.ranges
    searches = _names(case, _SEARCH)
    inside = searches & (ranges.start_ns >= since) & (ranges.start_ns < until)
    if not inside.any():
        return None
    counts = _collectives(case) & _of_whole_numbers(case)
    # The flags that are reduced are one a parameter: with fewer gradients, some parameters are unused.
    flags, gradients = _flags(view), _names(case, _ACCUMULATED).sum() / max(searches.sum(), 1)
    if 0 < gradients < flags:
        return None
    spent = float((ranges.end_ns - ranges.start_ns)[inside].sum())

    def change(edited: EditedStep) -> None:
        without_ranges(searches)(edited)
        edited.drop(counts)

    return Evidence(
        f"DistributedDataParallel searches the graph for unused parameters in each step ({duration_text(spent)} on the host) "
        "and reduces the result, although every parameter gets a gradient.",
        [
            f"{_SEARCH}: {int(inside.sum())} a step, {duration_text(spent)}",
            *kernels_seen(case.facts, counts, 2),
        ],
        [change],
        "medium" if gradients else "low",
    )


def _names(case: Case, wanted: str) -> NDArray[np.bool_]:
    """Ranges whose name matches, whole."""
    pattern = re.compile(wanted)
    return matching(
        case.view.trace.strings, case.view.trace.ranges.name, lambda name: pattern.fullmatch(name) is not None
    )


def _kernel_named(case: Case, word: str) -> NDArray[np.bool_]:
    names = case.view.trace.names(case.view.trace.operations.name[case.facts.program.row])
    return np.array([word in n.lower().replace("_", "") for n in names], bool)


def _of_whole_numbers(case: Case) -> NDArray[np.bool_]:
    """Operations of the step that are collectives of whole numbers, by what the file says or by the kernel's name."""
    trace, rows = case.view.trace, case.facts.program.row
    said = trace.collectives.operation[_whole_numbers(case.view)]
    names = trace.names(trace.operations.name[rows])
    found: NDArray[np.bool_] = np.isin(rows, said) | np.array([bool(_WHOLE.search(n)) for n in names], bool)
    return found


def _whole_numbers(view: TraceView) -> NDArray[np.bool_]:
    names = ("int", "int32", "long", "int64")
    return matching(view.trace.strings, view.trace.collectives.dtype, lambda name: name.lower() in names)


def _flags(view: TraceView) -> int:
    """Elements of the largest collective of whole numbers; 0 is unknown."""
    return int(view.trace.collectives.in_elements[_whole_numbers(view)].max(initial=0))


def _buckets(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = _collectives(case)
    small = chosen & (facts.program.duration_ns < _SMALL_NS)
    if small.sum() < _FEWEST_BUCKETS or facts.share(chosen) < 0.02 or not _reduces_gradients(case, small):
        return None
    told = (
        f"{int(small.sum())} collectives a step are shorter than {duration_text(_SMALL_NS)}, so latency limits them, "
        "not bandwidth."
    )
    if _one_rank(case):
        return Evidence(told + _ONE_RANK, kernels_seen(facts, small), None, "low")
    first = small & (np.cumsum(small) % _MERGED == 1)
    transfer = transfer_ns(case.views or [case.view], case.view, facts.program)
    # The shortest has the least to send: what longer ones take beyond it is bandwidth, and stays.
    sent = np.where(small, transfer - transfer[small].min(), 0.0)
    bucket = np.where(small, np.cumsum(first), 0)
    kept = np.bincount(bucket, sent)[bucket] - sent

    def merged(edited: EditedStep) -> None:
        edited.drop(small & ~first)
        edited.duration_ns = np.where(first, edited.duration_ns + kept, edited.duration_ns)

    return Evidence(told, kernels_seen(facts, small), [merged], "low")


def _reduces_gradients(case: Case, chosen: NDArray[np.bool_]) -> bool:
    """Whether collectives may be those of DistributedDataParallel: no other wrapper, and mostly in the backward pass."""
    wrapper = _wrapper(case)
    if wrapper:
        return wrapper == "ddp"
    return not case.facts.trains or bool(2 * (chosen & case.facts.backward).sum() >= chosen.sum())


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
    begun = np.sort(names.start_ns[forward & (names.start_ns >= since) & (names.start_ns < until)])
    passes = len(begun)
    if passes < 2 or len(chosen) < passes or not _alternating(case, begun):
        return None
    early = np.zeros(facts.count, bool)
    early[chosen[: len(chosen) * (passes - 1) // passes]] = True
    return Evidence(
        f"The step has {passes} forward passes, and each reduces the gradients, although only the last one needs to.",
        kernels_seen(facts, early),
        [lambda edited: edited.drop(early)],
    )


def _alternating(case: Case, forward_ns: NDArray[np.int64]) -> bool:
    """Whether a backward pass follows each forward pass: two that follow each other are of two models."""
    facts = case.facts
    launched = facts.view.launches.time_ns[facts.program.row][facts.backward]
    return bool((np.diff(np.searchsorted(np.sort(launched), forward_ns)) > 0).all())


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
        "One process drives several devices: every step copies the model to each, and one Python thread launches for all.",
        [*named[:2], *copies[:2]],
        None,
    )


_DDP = "https://docs.pytorch.org/docs/stable/notes/ddp.html"

RULES = (
    Rule(
        "exposed-communication", "Hide or shrink the collectives", _exposed, *_NARROWED["ddp"],
        "Collectives overlap the backward pass.",
        ("A straggler makes all others wait in the collective: balance the work first.",), _DDP,
    ),
    Rule(
        "pipeline-bubble", "Shorten the pipeline's bubble", _bubble,
        "Split the batch into more micro-batches, interleave stages, and give all stages the same work.",
        "from torch.distributed.pipelining import ScheduleInterleaved1F1B\nschedule = ScheduleInterleaved1F1B(stages, n_microbatches=16, loss_fn=loss)",
        "Stages wait less in sends and receives: compare the ranks' waiting.",
        ("Micro-batches that are too small fill no GPU.", "A single slow stage (see the stragglers) delays all: balance the stages first."),
        "https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
    ),
    Rule(
        "fsdp-prefetch", "Prefetch the parameters of each layer", _prefetch,
        "With FSDP2, name the modules to prefetch. With FSDP, use forward_prefetch=True and BackwardPrefetch.BACKWARD_PRE. Where memory allows, "
        "keep parameters between forward and backward.",
        "for layer, following in itertools.pairwise(model.layers):\n    layer.set_modules_to_forward_prefetch([following])\n    following.set_modules_to_backward_prefetch([layer])",
        "All-gathers overlap with kernels of the previous layer.",
        ("One more layer's parameters are held at a time.", "Where a gather takes longer than a layer computes, it stays exposed: use larger batches or fewer shards.",
         "A host-bound step prefetches too late."),
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    Rule(
        "ddp-unused-parameters", "Turn find_unused_parameters off", _unused,
        "Every parameter is used, so leave the option at its default. If some are unused, but always the same ones, use static_graph=True.",
        "DistributedDataParallel(model, device_ids=[rank])   # find_unused_parameters=False",
        "The step has no search_unused_parameters range, and one collective less.",
        ("If a parameter gets no gradient in a step, DistributedDataParallel raises an error.",), _DDP,
    ),
    Rule(
        "ddp-buckets", "Use larger gradient buckets", _buckets,
        "Raise bucket_cap_mb, and let gradients be views of their buckets.",
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
        "There are fewer, longer collectives.", ("A single bucket cannot overlap with the backward pass.",), _DDP,
    ),
    Rule(
        "ddp-no-sync", "Reduce gradients only in the last micro-step", _accumulation,
        "Wrap the earlier micro-steps in no_sync().",
        "with model.no_sync():\n    loss(micro_batch).backward()",
        "Only the last backward pass of a step has collectives.", (), "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    Rule(
        "data-parallel", "Use DistributedDataParallel instead of DataParallel", _data_parallel,
        "Start one process for each device, so that the model is not copied in every step.",
        "torchrun --nproc-per-node=2 train.py   # and: model = DistributedDataParallel(model, device_ids=[rank])",
        "The forward pass does not broadcast parameters.", (), "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
    ),
)  # fmt: skip
