"""One annotated script on a GPU, once under nsys and once under torch.profiler with memory (tests/data/run_gpt).

Made by ``profkit record nsys --capture -- python examples/annotated_gpt.py`` and the script alone. Read here with
nothing but the standard library, so that the recorder is judged by its files and not by our readers.
"""

import bisect
import collections
import gzip
import json
import pickle
import sqlite3

import pytest

from tests.shared import DATA

RUN = DATA / "run_gpt"
PHASES = {
    "data",
    "forward",
    "attention",
    "scores",
    "softmax",
    "value",
    "mlp",
    "loss",
    "backward",
    "optimizer",
}


def innermost(ranges, time):
    """The name of the range that started last among those open at ``time``; None outside of all."""
    started = bisect.bisect_right([start for start, _, _ in ranges], time)
    for _, end, name in reversed(ranges[:started]):
        if end >= time:
            return name
    return None


def kernels_by_phase(ranges, launches):
    """Kernels by the phase open at their launch: on its own thread, else (autograd) on the marked thread."""
    marked = {thread: sorted(rows) for thread, rows in ranges.items()}
    (main,) = marked
    return collections.Counter(innermost(marked.get(thread, marked[main]), time) for thread, time in launches)


@pytest.fixture(scope="module")
def nsys(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "nsys.sqlite"
    path.write_bytes(gzip.decompress((RUN / "nsys.sqlite.gz").read_bytes()))
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = connection.execute(
        "SELECT n.globalTid, n.start, n.end, s.value FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId"
        " WHERE n.eventType = 59 AND n.domainId = (SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND"
        " text = 'profkit') AND s.value NOT LIKE 'ProfilerStep%'"
    )
    ranges = collections.defaultdict(list)
    for thread, start, end, name in rows:
        ranges[thread].append((start, end, name))
    launches = connection.execute(
        "SELECT r.globalTid, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r"
        " ON r.correlationId = k.correlationId AND (r.globalTid >> 24) = (k.globalPid >> 24)"
    ).fetchall()
    connection.close()
    return ranges, launches


@pytest.fixture(scope="module")
def kineto():
    events = json.loads(gzip.decompress((RUN / "trace.json.gz").read_bytes()))["traceEvents"]
    ranges = collections.defaultdict(list)
    calls, kernels = {}, []
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "user_annotation" and name.startswith("profkit::"):
            row = (event["ts"], event["ts"] + event["dur"], name.removeprefix("profkit::"))
            ranges[event["tid"]].append(row)
        elif kind in ("cuda_runtime", "cuda_driver"):
            calls[event["args"]["correlation"]] = (event["tid"], event["ts"])
        elif kind == "kernel":
            kernels.append(event["args"]["correlation"])
    return ranges, [calls[correlation] for correlation in kernels]


def test_both_recordings_hold_the_same_phases_as_often(nsys, kineto):
    counts = [
        collections.Counter(name for rows in ranges.values() for *_, name in rows)
        for ranges in (nsys[0], kineto[0])
    ]
    assert counts[0] == counts[1]
    assert set(counts[0]) == PHASES
    assert counts[0]["forward"] == counts[0]["backward"] == counts[0]["optimizer"] == 3


def test_both_recordings_give_each_phase_the_same_kernels(nsys, kineto):
    by_nsys, by_kineto = kernels_by_phase(*nsys), kernels_by_phase(*kineto)
    assert by_nsys == by_kineto
    assert sum(by_nsys.values()) == 432
    assert all(
        by_nsys[name] > 0 for name in ("forward", "scores", "softmax", "value", "backward", "optimizer")
    )
    assert None not in by_nsys, "a kernel without a phase"


def test_the_snapshot_holds_the_same_phases():
    snapshot = pickle.loads(gzip.decompress((RUN / "memory.pickle.gz").read_bytes()))
    marked = [entry for entry in snapshot["external_annotations"] if entry["name"].startswith("profkit::")]
    assert {entry["name"].removeprefix("profkit::") for entry in marked} == PHASES
    stages = collections.Counter((entry["name"], entry["stage"]) for entry in marked)
    for name in PHASES:
        assert stages[f"profkit::{name}", "START"] == stages[f"profkit::{name}", "END"]


def test_the_run_files_say_what_was_recorded():
    torch_run = json.loads((RUN / "run.json").read_text())
    nsys_run = json.loads((RUN / "run_nsys.json").read_text())
    assert set(torch_run["phases"]) == set(nsys_run["phases"]) == PHASES
    assert torch_run["plain_step_median_ns"] > 0
    assert nsys_run["plain_step_median_ns"] is None, "under nsys no step is without a profiler"
    assert torch_run["gpus"][0]["name"] == "NVIDIA H200"


def test_an_out_of_memory_left_its_snapshot():
    snapshot = pickle.loads((RUN / "memory_oom.pickle").read_bytes())
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions[-1] == "oom"
    assert actions.count("alloc") == 11


@pytest.mark.parametrize("machine", ["h200", "cpu"])
def test_the_measured_costs_are_within_their_limits(machine):
    measured = json.loads((DATA.parents[1] / "reports" / "recorder" / f"{machine}.json").read_text())
    limits = {
        "outside_context": 2.0,
        "outside_decorator": 2.0,
        "inside_context": 1.5,
        "inside_decorator": 1.5,
    }
    costs = [part["ratios"] for name, part in measured.items() if name.startswith("phase_cost")]
    assert len(costs) == (2 if measured["gpu"] else 1)
    for ratios in costs:
        assert all(ratios[name] <= limit for name, limit in limits.items()), ratios
    assert measured["identical"]["same"] is True
