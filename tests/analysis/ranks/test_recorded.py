"""Cases recorded on 2 and 4 GPUs by reports/ranks/record.py: what was planted is found, and nothing else."""

from functools import cache

import pytest

from profkit.analysis.summary import summarise
from profkit.readers import read
from profkit.verification.intervals import length, united, within, without
from tests.exactness.plain_files import read_plainly
from tests.shared import DATA

MS = 1_000_000
SIZES = (2, 4)
RECORDED = [size for size in SIZES if (DATA / "ranks" / f"{size}_gpus").is_dir()]
needs_recordings = pytest.mark.skipif(
    not RECORDED,
    reason="SKIPPED LOUDLY: no tests/data/ranks/2_gpus: run reports/ranks/record.py on 2 or 4 GPUs",
)
pytestmark = [needs_recordings, pytest.mark.parametrize("ranks", RECORDED or SIZES[:1])]


def files(case, ranks):
    return sorted((DATA / "ranks" / f"{ranks}_gpus").glob(f"{case}_rank*.json.gz"))


@cache
def report(case, ranks):
    paths = files(case, ranks)
    assert len(paths) == (1 if case == "dataparallel" else ranks)
    return summarise([read(path) for path in paths])


def codes(result):
    return {f["code"] for f in result.health["findings"]}


def kinds(result):
    return {row["kind"]: row["basis"] for row in result.method["ranks"]["parallelism"]}


def stragglers(result):
    return [row["rank"] for row in result.ranks if row["straggler"]]


def test_the_planted_sleep_of_20_ms_is_named_and_charged(ranks):
    result = report("asleep", ranks)
    assert stragglers(result) == [1]
    late = next(row for row in result.ranks if row["rank"] == 1)
    assert 15 * MS < late["late_ns"] < 40 * MS
    waiting = sum(w["exposed_ns"] for w in result.method["ranks"]["waits"])
    for_rank_1 = sum(w["exposed_ns"] for w in result.method["ranks"]["waits"] if w["for"] == 1)
    assert for_rank_1 > 0.8 * waiting
    assert result.verdict["held_up_by"]["rank"] == 1
    assert result.verdict["held_up_by"]["bound"] in ("launch", "other")


def test_a_rank_with_more_work_is_named_for_it(ranks):
    result = report("slow", ranks)
    assert stragglers(result) == [1]
    assert result.verdict["held_up_by"]["bound"] in ("compute", "memory", "unclassified")


def test_large_buckets_that_overlap_have_no_finding(ranks):
    result = report("ddp", ranks)
    assert kinds(result) == {"DDP": "named"}
    assert "small-buckets" not in codes(result)
    assert all(row["clock_error_ns"] < 100_000 for row in result.ranks)


def test_tiny_buckets_are_told(ranks):
    assert "small-buckets" in codes(report("buckets", ranks))


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
def test_each_kind_is_recognised(case, kind, ranks):
    assert kind in kinds(report(case, ranks))


@pytest.mark.parametrize("case", ["pipeline", "messages"])
def test_sends_are_matched_with_receives(case, ranks):
    method = report(case, ranks).method["ranks"]
    assert method["messages"]["ranks"] == list(range(ranks))
    assert method["matched"] > 3 * method["unmatched"]


def test_the_last_rank_works_twice_and_is_waited_for(ranks):
    waits = report("messages", ranks).method["ranks"]["waits"]
    assert sum(w["waiting_ns"] for w in waits if w["for"] == ranks - 1) > 0


@pytest.mark.parametrize("case", ["ddp", "buckets", "asleep", "fsdp2"])
def test_exposed_communication_of_every_rank_equals_the_brute_force(case, ranks):
    result = report(case, ranks)
    for path, row in zip(files(case, ranks), result.ranks, strict=True):
        recording = read_plainly(path)
        steps = sorted((s.start, s.end) for s in recording.spans if s.name.startswith("ProfilerStep"))
        launched = {c.correlation: c.start for c in recording.calls}
        ours = [o for o in recording.ops if launched.get(o.correlation, steps[-1][1]) < steps[-1][1]]
        last = max(o.end for o in ours)
        first = last - sum(row["shares"].values())
        nccl = within(united([(o.start, o.end) for o in recording.ops if "nccl" in o.name]), first, last)
        other = united(
            [(o.start, o.end) for o in recording.ops if o.kind == "kernel" and "nccl" not in o.name]
            + [(o.start, o.end) for o in recording.ops if o.kind in ("memset", "DtoD")]
        )
        assert row["exposed_ns"] == length(without(nccl, within(other, first, last)))
