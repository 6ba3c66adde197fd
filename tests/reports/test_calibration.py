"""The calibration study: its data are whole and clean, its matching and scoring are right, its clock is profkit's."""

import gzip
import hashlib
import importlib
import json
import re
from pathlib import Path

import pytest

from profkit.hardware import OVERHEAD_NS, QUEUE_NS
from profkit.report.assembly import summarise
from profkit.report.views import Options

FOLDER = Path(__file__).parents[2] / "reports" / "calibration"
DATA = FOLDER / "data"
LEAK = re.compile(rb"/(?:tmp|root|home|work|opt|usr)/|HOME=|PATH=|SECRET|TOKEN=")


@pytest.fixture(scope="module")
def study():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("study")


@pytest.fixture(scope="module")
def scores(study):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("scores")


@pytest.fixture(scope="module")
def workloads(study):
    return {w.name: w for w in study.workloads()}


@pytest.fixture
def recordings(study):
    return importlib.import_module("packed").unpacked()


def recording(study, work, recorder):
    return dict(study.recordings(work))[recorder]


def test_the_held_out_third_follows_from_the_names_alone(workloads):
    split = json.loads((DATA / "split.json").read_text())
    workloads = {name: work for name, work in workloads.items() if work.held_out is not None}
    for name, work in workloads.items():
        held_out = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0
        assert work.held_out is held_out
        assert (name in split["held_out"]) is held_out
    assert set(split["fit"]) | set(split["held_out"]) == set(workloads)
    assert 25 <= len(workloads) / 3 <= len(split["held_out"]) + 5


@pytest.mark.parametrize("held_out", [False, True])
def test_both_parts_have_memory_bound_matrix_products(workloads, held_out):
    found = [w for w in workloads.values() if w.kind == "matrix_memory" and w.held_out is held_out]
    assert len(found) >= 5


def test_every_workload_was_recorded_in_every_way_that_it_needs(workloads, recordings):
    plain = json.loads((DATA / "plain.json").read_text())
    for name, work in workloads.items():
        assert (recordings / "nsys" / f"{name}.sqlite.gz").exists()
        assert (recordings / "kineto" / f"{name}.json.gz").exists()
        assert (recordings / "ncu" / f"{name}.csv.gz").exists() is work.counters
        assert (name in plain) is (work.kind != "probe")


def test_the_data_name_no_machine_and_no_environment(recordings):
    files = sorted(recordings.glob("*/*.gz"))
    assert len(files) > 300
    for path in files:
        found = LEAK.search(gzip.decompress(path.read_bytes()))
        assert not found, f"{path.name}: {found}"


@pytest.mark.parametrize("recorder", ["nsys", "emit", "kineto"])
@pytest.mark.parametrize(
    "name", ["linear_train_bf16", "adam_foreach_fp32", "sort_topk_fp32", "attn_efficient_fp32"]
)
def test_every_counted_kernel_is_found_in_every_step_of_the_trace(study, workloads, recorder, name):
    work = workloads[name]
    rows = study.kernel_rows(work, recorder, recording(study, work, recorder))
    table = study.counters(work)
    assert len(rows) == len(table)
    long = [(r.time_ns, t["duration_ns"]) for r, t in zip(rows, table, strict=True) if r.time_ns > 20_000]
    assert long
    assert all(0.7 < ours / theirs < 1.3 for ours, theirs in long)


def kernel(study, **changes):
    values = dict(
        workload=study.Workload("w", "gemm", "compute", "", True, False), recorder="kineto", name="k", matrix=True,
        time_ns=20_000.0, sm=80.0, dram=20.0, measured_bytes=100.0, compulsory_read=0.0, bytes=100.0, bound="compute",
        efficiency=0.8, unsaturated=False, basis="modelled",
    )  # fmt: skip
    return study.KernelRow(**values | changes)


@pytest.mark.parametrize(
    ("sm", "dram", "matrix", "expected"),
    [(80, 20, True, "compute"), (20, 80, True, "memory"), (80, 20, False, "memory"), (44, 45, True, None), (46, 45, True, "compute")],
)  # fmt: skip
def test_counters_tell_a_side_only_above_45_percent(study, sm, dram, matrix, expected):
    assert kernel(study, sm=sm, dram=dram, matrix=matrix).expected == expected


def test_scores_are_weighted_by_time(study, scores):
    right, wrong = (
        kernel(study, time_ns=30_000.0),
        kernel(study, time_ns=10_001.0, bound="memory", bytes=200.0),
    )
    found = scores.demanded([right, wrong])
    assert found["side_agrees"]["share"] == pytest.approx(30_000 / 40_001)
    assert found["bytes_within_25_pct"]["share"] == pytest.approx(30_000 / 40_001)


def test_bytes_are_scored_for_long_kernels_and_unknown_bytes_miss(study, scores):
    short, unknown = kernel(study, time_ns=10_000.0), kernel(study, bytes=float("nan"))
    found = scores.demanded([short, unknown, kernel(study, bytes=124.0), kernel(study, bytes=126.0)])[
        "bytes_within_25_pct"
    ]
    assert found["kernels"] == 3
    assert found["share"] == pytest.approx(1 / 3)


def test_slow_kernels_must_be_called_slow_and_busy_ones_must_not(study, scores):
    slow = dict(sm=20.0, dram=10.0)
    rows = [
        kernel(study, **slow),
        kernel(study, unsaturated=True, **slow),
        kernel(study, bound="overhead", **slow),
    ]
    assert scores.demanded(rows)["slow_called_slow"]["share"] == pytest.approx(2 / 3)
    assert scores.demanded([kernel(study), kernel(study, unsaturated=True)])["busy_flagged"]["share"] == 0.5


@pytest.mark.parametrize("recorder", ["nsys", "kineto"])
def test_the_clock_of_launches_is_what_profkit_takes(study, workloads, recorder):
    clock = importlib.import_module("clock")
    found = clock.launch_clock(recording(study, workloads["probe_launches"], recorder))
    assert found["duration_ns"]["add to 1 element"]["median"] == pytest.approx(OVERHEAD_NS, rel=0.05)
    for queue in ("full queue, one element", "from stream to stream, by events", "nodes of a graph"):
        assert found["gap_ns"][queue]["count"] > 100
        assert 0 < found["gap_ns"][queue]["median"] < found["gap_ns"][queue]["p99"] < QUEUE_NS


def test_a_kernel_of_many_empty_blocks_takes_longer(study, workloads):
    clock = importlib.import_module("clock")
    durations = clock.launch_clock(recording(study, workloads["probe_launches"], "nsys"))["duration_ns"]
    many, few = durations["empty, 67584 blocks"]["median"], durations["empty, 8448 blocks"]["median"]
    assert (many - few) / (67584 - 8448) == pytest.approx(0.6, abs=0.05)


@pytest.mark.slow
def test_with_shapes_and_the_plain_step_known_the_verdict_is_the_truth_or_what_was_measured(
    study, scores, workloads
):
    wrong, ties = [], []
    fit = [w for w in workloads.values() if w.split == "fit" and w.truth != "none"]
    for work in fit:
        trace = recording(study, work, "kineto")
        row = study.verdict(work, "kineto", trace)
        if row.bound_plain != work.truth:
            sides = scores.counter_sides(study.kernel_rows(work, "kineto", trace) if work.counters else [])
            if row.bound_plain not in scores.right_answers(row, sides):
                verdict = summarise([trace], Options(plain_step_ns=round(study.plain_ms(work) * 1e6))).verdict
                named = verdict.runner_up is not None and verdict.runner_up.bound == work.truth
                (ties if named else wrong).append((work.name, work.truth, row.bound_plain))
    assert not wrong
    assert len(ties) <= 0.02 * len(fit), "a close second that the report names is half an answer: few may be"
    assert len(fit) > 50


@pytest.mark.parametrize(("busy_ms", "accepted"), [(0.4, True), (0.6, False)])
def test_launch_is_a_right_answer_only_where_most_of_the_plain_step_is_idle(study, scores, busy_ms, accepted):
    work = study.Workload("w", "gemm", "compute", "", True, False)
    row = study.VerdictRow(work, "kineto", "launch", "launch", 0.6, {}, busy_ms, 1.2, 1.0, "modelled")
    assert ("launch" in scores.right_answers(row, {"w": "memory"})) is accepted
    assert scores.right_answers(row, {"w": "memory"}) >= {"compute", "memory"}


def test_blind_workloads_are_a_split_of_their_own_once_they_are_recorded(study, scores):
    def rows(*parts):
        return [kernel(study, workload=study.Workload("w", "gemm", "compute", "", True, p)) for p in parts]

    assert list(scores.by_split(rows(True, False))["kineto"]) == ["fit", "held out"]
    found = scores.by_split(
        [*rows(None, False), kernel(study, workload=rows(None)[0].workload, bound="memory")]
    )
    assert list(found["kineto"]) == ["fit", "blind"]
    assert found["kineto"]["blind"]["side_agrees"]["share"] == 0.5
    page = importlib.import_module("tables").demands_table(found)
    assert "| kineto, fit | kineto, blind |" in page
    work = study.Workload("w", "gemm", "compute", "", True, None)
    verdict = study.VerdictRow(work, "kineto", "compute", "compute", 0.9, {}, 1.0, 1.0, 1.0, "modelled")
    assert scores.verdict_scores([verdict], {})["kineto"] == {
        "blind": {
            "recordings": 1,
            "right": 1,
            "right_knowing_plain_step": 1,
            "right_by_truth_or_measurement": 1,
        }
    }


def test_blind_and_held_out_kernels_are_not_listed_one_by_one(study):
    analyse = importlib.import_module("analyse")
    rows = [
        kernel(
            study,
            name=str(part),
            bytes=900.0,
            workload=study.Workload("w", "gemm", "compute", "", True, part),
        )
        for part in (None, True, False)
    ]
    listed = analyse.off_rows(rows, held_out=False)["Modelled bytes off by more than 25 %"]
    assert [row.name for row in listed] == ["False"]
    listed = analyse.off_rows(rows, held_out=True)["Modelled bytes off by more than 25 %"]
    assert len(listed) == 3


def test_the_report_is_written_from_the_data(study, scores, workloads):
    tables, plots = importlib.import_module("tables"), importlib.import_module("plots")
    work = workloads["gemm_tf32"]
    rows = study.kernel_rows(work, "kineto", recording(study, work, "kineto"))
    page = tables.demands_table(scores.by_split(rows))
    assert "100.0 % of 1.0 ms" in page
    assert plots.bytes_plot(rows).count("<title>gemm_tf32") == 3
