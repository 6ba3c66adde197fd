"""Summaries of files, merged, are the report of all the files in one process."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from profkit.model import Finding, MemoryEvents, Severity
from profkit.model.rows import Row
from profkit.readers import read
from profkit.report import Merged, summarise_file
from profkit.report.assembly import summarise
from profkit.report.file_summary import tell
from profkit.report.health import told_together
from profkit.report.joining import Told
from profkit.report.many_files import summarise_many
from profkit.report.merge import common_left_out
from profkit.report.views import Options
from tests.builders import TraceBuilder
from tests.ranks.jobs import MS, Rank, job
from tests.shared import DATA

DDP = tuple(DATA / "kineto" / f"ddp_rank{rank}.json.gz" for rank in (0, 1))
UNLIKE = (DATA / "kineto" / "convnet_fp16_channels_last.json.gz", DATA / "kineto" / "sync_item.json.gz")


@cache
def recordings(paths):
    """Traces of different ranks: without one, two unlike recordings of a GPU are not of one run."""
    traces = [read(path) for path in paths]
    return [replace(t, source=replace(t.source, rank=rank)) for rank, t in enumerate(traces)]


def merged(traces, options=None):
    """As a scheduler would: summarise, agree on the steps to leave out, ask the busiest for advice and timeline."""
    options = options or Options()
    left_out = common_left_out([summarise_file([t], options) for t in traces])
    files = Merged.of([sent(summarise_file([t], options, left_out=left_out)) for t in traces])
    memory = Told(memory=files.own_memory())
    told = {
        at: sent(
            tell([traces[at]], options, left_out, files.offset_ns(at), memory, files.joined.part.exchanged)
        )
        for at in files.shown()
    }
    return files.report(files.told(memory, told))


def sent(value):
    """As it comes back from a worker."""
    return pickle.loads(pickle.dumps(value))


def plain(value: Any) -> Any:
    """Floats to nine digits; everything else as it is."""
    if isinstance(value, Row):
        return plain({name: getattr(value, name) for name in value.__struct_fields__})
    if isinstance(value, Mapping):
        return {k: _in_order(k, plain(v)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _in_order(name: str, value: Any) -> Any:
    """Of the host's operators those that every file lists, whatever else it cuts."""
    return value[:2] if name == "by_operator" else value


@pytest.mark.parametrize("paths", [DDP, UNLIKE], ids=["ddp", "unlike"])
@pytest.mark.parametrize(
    "table",
    ["inputs", "devices", "health", "window", "verdict", "totals", "phases", "operators", "ranges", "sources", "fusion",
     "idle", "syncs", "memory", "communication", "ranks", "advice", "timeline", "utilisation", "method"],
)  # fmt: skip
def test_a_merged_table_equals_that_of_one_process(paths, table):
    together, apart = both(paths)
    assert plain(getattr(apart, table)) == plain(getattr(together, table))


@pytest.mark.parametrize("paths", [DDP, UNLIKE], ids=["ddp", "unlike"])
def test_merged_kernels_equal_those_of_one_process(paths):
    together, apart = both(paths)
    assert apart.kernels == together.kernels


@cache
def both(paths):
    return summarise(recordings(paths)), merged(recordings(paths))


def test_hand_made_ranks_with_wrong_clocks_merge_to_the_same_report():
    traces = job([Rank(0), Rank(1, sleep_ns=20 * MS, clock_ns=5 * MS), Rank(2, first_lost=1)], steps=4)
    together, apart = summarise(traces), merged(traces)
    for table in ("devices", "window", "verdict", "idle", "communication", "ranks", "timeline"):
        assert plain(getattr(apart, table)) == plain(getattr(together, table)), table


def test_a_ranks_own_memory_is_told_in_the_times_of_the_report():
    """The clock of rank 1 is ahead, and it has the higher peak."""
    first, later = job([Rank(0), Rank(1, clock_ns=5 * MS)], steps=4)
    traces = [
        replace(trace, memory=allocated(trace.operations.start_ns[:2], peak))
        for trace, peak in ((first, 500), (later, 900))
    ]
    together, apart = summarise(traces), merged(traces)
    assert together.memory.peak_allocated_bytes == 900
    assert plain(apart.memory) == plain(together.memory)
    alone = summarise_file([traces[1]], Options()).memory
    assert apart.memory.devices[0].peak_time_ns != alone.devices[0].peak_time_ns


def allocated(times_ns, total_bytes):
    return MemoryEvents.of(
        2,
        time_ns=times_ns,
        device=[0, 0],
        bytes=[total_bytes // 2, total_bytes - total_bytes // 2],
    )


def test_hosts_without_a_gpu_say_what_their_steps_go_to():
    traces = []
    for rank, input_ns in enumerate((600, 100)):
        made = TraceBuilder(devices=0, format="kineto")
        for at in (0, 1000, 2000):
            made.range(at, at + 1000, f"ProfilerStep#{at}")
            made.range(at, at + input_ns, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
            made.range(at + 700, at + 900, "forward")
        trace = made.trace()
        traces.append(replace(trace, source=replace(trace.source, rank=rank)))
    together, apart = summarise(traces), merged(traces)
    assert together.verdict.undecided.code == "host-only"
    assert [fact.code for fact in together.verdict.doubts].count("host-part") >= 2
    assert plain(apart.verdict) == plain(together.verdict)


def test_a_file_that_alone_would_leave_out_a_step_follows_the_others():
    """Alone, rank 1 drops its long first step; together the report decides."""
    traces = [*job([Rank(0)], steps=4), *job([Rank(1)], steps=4)]
    left_out = [summarise_file([t], Options()).left_out for t in traces]
    forced = [summarise_file([t], Options(), left_out=np.array([True])) for t in traces]
    assert [flags.tolist() for flags in left_out] == [[False] * 4] * 2
    assert [f.left_out.tolist() for f in forced] == [[True, False, False, False]] * 2
    kept = [[s for s in trace.window.steps if s.kept] for f in forced for trace in f.part.traces]
    assert [len(steps) for steps in kept] == [3, 3]


def test_a_summary_is_small_beside_its_recording():
    for path, trace in zip(DDP, recordings(DDP), strict=True):
        assert len(pickle.dumps(summarise_file([trace], Options()))) < path.stat().st_size


@pytest.mark.parametrize(
    "names",
    [
        ("trace.json.gz", "memory.pickle.gz"),
        ("trace.json.gz", "nsys.sqlite.gz", "memory.pickle.gz", "memory_oom.pickle"),
    ],
    ids=["at once", "beside another execution"],
)
def test_among_many_files_a_snapshot_has_its_timeline_and_the_fit_its_step(names):
    files = [DATA / "run_gpt" / name for name in names]
    together = summarise([read(path) for path in files])
    apart = summarise_many([str(path) for path in files], Options())
    assert apart.fit
    for table in ("memory", "phases", "fit", "health", "advice", "timeline"):
        assert getattr(apart, table) == getattr(together, table), table


def test_a_snapshot_of_another_time_keeps_its_own_clock():
    files = [DATA / "kineto/elementwise_chain.json.gz", DATA / "snapshot/leak.pickle.gz"]
    together = summarise([read(path) for path in files])
    assert summarise_many([str(path) for path in files], Options()).memory == together.memory


def test_what_several_files_lack_is_told_once_and_says_in_how_many():
    truncated = [Finding("truncated", Severity.WARNING, count=n, params={"events": n}) for n in range(1, 7)]
    stale = Finding("export-stale", Severity.WARNING)
    files = [(f"{n}.json", [each, stale, *([stale] if n == 0 else [])]) for n, each in enumerate(truncated)]
    found = told_together(files)
    assert [(f.code, f.count) for f in found] == [
        ("truncated", 6), ("truncated", 5), ("truncated", 4), ("export-stale", 7),
    ]  # fmt: skip
    assert found[2].params == {"events": 4, "in_file": "3.json", "alike_files": 3}
    assert found[3].params == {"in_file": "0.json", "same_files": 5}
    assert told_together(files[:1]) == [truncated[0], Finding("export-stale", Severity.WARNING, count=2)]


def test_advice_on_collectives_rests_on_all_ranks():
    """The first rank waits for the second, whose own collectives take next to nothing: nothing is to be gained by them."""
    files = sorted((DATA / "ranks" / "4_gpus").glob("*.json.gz"))[:2]
    together = summarise([read(path) for path in files])
    apart = summarise_many([str(path) for path in files], Options())
    priced = {row.id: row.saving_ns for row in apart.advice}
    assert priced == {row.id: row.saving_ns for row in together.advice}
    assert "exposed-communication" not in priced
    assert not any("One rank alone" in row.why for row in apart.advice)
