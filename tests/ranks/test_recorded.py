"""Cases recorded on 2 and 4 GPUs by reports/ranks/record.py: what was planted is found, and nothing else."""

from functools import cache

import pytest

from profkit.readers import read
from profkit.verification.intervals import length, united, within, without
from tests.exactness.plain_files import read_plainly
from tests.ranks.reports import summarise
from tests.shared import DATA

MS = 1_000_000
KEPT = {
    2: (
        "ddp",
        "buckets",
        "asleep",
        "slow",
        "fsdp",
        "fsdp2",
        "tensor",
        "pipeline",
        "messages",
        "dataparallel",
    ),
    4: ("asleep", "fsdp", "fsdp2", "pipeline", "messages"),
}
COMPARED = [case for case in KEPT[2] if case != "dataparallel"]


def recorded(*cases):
    """These cases on every number of GPUs of which they are kept."""
    found = [(case, ranks) for case in cases for ranks in KEPT if case in KEPT[ranks]]
    return pytest.mark.parametrize(("case", "ranks"), found)


def files(case, ranks):
    return sorted((DATA / "ranks" / f"{ranks}_gpus").glob(f"{case}_rank*.json.gz"))


@cache
def report(case, ranks):
    paths = files(case, ranks)
    assert len(paths) == (1 if case == "dataparallel" else ranks)
    return summarise([read(path) for path in paths])


def codes(result):
    return {f.code for f in result.health.findings}


def kinds(result):
    return {row.kind: row.basis for row in result.method.ranks.parallelism}


def stragglers(result):
    return [row.rank for row in result.ranks if row.straggler]


@recorded("asleep")
def test_the_planted_sleep_of_20_ms_is_named_and_attributed(case, ranks):
    result = report(case, ranks)
    assert stragglers(result) == [1]
    late = next(row for row in result.ranks if row.rank == 1)
    assert 15 * MS < late.late_ns < 40 * MS
    waiting = sum(w.exposed_ns for w in result.method.ranks.waits)
    for_rank_1 = sum(w.exposed_ns for w in result.method.ranks.waits if w.waits_for == 1)
    assert for_rank_1 > 0.8 * waiting
    assert result.verdict.straggler.rank == 1
    assert result.verdict.straggler.bound in ("launch", "other")


@recorded("slow")
def test_a_rank_with_more_work_is_named_for_it(case, ranks):
    result = report(case, ranks)
    assert stragglers(result) == [1]
    assert result.verdict.straggler.bound in ("compute", "memory", "unclassified")


@recorded("asleep", "slow", "buckets", "messages")
def test_the_verdict_itself_names_the_rank_that_costs_most(case, ranks):
    sentence = report(case, ranks).verdict.sentence
    if (case, ranks) == ("messages", 4):
        assert sentence.startswith("The start of the recordings delays the step")
    else:
        assert sentence.startswith("Rank 1 delays the step")


@recorded("ddp", "fsdp", "fsdp2", "tensor", "pipeline")
def test_without_anything_planted_only_a_rank_that_is_late_in_every_step_is_a_straggler(case, ranks):
    """Of 2, rank 1 came last to every collective of FSDP and tensor parallelism: its host launched late.

    Of 4 ranks with FSDP, 0 and 1 waited for each other, and 1 was late in one of two steps. With FSDP2, rank 2 came last
    to six of nine collectives of two steps, and rank 3 to the others; it made the others wait longest.
    """
    known = {("fsdp", 2): [1], ("fsdp2", 2): [1], ("tensor", 2): [1], ("fsdp2", 4): [3]}
    result = report(case, ranks)
    assert stragglers(result) == known.get((case, ranks), [])
    held_up = result.verdict.straggler
    assert [held_up.rank] == known[case, ranks] if (case, ranks) in known else not (held_up and held_up.rank)


@recorded("ddp")
def test_large_buckets_that_overlap_have_no_finding(case, ranks):
    result = report(case, ranks)
    assert kinds(result) == {"DDP": "named"}
    assert "small-buckets" not in codes(result)
    assert result.verdict.bound != "communication"


@recorded(*COMPARED)
def test_ranks_of_one_machine_have_one_clock(case, ranks):
    for row in report(case, ranks).ranks:
        assert abs(row.clock_offset_ns) < 200_000
        assert row.clock_error_ns < 100_000


NVLINK_GBS = 450
"""One way, of an H200: NVLink 4 with 18 links of 25 GB/s."""


@recorded(*COMPARED)
def test_bandwidth_without_the_waiting_is_below_that_of_the_links(case, ranks):
    found = [size for row in report(case, ranks).communication for size in row.sizes if size.bytes]
    assert all(size.transfer_bus_gbs is None or size.transfer_bus_gbs < NVLINK_GBS for size in found)
    large = [size for size in found if size.bytes >= 16 << 20]
    if case == "messages":  # what a receiver takes out of its own memory is no bandwidth of the network
        assert all(size.transfer_bus_gbs is None for size in large)
    elif case != "pipeline":
        assert all(size.transfer_bus_gbs > 150 for size in large)


@recorded("buckets")
def test_tiny_buckets_are_told(case, ranks):
    assert "small-buckets" in codes(report(case, ranks))


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("fsdp", "FSDP"),
        ("fsdp2", "FSDP2"),
        ("tensor", "tensor parallel"),
        ("pipeline", "pipeline parallel"),
        ("dataparallel", "DataParallel"),
    ],
)
def test_each_kind_is_recognised(case, kind):
    for ranks in KEPT:
        if case in KEPT[ranks]:
            assert kind in kinds(report(case, ranks))


@recorded("pipeline", "messages")
def test_sends_are_matched_with_receives(case, ranks):
    method = report(case, ranks).method.ranks
    assert method.messages.ranks == list(range(ranks))
    assert method.matched > 3 * method.unmatched


@recorded("messages")
def test_the_last_rank_works_twice_and_is_waited_for(case, ranks):
    result = report(case, ranks)
    waits = result.method.ranks.waits
    assert sum(w.waiting_ns for w in waits if w.waits_for == ranks - 1) > 0
    held = [row.causes_wait_ns for row in result.ranks]
    assert held.index(max(held)) == ranks - 1


def test_waiting_for_profilers_that_start_later_is_no_rank_s_fault():
    """Rank 2 began 0.6 s, rank 3 1.1 s after rank 1; the buffers held four messages, then all stood still."""
    result = report("messages", 4)
    assert "recordings-apart" in codes(result)
    assert "waits-in-messages" not in codes(result)
    assert stragglers(result) == []
    assert result.method.ranks.unrecorded_waiting_ns > 1_500 * MS
    assert "recordings-apart" not in codes(report("messages", 2))


@recorded(*COMPARED)
def test_exposed_communication_of_every_rank_equals_the_brute_force(case, ranks):
    result = report(case, ranks)
    for path, row in zip(files(case, ranks), result.ranks, strict=True):
        recording = read_plainly(path)
        steps = sorted((s.start, s.end) for s in recording.spans if s.name.startswith("ProfilerStep"))
        launched = {c.correlation: c.start for c in recording.calls}
        ours = [o for o in recording.ops if launched.get(o.correlation, steps[-1][1]) < steps[-1][1]]
        last = max(o.end for o in ours)
        first = last - sum(row.shares.values())
        nccl = within(united([(o.start, o.end) for o in recording.ops if "nccl" in o.name]), first, last)
        other = united(
            [(o.start, o.end) for o in recording.ops if o.kind == "kernel" and "nccl" not in o.name]
            + [(o.start, o.end) for o in recording.ops if o.kind in ("memset", "DtoD")]
        )
        assert row.exposed_ns == length(without(nccl, within(other, first, last)))
