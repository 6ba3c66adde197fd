"""Programs spelled out token by token, in ns, and a step around them that needs no trace."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np

from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.step_program import LAUNCH, WAIT, Program


def launch(*operations, gap=0, own=0, fetch=0, allocate=0, ranges=0, calls=0):
    """A launch of operations, each ``(duration, stream, lead, after, early)`` of which the later may be left out."""
    return (LAUNCH, operations, gap, own, fetch, allocate, ranges, calls)


def wait(*, gap=0, own=0):
    return (WAIT, (), gap, own, 0, 0, 0, 0)


def program(*tokens, latency=0, work=0, held=(), unawaited=0):
    """A program of these tokens, with the program's own work in each gap; the one that ends the step is `launch` without operations."""
    kind, operations, *times = zip(*tokens, strict=True)
    gap, own, fetch, allocate, ranges, calls = (np.array(each, np.int64) for each in times)
    flat = [(*each, *(0, 0, 0, -1, 0)[len(each) :]) for launched in operations for each in launched]
    columns = np.array(flat or np.empty((0, 5)), np.int64).T
    return Program(
        step_ns=0,
        kind=np.array(kind, np.int8),
        gap_ns=gap,
        input_ns=fetch,
        allocation_ns=allocate,
        work_ns=np.broadcast_to(np.array(work, np.int64), gap.shape).copy(),
        profiler_ns=np.zeros(len(tokens), np.int64),
        own_ns=own,
        held=np.isin(np.arange(len(tokens)), held),
        unawaited=np.where(np.array(kind) == WAIT, unawaited, 0),
        ranges=ranges,
        calls=calls,
        call=np.append(np.arange(len(tokens) - 1), -1),
        first=np.cumsum([0, *(len(launched) for launched in operations)]),
        row=np.arange(len(flat)),
        duration_ns=columns[0],
        stream=columns[1],
        lead_ns=columns[2],
        after=columns[3],
        early_ns=columns[4],
        latency_ns=latency,
    )


def edited(made, constants=LIKELY, **columns):
    """The program as an edited step; every operation is a kernel of unknown kind unless columns say more."""
    count = len(made.row)
    known = {
        "kernels": [SimpleNamespace(is_matrix=False, function="", short_name="")] * count,
        "family": np.full(count, None, object),
        "dtype": np.full(count, "fp32", object),
        "operators": [()] * count,
        "operator_row": np.full(count, -1),
        "outer_row": np.full(count, -1),
        "flop": np.full(count, np.nan),
        "bytes": np.full(count, np.nan),
        "token": np.repeat(np.arange(made.tokens), np.diff(made.first)),
        "program": made,
        "view": None,
        "gpu": None,
        "device": 0,
        **{name: np.zeros(count, bool) for name in ("backward", "optimizer", "zeroing")},
        **columns,
    }
    known = {name: value for name, value in known.items() if name in {f.name for f in fields(StepFacts)}}
    return EditedStep(StepFacts(**known), made, constants)


def with_constants(**values):
    return replace(LIKELY, **values)
