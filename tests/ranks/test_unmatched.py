"""Collectives without a partner in another recording, beside matched ones."""

from dataclasses import replace

import numpy as np

from profkit.model import Collectives
from tests.ranks.jobs import COMM_STREAM, MS, Rank, job
from tests.ranks.reports import summarise


def test_time_that_is_inside_a_matched_collective_too_is_not_unmatched():
    """Each rank reduces over two groups at once, and the other members of one were not recorded."""
    result = summarise([_with_a_second_group(t) for t in job([Rank(0), Rank(1, sleep_ns=30 * MS)])])
    method = result.method.ranks
    assert method.unmatched > 0
    assert method.unmatched_exposed_ns == 0
    assert result.verdict.straggler.rank == 1


def _with_a_second_group(trace):
    operations = trace.operations
    first = np.flatnonzero(operations.stream == COMM_STREAM)
    both = np.concatenate((np.arange(len(operations)), first))
    second = np.arange(len(operations), len(both))
    doubled = operations.take(both)
    stream = doubled.stream.copy()
    stream[second] = COMM_STREAM + 1
    strings = [*trace.strings, "tp", f"dp{trace.source.rank}", "allreduce"]
    group = np.repeat([len(strings) - 3, len(strings) - 2], len(first))
    rows = np.concatenate((first, second))
    name = np.full(len(rows), len(strings) - 1)
    said = Collectives.of(len(rows), operation=rows, group=group, name=name)
    return replace(trace, operations=replace(doubled, stream=stream), strings=strings, collectives=said)


def test_what_a_straggler_costs_is_a_share_of_the_windows_of_those_that_wait_for_it():
    """Two pairs that share no group: the short steps of the second say nothing of the first."""
    slow = job([Rank(0, compute_ns=(10 * MS,)), Rank(1, sleep_ns=30 * MS)], group="tp", steps=6)
    short = job([Rank(2, compute_ns=(1 * MS,)), Rank(3, compute_ns=(1 * MS,))], group="dp", steps=6)
    for traces in (slow, [*slow, *short]):
        (told,) = [f.message for f in summarise(traces).health.findings if f.code == "straggler"]
        assert told.startswith(
            "Rank 1 is a straggler: the others wait 180 ms for it in collectives, 74 % of their"
        )


def test_a_rank_that_is_not_compared_does_not_change_who_is_late():
    pair = job([Rank(0), Rank(1, sleep_ns=30 * MS)], group="tp")
    apart = job([Rank(2, compute_ns=(2000 * MS,))], group="dp")
    for traces in (pair, [*pair, *apart]):
        assert [row.rank for row in summarise(traces).ranks if row.straggler] == [1]
