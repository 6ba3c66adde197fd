"""Ranks brought together: clocks, lateness, waiting, stragglers."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.model import Device, Process
from profkit.model.report_ranks import Wait
from profkit.ranks.collective_table import bus_factor
from profkit.ranks.matching import _median
from profkit.readers import read
from profkit.report.assembly import time_offsets, timelines
from profkit.report.views import Options
from profkit.verification.intervals import length, united, within, without
from tests.exactness.plain_files import read_plainly
from tests.ranks.jobs import EPOCH, MS, US, Rank, job
from tests.ranks.reports import summarise
from tests.shared import DATA, SHARED, needs_shared

DDP = [DATA / "kineto" / f"ddp_rank{rank}.json.gz" for rank in (0, 1)]


def by_rank(result):
    return {row.rank: row for row in result.ranks}


def codes(result):
    return {finding.code for finding in result.health.findings}


@cache
def ddp():
    return summarise([read(path) for path in DDP])


def test_a_sleeping_rank_is_the_straggler_and_the_waiting_is_charged_to_it():
    result = summarise(job([Rank(0), Rank(1, sleep_ns=20 * MS)]))
    early, late = by_rank(result)[0], by_rank(result)[1]
    assert late.straggler is True
    assert early.straggler is False
    assert late.late_ns == 20 * MS
    assert early.late_ns == 0
    assert early.waiting_ns == 3 * 20 * MS
    assert late.waiting_ns == 0
    assert late.causes_wait_ns == 3 * 20 * MS
    assert result.method.ranks.waits == [Wait(rank=0, waits_for=1, waiting_ns=60 * MS, exposed_ns=60 * MS)]
    assert result.method.ranks.critical_rank == 1
    assert "straggler" in codes(result)


def test_the_verdict_names_the_late_rank_and_what_it_does_instead_of_the_network():
    verdict = summarise(job([Rank(0), Rank(1, sleep_ns=30 * MS)])).verdict
    assert verdict.straggler.rank == 1
    assert verdict.straggler.bound == "launch"
    told = " ".join([verdict.sentence, *verdict.caveats])
    assert "rank 1" in told.lower()
    assert "waiting for launches" in told
    assert "slow all hosts" in told  # the host is late perhaps only while it is recorded


def test_a_rank_with_more_gpu_work_is_told_from_one_that_sleeps():
    verdict = summarise(job([Rank(0), Rank(1, compute_ns=(30 * MS,))])).verdict
    assert not any("slow all hosts" in text for text in verdict.caveats)
    assert verdict.straggler.rank == 1
    assert verdict.straggler.bound != "launch"


def test_transfer_alone_is_no_waiting_and_no_one_is_late():
    result = summarise(job([Rank(0), Rank(1)], transfer_ns=20 * MS))
    assert result.verdict.bound == "communication"
    assert result.verdict.straggler is None
    assert [row.straggler for row in result.ranks] == [False, False]
    assert [row.waiting_ns for row in result.ranks] == [0, 0]


def test_ranks_that_wait_for_each_other_in_turn_have_no_straggler():
    result = summarise(job([Rank(0, compute_ns=(10 * MS, 2 * MS)), Rank(1, compute_ns=(2 * MS, 10 * MS))]))
    assert [row.straggler for row in result.ranks] == [False, False]
    assert [row.waiting_ns for row in result.ranks] == [24 * MS, 24 * MS]


def late_ranks(*ranks, steps=5):
    result = summarise(job(ranks, steps=steps))
    return [row.rank for row in result.ranks if row.straggler], result


@pytest.mark.parametrize(
    ("steps_late", "named"), [((2,), []), ((1, 2), []), ((1, 2, 4), [1]), ((0, 1, 2, 3, 4), [1])]
)
def test_a_straggler_is_late_in_most_steps(steps_late, named):
    found, result = late_ranks(Rank(0), Rank(1, sleep_ns=30 * MS, sleeps_in=steps_late), Rank(2))
    assert found == named
    told = " ".join(map(str, (result.verdict.sentence, *result.verdict.caveats)))
    assert "rank 1" in told.lower()
    assert ("not steadily" in told) is (not named)


def test_of_two_slow_ranks_the_one_that_waits_more_than_it_makes_wait_is_none():
    """Rank 1 is 20 ms late in every step, rank 2 is 25 ms late in two of five and waits for it in none."""
    slow = [Rank(1, sleep_ns=20 * MS), Rank(2, sleep_ns=25 * MS, sleeps_in=(1, 3))]
    assert late_ranks(Rank(0), *slow, Rank(3))[0] == [1]


def test_two_ranks_that_are_late_by_turns_are_no_stragglers():
    even, odd = (0, 2, 4), (1, 3, 5)
    ranks = [Rank(0, sleep_ns=20 * MS, sleeps_in=even), Rank(1, sleep_ns=20 * MS, sleeps_in=odd)]
    assert late_ranks(*ranks, steps=6)[0] == []


def test_one_late_rank_of_two_is_the_verdict_though_its_idling_and_the_waiting_are_two_shares():
    """15 ms of sleep in a step of 25.6 ms: a third each of the mean are launch, communication and computing."""
    verdict = summarise(job([Rank(0), Rank(1, sleep_ns=15 * MS)])).verdict
    assert verdict.bound != "communication"
    assert verdict.sentence.startswith(
        "Rank 1 delays the step: the other ranks wait in collectives 59 % of their time."
    )
    assert "waiting for launches" in verdict.sentence


def test_a_late_rank_that_costs_less_than_the_work_does_is_a_caveat():
    verdict = summarise(job([Rank(0), Rank(1, sleep_ns=3 * MS)])).verdict
    assert verdict.bound == "compute"
    assert verdict.straggler.rank == 1
    assert any("Rank 1" in text for text in verdict.caveats)


@pytest.mark.parametrize("clock_ns", [0, 3 * MS, -700 * US, 10**12])
def test_a_wrong_clock_is_found_and_changes_nothing(clock_ns):
    ranks = [Rank(0), Rank(1, sleep_ns=20 * MS, clock_ns=clock_ns)]
    row = by_rank(summarise(job(ranks)))[1]
    assert row.clock_offset_ns == -clock_ns
    assert row.clock_error_ns == 0
    assert row.late_ns == 20 * MS


def test_clocks_without_unix_time_are_brought_together_by_the_collectives():
    ranks = [Rank(0), Rank(1, sleep_ns=20 * MS, clock_ns=123 * MS, epoch_ns=None)]
    traces = job(ranks)
    result = summarise(traces)
    assert by_rank(result)[1].clock_offset_ns == EPOCH - 123 * MS
    assert by_rank(result)[1].late_ns == 20 * MS
    views, _ = timelines(traces, Options())
    ends = [int(v.trace.operations.end_ns.max()) + o for v, o in zip(views, time_offsets(views), strict=True)]
    assert ends[0] == ends[1]


def test_the_error_of_a_clock_covers_the_spread_of_the_ends():
    rows = by_rank(summarise(job([Rank(0), Rank(1), Rank(2)], ends_ns={1: 8 * US, 2: 3 * US})))
    assert all(abs(row.waiting_ns) <= 3 * 8 * US for row in rows.values())
    assert max(row.clock_error_ns for row in rows.values()) <= 8 * US


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("lost", [{"first_lost": 2}, {"lost": (4,)}, {"lost": (11,)}])
def test_a_rank_that_lacks_some_collectives_is_still_matched(lost, marked):
    steps = dict(compute_ns=(10 * MS, 3 * MS, 7 * MS, 5 * MS))
    ranks = [Rank(0, **steps), Rank(1, **steps, sleep_ns=20 * MS, clock_ns=2 * MS, **lost)]
    result = summarise(job(ranks, marked=marked))
    row = by_rank(result)[1]
    assert row.clock_offset_ns == -2 * MS
    assert row.straggler is True
    assert result.method.ranks.matched == 12 - (2 if "first_lost" in lost else 1)
    assert result.method.ranks.unmatched == (2 if "first_lost" in lost else 1)


def test_without_steps_the_ends_tell_the_order_even_if_the_clock_is_far_off():
    uneven = (10 * MS, 3 * MS, 7 * MS, 5 * MS, 2 * MS, 12 * MS, 4 * MS, 9 * MS)
    ranks = [Rank(0, uneven), Rank(1, uneven, clock_ns=47 * MS, first_lost=2)]
    result = summarise(job(ranks, steps=1, marked=False))
    assert result.method.ranks.matched == 6
    assert by_rank(result)[1].clock_offset_ns == -47 * MS


@pytest.mark.parametrize(("apart_ns", "matched"), [(0, 1), (40 * US, 1), (5 * MS, 0)])
def test_one_shared_collective_is_compared_if_the_unix_times_agree(apart_ns, matched):
    ranks = [Rank(0), Rank(1, sleep_ns=5 * MS, clock_ns=apart_ns)]
    result = summarise(job(ranks, steps=1))
    assert result.method.ranks.matched == matched


def test_the_files_of_two_ranks_on_their_own_clocks_agree_with_their_unix_times():
    """Case 09: rank 1 starts 50 us after rank 0, and both end at the same instant."""
    result = summarise([read(DATA / "cases" / f"09_rank{rank}.json") for rank in (0, 1)])
    assert by_rank(result)[1].late_ns == 50 * US
    assert by_rank(result)[0].waiting_ns == 50 * US


def test_numbers_in_the_group_win_over_the_order():
    """Steps that are all alike, no marks and no Unix time: only the number tells which is which."""
    ranks = [Rank(0, epoch_ns=None), Rank(1, epoch_ns=None, clock_ns=5 * MS, first_lost=2)]
    traces = job(ranks, steps=8, marked=False, group="0")
    traces = [
        replace(t, collectives=replace(t.collectives, sequence=np.arange(len(t.collectives)) + 40 + first))
        for t, first in zip(traces, (0, 2), strict=True)
    ]
    result = summarise(traces)
    assert result.method.ranks.matched == 6
    assert by_rank(result)[1].clock_offset_ns == -5 * MS


def test_ranks_of_different_groups_are_not_matched():
    one, other = job([Rank(0)], group="mesh_dp (1)"), job([Rank(1)], group="mesh_dp (2)")
    result = summarise([*one, *other])
    assert [row.late_ns for row in result.ranks] == [None, None]
    assert [row.straggler for row in result.ranks] == [None, None]
    assert "ranks-not-compared" in codes(result)


def test_unrelated_recordings_are_not_compared():
    one = job([Rank(0, compute_ns=(10 * MS, 2 * MS, 3 * MS))])
    other = job([Rank(1, compute_ns=(1 * MS, 9 * MS, 5 * MS), epoch_ns=EPOCH + 10**12)])
    rows = by_rank(summarise([*one, *other]))
    assert [row.late_ns for row in rows.values()] == [None, None]


def test_two_recordings_of_one_rank_are_not_compared():
    result = summarise([*job([Rank(0)]), *job([Rank(0, sleep_ns=20 * MS)])])
    assert [row.late_ns for row in result.ranks] == [None, None]
    assert "ranks-not-compared" in codes(result)


@pytest.mark.parametrize("later", [0, 1])
def test_of_several_recordings_of_a_rank_the_first_is_compared(later):
    """A job that runs again an hour later, on other GPUs; the files come in any order."""
    first = job([Rank(0), Rank(1, sleep_ns=20 * MS)])
    again = job([Rank(0, epoch_ns=EPOCH + 3600 * 10**9), Rank(1, epoch_ns=EPOCH + 3600 * 10**9)])
    again = [replace(trace, devices=[Device(ordinal=3, uuid="another")]) for trace in again]
    traces = [*again, *first] if later == 0 else [*first, *again]
    result = summarise(traces)
    told = [(row.rank, row.straggler, row.late_ns) for row in result.ranks]
    compared, left = [(0, False, 0), (1, True, 20 * MS)], [(0, None, None), (1, None, None)]
    assert told == (left + compared if later == 0 else compared + left)
    assert "ranks-repeated" in codes(result)
    assert "ranks-not-compared" not in codes(result)


def test_cycles_of_ranks_are_compared_step_by_step():
    """A profiler that records again an hour later: rank 1 is late in the second cycle only."""
    later = EPOCH + 3600 * 10**9
    first = job([Rank(0), Rank(1)])
    again = job([Rank(0, epoch_ns=later), Rank(1, epoch_ns=later, sleep_ns=20 * MS)])
    result = summarise([*again, *first])
    assert [row.rank for row in result.ranks] == [0, 1]
    assert len(result.window.steps) == 6
    assert by_rank(result)[1].late_ns == 10 * MS
    assert "ranks-repeated" not in codes(result)


def test_where_one_recording_ends_earlier_its_lateness_is_still_the_verdict():
    """Rank 0 recorded six steps, the late rank three of them: what cannot be matched is not taken for transfer."""
    ranks = [Rank(0), Rank(1, sleep_ns=20 * MS)]
    result = summarise([job(ranks, steps=6)[0], job(ranks, steps=3)[1]])
    assert result.verdict.straggler.rank == 1
    assert result.verdict.straggler.waiting_ns == 3 * 20 * MS
    assert result.method.ranks.unmatched_exposed_ns == 3 * (20 * MS + 500 * US)
    assert "collectives-unmatched" in codes(result)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((20, 20, 20, 4), "Rank 3 recorded only 4 steps, others 20."),
        ((6, 4, 20), "Ranks 0, 1 recorded only 4 to 6 steps, others 20."),
        ((20, 10, 19), None),
    ],
)
def test_recordings_of_unlike_length_are_told(counts, told):
    traces = [job([Rank(rank) for rank in range(len(counts))], steps=n)[at] for at, n in enumerate(counts)]
    found = summarise(traces).health.findings
    messages = [f.message for f in found if f.code == "recordings-uneven"]
    assert len(messages) == (told is not None)
    assert all(message.startswith(told) for message in messages)


def test_a_rank_without_collectives_is_named_and_the_others_are_compared():
    result = summarise(job([Rank(0), Rank(1, sleep_ns=20 * MS), Rank(2, lost=(0, 1, 2))]))
    assert [row.straggler for row in result.ranks] == [False, True, None]
    (finding,) = [f for f in result.health.findings if f.code == "ranks-not-compared"]
    assert finding.message == "Rank 2: not compared, since too few collectives are shared with the others."


def test_matched_ranks_have_neither_finding():
    found = codes(summarise(job([Rank(0), Rank(1, sleep_ns=20 * MS)])))
    assert found.isdisjoint({"collectives-unmatched", "ranks-repeated", "ranks-not-compared"})


def test_files_without_a_rank_are_numbered_in_their_order_when_they_share_collectives():
    traces = [_nameless(t) for t in job([Rank(0), Rank(1, sleep_ns=20 * MS)])]
    result = summarise(traces)
    assert [row.straggler for row in result.ranks] == [False, True]
    assert result.method.ranks.numbered_by == "file-order"


def test_files_without_a_rank_that_share_nothing_are_no_ranks():
    one = job([Rank(0, compute_ns=(10 * MS, 2 * MS, 3 * MS))])
    other = job([Rank(1, compute_ns=(1 * MS, 9 * MS, 5 * MS), epoch_ns=EPOCH + 10**12)])
    assert summarise([_nameless(t) for t in (*one, *other)]).ranks == ()


def _nameless(trace):
    return replace(trace, source=replace(trace.source, rank=None), processes=[Process(100)])


def test_many_ranks_of_crossing_groups_share_one_clock():
    """Ranks 0 and 1 meet, 2 and 3 meet, and 1 and 2 meet in a third group: one chain of clocks."""
    clocks = {0: 0, 1: 3 * MS, 2: -4 * MS, 3: 9 * MS}
    pairs = [((0, 1), "a"), ((2, 3), "b"), ((1, 2), "c")]
    traces = {}
    for members, group in pairs:
        for trace in job([Rank(m, clock_ns=clocks[m]) for m in members], steps=4, group=group):
            traces.setdefault(trace.source.rank, []).append(trace)
    chained = [parts[0] if len(parts) == 1 else _joined(*parts) for _, parts in sorted(traces.items())]
    rows = by_rank(summarise(chained))
    assert {rank: row.clock_offset_ns for rank, row in rows.items()} == {r: -c for r, c in clocks.items()}


def _joined(first, second):
    """Two traces of one rank as one: the second after the first."""
    # The strings of the second follow those of the first.
    count, calls = len(first.strings), int(first.calls.correlation.max())

    def both(table, **shifts):
        a, b = getattr(first, table), getattr(second, table)
        b = replace(
            b, **{c: np.where(getattr(b, c) >= 0, getattr(b, c) + by, -1) for c, by in shifts.items()}
        )
        return type(a)(**{k: np.concatenate([getattr(a, k), getattr(b, k)]) for k in vars(a)})

    return replace(
        first,
        strings=[*first.strings, *second.strings],
        operations=both("operations", name=count, correlation=calls),
        calls=both("calls", name=count, correlation=calls),
        collectives=both("collectives", operation=len(first.operations), group=count),
        ranges=first.ranges,
    )


def test_exposed_and_overlapped_communication_of_ddp_equals_the_brute_force():
    for path, row in zip(DDP, ddp().ranks, strict=True):
        recording = read_plainly(path)
        steps = sorted((s.start, s.end) for s in recording.spans if s.name.startswith("ProfilerStep"))
        assert len(steps) == 3
        launched = {c.correlation: c.start for c in recording.calls}
        last = max(
            op.end for op in recording.ops if launched.get(op.correlation, steps[-1][1]) < steps[-1][1]
        )
        start = last - sum(row.shares.values())
        nccl = within(united([(o.start, o.end) for o in recording.ops if "nccl" in o.name]), start, last)
        other = within(
            united(
                [(o.start, o.end) for o in recording.ops if o.kind == "kernel" and "nccl" not in o.name]
                + [(o.start, o.end) for o in recording.ops if o.kind in ("memset", "DtoD")]
            ),
            start,
            last,
        )
        assert row.collective_ns == length(nccl)
        assert row.exposed_ns == length(without(nccl, other))
        assert row.overlapped_ns == row.collective_ns - row.exposed_ns


def test_waiting_of_ddp_equals_a_pairwise_count_by_hand():
    first, second = (read_plainly(path) for path in DDP)
    pairs = zip(
        *(sorted((o.start, o.end) for o in r.ops if "nccl" in o.name) for r in (first, second)), strict=True
    )
    rows = by_rank(ddp())
    shift = rows[1].clock_offset_ns
    kept = sum(step.kept for step in ddp().window.steps)
    waiting = [0, 0]
    for (start, end), (other_start, other_end) in list(pairs)[-10 * kept :]:
        start, end = start - shift, end - shift
        waiting[0] += min(max(other_start - start, 0), end - start)
        waiting[1] += min(max(start - other_start, 0), other_end - other_start)
    assert [rows[0].waiting_ns, rows[1].waiting_ns] == waiting


def test_the_bus_bandwidth_of_ddp_is_that_of_nccl_tests():
    (row,) = ddp().communication
    assert row.bus_gbs == pytest.approx(row.bytes * 2 * (2 - 1) / 2 / row.total_ns)
    assert row.algorithm_gbs == pytest.approx(row.bytes / row.total_ns)
    for size in row.sizes:
        assert size.transfer_bus_gbs == pytest.approx(size.bytes * size.count / size.transfer_ns)
    # Two H200 over NVLink: the transfer runs at hundreds of GB/s, what waiting hides in bus_gbs.
    assert row.transfer_bus_gbs > 5 * row.bus_gbs


@needs_shared
@pytest.mark.shared
def test_four_ranks_of_somebody_elses_job_are_compared():
    paths = sorted((SHARED / "corpus" / "kineto").glob("*dlrm_kineto__worker*"))
    result = summarise([read(path) for path in paths])
    assert {row.collective: row.count for row in result.communication} == {
        "all_to_all": 20,
        "all_reduce": 12,
    }
    assert [row.rank for row in result.ranks] == [0, 1, 2, 3]
    assert all(row.clock_error_ns < 20 * US for row in result.ranks)
    assert result.method.ranks.matched == 8
    assert "ranks-missing" in codes(result)


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=9))
def test_the_quick_median_is_numpys(values):
    assert _median(np.array(values)) == np.median(values)


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [("all_reduce", 4, 1.5), ("all_gather", 4, 0.75), ("reduce_scatter", 4, 0.75), ("all_to_all", 4, 0.75),
     ("broadcast", 4, 1.0), ("all_to_all", 2, 0.5), ("all_reduce", 1, 1.0)],
)  # fmt: skip
def test_the_bus_carries_what_nccl_tests_says(collective, ranks, factor):
    assert bus_factor(collective, ranks) == factor
