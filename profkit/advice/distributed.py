"""Rules about several devices: exposed collectives and messages, small buckets, reductions in every micro-step, DataParallel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.simulation.collectives import exposed_ns, shrunk
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.parallel import (
    SEARCH,
    SMALL_NS,
    all_to_alls_of,
    collectives_of,
    counts_of,
    early_reductions,
    forward_passes,
    gradients_of,
    messages_of,
    of_one_rank,
    parameter_gathers,
    ranges_named,
    small_buckets,
    transfer_of,
    unused_searches,
    wide_collectives,
    wrapper_of,
)
from profkit.units import duration_text

__all__ = ["RULES"]

_EXPOSED = 0.05
"""Of the step."""
_MOSTLY_SENT = 0.8
_FEWEST_BUCKETS = 16
_NOTABLE = 0.02
"""Of the device's time."""
_FEWEST_LAYERS = 4
_NARROWED = {
    "ddp": (
        "Reduce gradients in bf16, check that buckets start early in backward and that no rank is late.",
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
    "all-to-all": (
        "Start each all-to-all as soon as its input is ready, send 16 bits, and check that no rank has more to send.",
        "work = dist.all_to_all_single(output, input, async_op=True)\n...   # what does not need it\nwork.wait()",
    ),
    "": (
        "Start each collective as soon as its input is ready, send 16 bits, and check that no rank is late.",
        "work = dist.all_reduce(tensor, async_op=True)\n...                                           # what does not need it\nwork.wait()",
    ),
}
"""What to do and to write, by what takes the time: all-to-alls, else what shares the model among the ranks."""
_ONE_RANK = " One rank alone does not tell transfer from waiting, so this has no price: analyse the files of all ranks together."
_ALL_TO_ALL = r"(?is).*all.?to.?all.*"


def _exposed(case: Case) -> Evidence | None:
    facts, chosen = case.facts, case.facts.once(collectives_of)
    alone = float(exposed_ns(facts, chosen).sum())
    if alone < _EXPOSED * case.step.plain_ns:
        return None
    exchanged = float(exposed_ns(facts, facts.once(all_to_alls_of)).sum())
    action, code = _NARROWED["all-to-all" if exchanged > 0.5 * alone else facts.once(wrapper_of)]
    told = f"Collectives run alone for {duration_text(alone)} of the step, while nothing computes."
    if case.facts.once(of_one_rank):
        if not _could_save(case, chosen):
            return None
        return Evidence(told + _ONE_RANK, kernels_seen(facts, chosen), None, "low", action, code)
    late = _waiting_within(facts, chosen, "collectives")
    changes = ["bf16-collectives"] if facts.once(wide_collectives).any() else None
    return Evidence(told + late, kernels_seen(facts, chosen), changes, "low", action, code)


def _could_save(case: Case, chosen: NDArray[np.bool_]) -> bool:
    """Whether the step would be shorter without what of some collectives is exposed: not where the host is the limit."""
    alone = shrunk(chosen, exposed_ns(case.facts, chosen))
    return case.step.predict_where_worth([alone], _EXPOSED) is not None


def _waiting_within(facts: StepFacts, chosen: NDArray[np.bool_], where: str) -> str:
    """A sentence on what is not transfer, if that is much."""
    whole, sent = float(facts.program.duration_ns[chosen].sum()), float(facts.once(transfer_of)[chosen].sum())
    if sent >= _MOSTLY_SENT * whole:
        return ""
    return f" Of {duration_text(whole)} in {where} {duration_text(whole - sent)} is waiting for a rank that arrives later."


def _bubble(case: Case) -> Evidence | None:
    facts, chosen = case.facts, case.facts.once(messages_of)
    alone = float(exposed_ns(facts, chosen).sum())
    # Sends and receives of all to all ranks have the kernel of those between two stages.
    if alone < _EXPOSED * case.step.plain_ns or ranges_named(facts, _ALL_TO_ALL).any():
        return None
    late = "" if facts.once(of_one_rank) else _waiting_within(facts, chosen, "them")
    return Evidence(
        f"Sends and receives run alone for {duration_text(alone)} of the step. This is the pipeline's bubble, or a stage "
        f"with more work than the others.{late}",
        kernels_seen(facts, chosen),
        None,
        "low",
    )


def _prefetch(case: Case) -> Evidence | None:
    facts = case.facts
    gathers = facts.once(parameter_gathers)
    alone = float(exposed_ns(facts, gathers).sum())
    if gathers.sum() < _FEWEST_LAYERS or alone < _EXPOSED * case.step.plain_ns:
        return None
    if not _could_save(case, gathers):
        return None
    return Evidence(
        f"{int(gathers.sum())} all-gathers of sharded parameters per step run alone for {duration_text(alone)}: layers wait "
        "for their parameters.",
        kernels_seen(facts, gathers),
        None if facts.once(of_one_rank) else ["prefetched-parameters"],
        "low",
    )


def _unused(case: Case) -> Evidence | None:
    facts, ranges = case.facts, case.view.trace.ranges
    searches, counts = facts.once(unused_searches), facts.once(counts_of)
    if not searches.any():
        return None
    spent = float((ranges.end_ns - ranges.start_ns)[searches].sum())
    return Evidence(
        f"DistributedDataParallel searches the graph for unused parameters in each step ({duration_text(spent)} on the host) "
        "and reduces the result, although every parameter gets a gradient.",
        [
            f"{SEARCH}: {int(searches.sum())} per step, {duration_text(spent)}",
            *kernels_seen(case.facts, counts, 2),
        ],
        ["no-unused-search"],
        "medium" if gradients_of(facts, ranges_named(facts, SEARCH)) else "low",
    )


def _buckets(case: Case) -> Evidence | None:
    facts = case.facts
    small = facts.once(small_buckets)
    if small.sum() < _FEWEST_BUCKETS or facts.share(facts.once(collectives_of)) < _NOTABLE:
        return None
    told = (
        f"{int(small.sum())} collectives per step are shorter than {duration_text(SMALL_NS)}, so latency limits them, "
        "not bandwidth."
    )
    if case.facts.once(of_one_rank):
        return Evidence(told + _ONE_RANK, kernels_seen(facts, small), None, "low")
    return Evidence(told, kernels_seen(facts, small), ["larger-buckets"], "low")


def _accumulation(case: Case) -> Evidence | None:
    facts = case.facts
    early, passes = facts.once(early_reductions), len(facts.once(forward_passes))
    if not early.any():
        return None
    return Evidence(
        f"The step has {passes} forward passes, and each reduces the gradients, although only the last one needs to.",
        kernels_seen(facts, early),
        ["last-reduction"],
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
        change="bf16-collectives",
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
        change="prefetched-parameters",
    ),
    Rule(
        "ddp-unused-parameters", "Turn find_unused_parameters off", _unused,
        "Every parameter is used, so leave the option at its default. If some are unused, but always the same ones, use static_graph=True.",
        "DistributedDataParallel(model, device_ids=[rank])   # find_unused_parameters=False",
        "The step has no search_unused_parameters range, and one collective fewer.",
        ("If a parameter gets no gradient in a step, DistributedDataParallel raises an error.",), _DDP,
        change="no-unused-search",
    ),
    Rule(
        "ddp-buckets", "Use larger gradient buckets", _buckets,
        "Raise bucket_cap_mb, and let gradients be views of their buckets.",
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
        "There are fewer, longer collectives.", ("A single bucket cannot overlap with the backward pass.",), _DDP,
        change="larger-buckets",
    ),
    Rule(
        "ddp-no-sync", "Reduce gradients only in the last micro-step", _accumulation,
        "Wrap the earlier micro-steps in no_sync().",
        "with model.no_sync():\n    loss(micro_batch).backward()",
        "Only the last backward pass of a step has collectives.", (), "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        change="last-reduction",
    ),
    Rule(
        "data-parallel", "Use DistributedDataParallel instead of DataParallel", _data_parallel,
        "Start one process for each device, so that the model is not copied in every step.",
        "torchrun --nproc-per-node=2 train.py   # and: model = DistributedDataParallel(model, device_ids=[rank])",
        "The forward pass does not broadcast parameters.", (), "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
    ),
)  # fmt: skip
