"""What the comparison of ranks says: stragglers, waiting, and how the work is spread over devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.findings import Fact
from profkit.model.report_ranks import Parallelism, Straggler
from profkit.model.report_verdict import Verdict
from profkit.rendering.sentences.wording import Params, Table, say
from profkit.units import duration_text, percent_text

__all__ = ["FINDINGS", "SIGNS", "parallelism_evidence", "straggler_caveats", "straggler_sentence"]

_FEW_RANKS: Final = 8
_PERHAPS_PROFILER: Final = (
    "A profiler does not slow all hosts alike: check whether the late rank is late without one too."
)
_MORE_TIME: Final = {
    "compute": "in compute-bound kernels",
    "memory": "in memory-bound kernels",
    "launch": "waiting for launches",
    "unclassified": "in GPU work of unknown bound",
    "transfer": "in host copies",
    "input": "waiting for data",
    "sync": "idle after host synchronisation",
    "host_work": "idle during host work",
    "other": "idle for other reasons",
}
_WHERE: Final = {"collective": "collectives", "message": "sends and receives"}

SIGNS: Final[Table] = {
    "ranges": "{count:range} like {example}",
    "group": "process group {group}",
    "messages": "{count:send or receive|sends and receives}",
    "all-to-alls": "{count:all-to-all}",
    "gathers-and-scatters": "{all_gathers:all-gather} and {reduce_scatters:reduce-scatter}",
    "one-process": "one process feeds {devices:GPU}",
    "backward-all-reduces": "{count:all-reduce} in the backward pass",
    "forward-all-reduces": "{count:all-reduce} outside the backward pass",
}
"""What shows how work is spread over devices, by code."""


def straggler_sentence(verdict: Verdict) -> str | None:
    """The verdict's sentence where waiting for a rank leads it (``straggler.leads``); else None."""
    late = verdict.straggler
    if late is None or not late.leads:
        return None
    where = _WHERE[late.waits_in]
    if verdict.bound == "communication":
        time = percent_text(late.share)
        lead = (
            f"{_culprit(late)} delays the step, not the network: GPUs wait for late ranks {time} of the time"
        )
    else:
        time = percent_text(late.caused_share)
        lead = f"{_culprit(late)} delays the step: the other ranks wait in {where} {time} of their time"
    return f"{lead}. {_why_late(late)}."


def straggler_caveats(verdict: Verdict) -> list[str]:
    """What is said of a straggler beside the verdict's sentence."""
    late = verdict.straggler
    if late is None:
        return []
    said = [_PERHAPS_PROFILER] if late.bound == "launch" and not verdict.doubts else []
    if not late.leads:
        share = percent_text(late.exposed_share)
        said.append(
            f"{share} of the exposed communication is waiting for late ranks, not transfer. {_why_late(late)}."
        )
    return said


def _culprit(late: Straggler) -> str:
    if late.before_recording:
        return "The start of the recordings"
    return "Waiting between ranks" if late.rank is None else f"Rank {late.rank}"


def _why_late(late: Straggler) -> str:
    if late.before_recording:
        return "Most of it is for ranks whose recording had not begun"
    if late.rank is None:
        return _in_turn(late)
    enters = f"Rank {late.rank} enters {duration_text(late.late_ns)} after the first on average"
    if late.bound is None:
        return f"{enters}, which its own time in these steps does not explain"
    return f"{enters}. Per step, it spends {duration_text(late.extra_ns)} more {_MORE_TIME[late.bound]} than the others"


def _in_turn(late: Straggler) -> str:
    if late.waits_in == "message":
        return "No single rank is the straggler: ranks wait in turn, as pipeline stages do (its bubble)"
    most = "" if late.mostly_for is None else f", mostly for rank {late.mostly_for}, but not steadily"
    return f"No single rank is the straggler: ranks wait for each other in turn{most}"


def parallelism_evidence(row: Parallelism) -> str:
    """What shows that work is spread so; empty where the row has no sign."""
    return "" if row.sign is None else _sign_text(row.sign)


def _sign_text(sign: Fact) -> str:
    return say(SIGNS[sign.code], sign.params)


def _parallelism(params: Params) -> str:
    sign = _sign_text(Fact(str(params["sign"]), params))
    return say(f"Parallelism: {{kind}} ({sign}).", params)


def _ranks_text(params: Params) -> str:
    """``Rank 3`` or ``Ranks 1, 4 and 7 more``."""
    ranks = params["ranks"]
    assert isinstance(ranks, Sequence)
    more = f" and {len(ranks) - _FEW_RANKS} more" if len(ranks) > _FEW_RANKS else ""
    named = ", ".join(str(rank) for rank in ranks[:_FEW_RANKS]) + more
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {named}"


_NOT_COMPARED: Final[Table] = {
    "one-rank": "All recordings name the same rank, so ranks are not compared.",
    "no-common-collective": "The recordings share no collective, so nothing is compared across their clocks.",
    "few-collectives": lambda params: (
        f"{_ranks_text(params)}: not compared, since too few collectives are shared with the others."
    ),
}


def _not_compared(params: Params) -> str:
    return say(_NOT_COMPARED[str(params["reason"])], params)


def _repeated(params: Params) -> str:
    return f"{_ranks_text(params)}: several recordings each, of which only the first is compared."


def _uneven(params: Params) -> str:
    fewest, most = params["fewest_steps"], params["fewer_steps"]
    steps = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return say(
        f"{_ranks_text(params)} recorded only {steps} steps, others {{most_steps}}. Ranks are compared in common steps, "
        "so a straggler in the rest is missed. Record the same steps on all ranks.",
        params,
    )


def _small_buckets(params: Params) -> str:
    each = "half of them up to {half_bytes}" if params["half_bytes"] is not None else "{each_ns} each"
    return say(
        f"{{per_step:all-reduce}} per step, {each}: each pays for the start of a collective. "
        "Make the buckets larger (bucket_cap_mb of DDP, 25 by default).",
        params,
    )


def _stream(params: Params) -> str:
    return "the default stream" if params["default_stream"] else "one stream"


def _pageable(params: Params) -> str:
    return " {pageable} of them use pageable memory and block the host." if params["pageable"] else ""


def _devices(params: Params) -> str:
    """Times of several devices are sums: without their number, they seem too long for the window."""
    devices = params.get("devices", 1)
    return f" on {devices} devices" if devices != 1 else ""


def _copies_on_compute_stream(params: Params) -> str:
    return say(
        f"Up to {{total_ns}}{_devices(params)} ({{share}} of the window) of host copies could run beside kernels, but are on "
        f"{_stream(params)}, "
        "which also computes. Give them a stream of their own and pinned memory." + _pageable(params),
        params,
    )


def _collectives_on_compute_stream(params: Params) -> str:
    return say(
        f"{{total_ns}}{_devices(params)} ({{share}} of the window) of collectives run alone on {_stream(params)}. "
        "It also computes, so they cannot overlap with kernels.",
        params,
    )


def _copies_run_alone(params: Params) -> str:
    return say(
        f"Up to {{total_ns}}{_devices(params)} ({{share}} of the window) of host copies could run beside kernels. They have "
        "a stream of their own, but run alone. "
        "Start them earlier (a batch ahead), and wait for them as late as possible." + _pageable(params),
        params,
    )


def _streams_take_turns(params: Params) -> str:
    text = f"Kernels on two streams rarely overlap: at most {{total_ns}}{_devices(params)} ({{share}} of the window) could."
    if params["default_stream"]:
        text += (
            " One of them is the default stream, which synchronises with all streams "
            "that were made without cudaStreamNonBlocking. PyTorch makes its streams with it."
        )
    return say(text, params)


FINDINGS: Final[Table] = {
    "parallelism": _parallelism,
    "ranks-missing": "{recorded} of {world_size} ranks are in the report, so waiting for the others counts as transfer.",
    "ranks-not-compared": _not_compared,
    "ranks-repeated": _repeated,
    "straggler": "Rank {rank} is a straggler: the others wait {waiting_ns} for it in {where}, {share} of their window.",
    "collectives-unmatched": "{count:collective} without a partner in another recording: {exposed_ns} in them may be "
    "waiting or transfer. That recording may have fewer steps, or lack the group.",
    "waits-in-messages": "{count:rank} wait {share} of their window for each other in sends and receives. In a pipeline "
    "this is the bubble: use more micro-batches, an interleaved schedule or more even stages.",
    "recordings-apart": "{waiting_ns} ({share} of the ranks' windows) is waiting for ranks whose recording had not begun: "
    "profiler start-up, not your job. Start all profilers behind a barrier, or record more steps.",
    "recordings-uneven": _uneven,
    "small-buckets": _small_buckets,
    "copies-on-compute-stream": _copies_on_compute_stream,
    "collectives-on-compute-stream": _collectives_on_compute_stream,
    "copies-run-alone": _copies_run_alone,
    "copies-without-wait": "No stream waits for the copies of stream {stream} ({total_ns}), and they wait for none, while "
    "kernels run beside them. If kernels use the same tensors, they race: call wait_stream before the use, and record_stream.",
    "streams-take-turns": _streams_take_turns,
}
"""The sentence of each finding by its code."""
