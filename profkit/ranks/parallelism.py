"""How the work is spread over devices: DDP, FSDP, tensor, pipeline or data parallelism, as names and collectives show."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.findings import Fact
from profkit.model.report_ranks import Parallelism
from profkit.ranks.collective_table import Described, describe_communication
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["merge_parallelism", "parallelism_of"]

_BY_NAME: Final = (
    ("DDP", re.compile(r"DistributedDataParallel\.forward")),
    ("FSDP2", re.compile(r"FSDP::\w+.*|fsdp::\w+", re.DOTALL)),
    ("FSDP", re.compile(r"FullyShardedDataParallel\.\w+")),
    ("DataParallel", re.compile(r"DataParallel\.forward")),
    ("tensor parallel", re.compile(r"RedistributeBackward")),
    ("pipeline parallel", re.compile(r"PP:\d+[A-Z]\w*")),
)
"""Ranges that torch itself opens (torch/nn/parallel, torch/distributed/fsdp and pipelining), and its operators.

A `DTensor` of activations is redistributed in the backward pass too; one of parameters (FSDP2) or norms is not.
"""

_MESSAGE: Final = re.compile(r"c10d::(?:send|recv_)")

_ANY_CASE: Final = re.IGNORECASE | re.DOTALL
_BY_GROUP: Final = (
    ("tensor parallel", re.compile(r"(?:.*[\W_])?(?:tp(?:[\W_].*)?|tensor(?:_model)?_parallel.*)", _ANY_CASE)),
    ("pipeline parallel", re.compile(r"(?:.*[\W_])?(?:pp(?:[\W_].*)?|pipeline(?:_model)?_parallel.*)", _ANY_CASE)),
    ("expert parallel", re.compile(r"(?:.*[\W_])?(?:ep(?:[\W_].*)?|expert(?:_model)?_parallel.*)", _ANY_CASE)),
    ("context parallel", re.compile(r"(?:.*[\W_])?(?:cp(?:[\W_].*)?|context_parallel.*)", _ANY_CASE)),
)  # fmt: skip
"""Whole words of a process group's description: ``mesh_tp``, ``TENSOR_MODEL_PARALLEL_GROUP``."""

_FORWARD_SHARE: Final = 0.25
"""Of the all-reduces: with this many outside the backward pass, activations are reduced, not only gradients."""

_FEWEST: Final = 2
"""Collectives a step below this are metrics or norms, and say nothing of how the model is spread."""


def parallelism_of(view: TraceView) -> list[Parallelism]:
    """The kinds of parallelism that one trace shows."""
    described = describe_communication(view)
    found = [*_named(view), *_grouped(described)]
    kinds = {row.kind for row in found}
    for row in _inferred(view, described, kinds):
        if row.kind not in kinds:
            found.append(row)
            kinds.add(row.kind)
    return found


def merge_parallelism(parts: Sequence[Sequence[Parallelism]]) -> list[Parallelism]:
    """The kinds of several traces: each once, named ones first; a guess gives way to a name for the same thing."""
    merged: dict[str, Parallelism] = {}
    for row in sorted((r for part in parts for r in part), key=lambda r: r.basis != "named"):
        merged.setdefault(row.kind, row)
    for guess, names in _GUESSES.items():
        if guess in merged and not merged.keys().isdisjoint(names):
            del merged[guess]
    return list(merged.values())


_GUESSES: Final = {
    "data parallel": {"DDP", "DataParallel", "FSDP", "FSDP2"},
    "sharded data parallel": {"FSDP", "FSDP2"},
}


def _row(kind: str, basis: Literal["named", "inferred"], code: str, **params: str | int) -> Parallelism:
    return Parallelism(kind=kind, basis=basis, sign=Fact(code, params))


def _named(view: TraceView) -> list[Parallelism]:
    strings, names = view.trace.strings, view.trace.ranges.name
    found = []
    for kind, pattern in _BY_NAME:
        rows = matching(strings, names, _fully(pattern))
        if rows.any():
            example = strings[int(names[rows][0])].split(" (")[0][:80]
            found.append(_row(kind, "named", "ranges", count=int(rows.sum()), example=example))
    return found


def _fully(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _grouped(described: Described) -> list[Parallelism]:
    groups = sorted({group for _, group, _ in described.keys if group})
    return [
        _row(kind, "named", "group", group=group[:80])
        for kind, pattern in _BY_GROUP
        for group in [g for g in groups if pattern.fullmatch(g)][:1]
    ]


def _inferred(view: TraceView, described: Described, named: set[str]) -> list[Parallelism]:
    """What the mix of collectives says; steps count for how many there are of each."""
    steps = max(view.steps.count, 1)
    collective = np.array([key[0] for key in described.keys] or [""], object)[described.kind]
    count = {name: int((collective == name).sum()) for name in set(collective.tolist())}
    many = {name for name, number in count.items() if number >= _FEWEST * steps}
    several = _devices_of_one_process(view)
    found = []
    asked = int(
        matching(
            view.trace.strings, view.trace.ranges.name, lambda text: bool(_MESSAGE.fullmatch(text))
        ).sum()
    )
    messages = max(count.get("send_recv", 0), asked)
    # Ring attention sends keys and values around too.
    if messages >= _FEWEST * steps and "context parallel" not in named:
        found.append(_row("pipeline parallel", "inferred", "messages", count=messages))
    if "all_to_all" in many:
        found.append(_row("all-to-all parallel", "inferred", "all-to-alls", count=count["all_to_all"]))
    if {"all_gather", "reduce_scatter"} <= many and named.isdisjoint({"FSDP", "FSDP2"}):
        seen = {"all_gathers": count["all_gather"], "reduce_scatters": count["reduce_scatter"]}
        found.append(_row("sharded data parallel", "inferred", "gathers-and-scatters", **seen))
    if several and many & {"broadcast", "reduce", "peer copy"} and "all_reduce" not in many:
        found.append(_row("DataParallel", "inferred", "one-process", devices=several))
    if "all_reduce" in many:
        found += _of_all_reduces(view, described.rows[collective == "all_reduce"], named)
    return found


def _of_all_reduces(view: TraceView, rows: NDArray[np.int64], named: set[str]) -> list[Parallelism]:
    linked = rows[view.launches.linked[rows]]
    if not len(linked):
        return []
    backward = _in_backward(view, linked)
    found = []
    if backward.sum() * 2 >= len(linked) and named.isdisjoint(_GUESSES["data parallel"]):
        found.append(_row("data parallel", "inferred", "backward-all-reduces", count=int(backward.sum())))
    forward = int((~backward).sum())
    sharded = not named.isdisjoint({"FSDP", "FSDP2", "DDP"})
    if (
        forward >= _FORWARD_SHARE * len(linked)
        and forward >= _FEWEST * max(view.steps.count, 1)
        and not sharded
    ):
        found.append(_row("tensor parallel", "inferred", "forward-all-reduces", count=forward))
    return found


def _in_backward(view: TraceView, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an autograd thread launched each: one that is named so, or that opens no step."""
    threads, ranges = view.trace.threads, view.trace.ranges
    named = np.array([any(n.startswith("pt_autograd") for n in t.names) for t in threads] or [False])
    if not named.any() and view.steps.rows.any():
        named = ~np.isin(np.arange(len(threads)), ranges.thread[view.steps.rows])
    backward: NDArray[np.bool_] = named[view.launches.thread[rows]]
    return backward


def _devices_of_one_process(view: TraceView) -> int:
    """The most devices that run kernels of one process, if more than one."""
    operations = view.trace.operations
    kernels = operations.kind == OperationKind.KERNEL
    most = 0
    for process in range(len(view.trace.processes)):
        mine = kernels & (operations.process == process)
        most = max(most, len(np.unique(operations.device[mine])))
    return most if most > 1 else 0
