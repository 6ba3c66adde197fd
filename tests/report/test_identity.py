"""Recordings of one device are one, the same recording twice too; another run is set aside, and all of it is told."""

import gzip
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import profkit
from profkit.model.succession import one_after_another
from profkit.readers import read
from profkit.report.assembly import summarise
from profkit.report.identity import grouped, identity_of
from profkit.verification import verify
from tests.ranks.jobs import Rank, job
from tests.shared import DATA, SHARED

TRACE = DATA / "nsys/tiny_mlp.sqlite.gz"
MINUTE = 60 * 10**9
CYCLES = SHARED / "cases2" / "cycles_kineto"


def codes(report):
    return {finding.code for finding in report.health.findings}


def after(trace, ns, **change):
    """The same recording, made later."""
    return replace(trace, unix_epoch_ns=trace.unix_epoch_ns + ns, **change)


def test_a_file_given_twice_or_copied_is_read_once_and_told(tmp_path):
    copy, packed = tmp_path / "copy.sqlite.gz", tmp_path / "packed.sqlite.gz"
    shutil.copyfile(TRACE, copy)
    packed.write_bytes(gzip.compress(gzip.decompress(TRACE.read_bytes()), 1))
    once = profkit.analyze(TRACE).document
    for paths in ([TRACE, TRACE], [TRACE, copy], [TRACE, packed]):
        twice = profkit.analyze(paths).document
        assert twice.totals.kernel_count == once.totals.kernel_count
        assert len(twice.devices) == 1
        assert "straggler" not in json.loads(profkit.analyze(paths).render("json"))["verdict"]
        assert "file-repeated" in codes(twice)


def test_a_run_counts_only_for_the_files_that_it_lists(tmp_path):
    shutil.copyfile(TRACE, tmp_path / "mine.sqlite.gz")
    for name, counts in (("other.sqlite", False), ("mine.nsys-rep", True)):
        run = {"schema": "profkit.run/1", "plain_step_median_ns": 13_000_000, "files": [name]}
        (tmp_path / "run.json").write_text(json.dumps(run))
        result = profkit.analyze(tmp_path / "mine.sqlite.gz").document
        assert (result.health.profiler_overhead_ns is not None) == counts


def test_cycles_of_one_device_are_its_steps_and_nothing_between_is():
    once = summarise([read(TRACE)])
    trace = read(TRACE)
    cycles = summarise([after(trace, 2 * MINUTE), trace, after(trace, MINUTE)])
    assert "cycles-joined" in codes(cycles)
    assert len(cycles.inputs) == 3
    assert len(cycles.devices) == 1
    assert not cycles.ranks
    kept = [step.device_ns for step in cycles.window.steps if step.kept]
    assert kept == 3 * [step.device_ns for step in once.window.steps if step.kept]
    assert cycles.totals.gpu_busy_ns == 3 * once.totals.gpu_busy_ns
    assert cycles.window.device_ns == 3 * once.window.device_ns
    assert cycles.idle.total_ns == 3 * once.idle.total_ns
    assert cycles.health.launches_without_kernel == 3 * once.health.launches_without_kernel


def test_cycles_without_marks_have_the_same_steps_or_at_least_no_pause():
    trace = read(TRACE)
    unmarked = replace(trace, ranges=trace.ranges.take(np.zeros(len(trace.ranges), bool)))
    once = summarise([unmarked])
    twice = summarise([unmarked, after(unmarked, MINUTE)])
    assert once.step.found_by == twice.step.found_by == "period"
    assert max(step.device_ns for step in twice.window.steps) < MINUTE // 10
    few = replace(unmarked, operations=unmarked.operations.take(np.arange(5)))
    twice = summarise([few, after(few, MINUTE)])
    assert twice.window.steps == []
    assert twice.window.device_ns == 2 * summarise([few]).window.device_ns


def test_ids_that_a_tool_gave_twice_stay_apart():
    trace = read(TRACE)
    both = one_after_another([trace, after(trace, MINUTE)])
    count = len(trace.operations)
    assert len(set(both.operations.correlation.tolist())) == 2 * len(
        set(trace.operations.correlation.tolist())
    )
    assert (both.operations.start_ns[count:] - both.operations.start_ns[:count] == MINUTE).all()
    assert both.names(both.operations.name[count:]).tolist() == trace.names(trace.operations.name).tolist()
    assert len(both.strings) == len(trace.strings)
    assert len(both.threads) == len(trace.threads)
    assert len(both.resumed_ns) == 1


@pytest.mark.parametrize(
    "other",
    [DATA / "nsys/gpt_fp32.sqlite.gz", None],
    ids=["unlike work", "another process on the same GPU"],
)
def test_another_run_is_set_aside_and_told(other):
    trace = read(TRACE)
    if other is None:
        older = after(trace, -MINUTE, processes=[replace(p, pid=p.pid + 1) for p in trace.processes])
    else:
        older = read(other)
    result = summarise([older, trace])
    assert "runs-set-aside" in codes(result)
    assert not result.health.ok
    assert result.totals == summarise([trace]).totals
    assert [row.path for row in result.inputs] == [trace.source.name]


def test_a_job_of_ranks_and_a_program_of_none_are_two_runs():
    newest, job_of_two = (
        read(DATA / "nsys/convnet_fp16_channels_last.sqlite.gz"),
        read(DATA / "nsys/ddp.sqlite.gz"),
    )
    result = summarise([job_of_two, newest])
    assert len(result.devices) == 1
    assert not result.ranks
    assert "runs-set-aside" in codes(result)


def test_what_may_be_two_devices_of_one_run_stays_two():
    trace = read(TRACE)
    elsewhere = [replace(trace.devices[0], ordinal=1, uuid="another")]
    at_once, ranks = after(trace, 1000), job([Rank(0), Rank(1)])
    for pair in ([trace, at_once], [trace, after(trace, MINUTE, devices=elsewhere)], ranks):
        assert len(summarise(pair).devices) == 2
        assert not codes(summarise(pair)) & {"cycles-joined", "runs-set-aside", "file-repeated"}


def test_without_unix_times_nothing_is_said_to_follow():
    trace = replace(read(TRACE), unix_epoch_ns=None)
    assert len(grouped([identity_of(trace), identity_of(after(read(TRACE), MINUTE))]).groups) == 2


def test_many_files_one_by_one_agree_with_one_process(tmp_path):
    document = json.loads(gzip.decompress((DATA / "kineto/sync_item.json.gz").read_bytes()))
    for rank in range(2):
        for cycle in range(4):
            base = document["baseTimeNanoseconds"] + cycle * MINUTE
            own = {"backend": "nccl", "rank": rank, "world_size": 2}
            each = {**document, "baseTimeNanoseconds": base, "distributedInfo": own}
            (tmp_path / f"rank{rank}_{cycle}.json").write_text(json.dumps(each))
    together = profkit.analyze(tmp_path).document
    apart = profkit.analyze(tmp_path, cluster="local").document
    assert len(together.devices) == len(apart.devices) == 2
    assert together.totals == apart.totals
    assert together.window == apart.window
    assert together.kernels == apart.kernels
    assert [row.path for row in together.inputs] == [row.path for row in apart.inputs]
    files = sorted(map(str, tmp_path.iterdir()))
    assert verify(together, files).differing == []
    assert codes(together) == codes(apart) >= {"cycles-joined"}


@pytest.mark.skipif(not CYCLES.exists(), reason="the shared cases are not here")
def test_the_shared_cycles():
    assert len(profkit.analyze(CYCLES).document.window.steps) == 9
