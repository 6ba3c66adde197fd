"""One question has one answer: what analyze advises, what-if prices and fit times of one run agree."""

import json
import shutil

import pytest

import profkit
from profkit.simulation.registry import CHANGES
from tests.shared import DATA

RUNS = {
    "torch": ["kineto/gpt_fp32.json.gz"],
    "launch-bound": ["kineto/tiny_mlp.json.gz"],
    "nsys": ["nsys/sync_item.sqlite.gz"],
    "two ranks": ["kineto/ddp_rank0.json.gz", "kineto/ddp_rank1.json.gz"],
}


def prices(given):
    """What a report says with a price, each change with the step before, after and the speed-up, and what what-if says."""
    report, answer = profkit.analyze(given).document, profkit.what_if(given)
    step, said = report.step, {row.name: row for row in answer.changes}
    assert (answer.before_ns, answer.recorded_ns) == (step.unprofiled_ns.likely, step.recorded_ns)
    assert answer.source == step.source
    rows = [row for row in report.advice if row.speedup and row.change in CHANGES]
    for row in (each for each in rows if each.precondition_unmet):
        said[row.change] = profkit.what_if(given, ["no-sync", row.change]).changes[-1]
    told = {row.change: (row.before_ns, row.after_ns, row.speedup) for row in rows}
    return told, {name: (answer.before_ns, said[name].after_ns, said[name].speedup) for name in told}


@pytest.mark.parametrize("files", RUNS.values(), ids=RUNS)
def test_advice_says_what_what_if_says(files):
    told, said = prices([DATA / each for each in files])

    assert told
    assert told == said


def test_both_read_the_step_that_a_run_folder_tells(tmp_path):
    shutil.copy(DATA / "kineto/gpt_fp32.json.gz", tmp_path / "trace.json.gz")
    run = {"schema": "profkit.run/1", "files": ["trace.json.gz"], "plain_step_median_ns": 61_000_000}
    (tmp_path / "run.json").write_text(json.dumps(run))

    told, asked = prices([tmp_path])

    assert told == asked
    assert {before for before, _, _ in told.values()} == {61_000_000}
