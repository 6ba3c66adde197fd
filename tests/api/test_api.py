"""The Python API: what a program and a notebook call."""

import doctest
import inspect
import pickle
import re
import subprocess
import sys

import pandas as pd
import pytest

import profkit
from profkit.api.tables import TABLES
from profkit.roofline.launch_table import LAUNCH_COLUMNS
from tests.packaging.conftest import ROOT
from tests.shared import DATA

TRACE, SNAPSHOT = str(DATA / "kineto/sync_item.json.gz"), str(DATA / "snapshot/leak.pickle.gz")
PROGRAM = ROOT / "tests" / "api" / "whole_api.py"


@pytest.fixture(scope="module")
def report():
    return profkit.analyze(TRACE)


def test_a_program_that_uses_the_whole_api_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), TRACE, SNAPSHOT, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    text = PROGRAM.read_text()
    assert [name for name in profkit.__all__ if f"profkit.{name}" not in text] == []


@pytest.mark.slow
def test_the_program_has_types_that_a_strict_checker_accepts():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(PROGRAM)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("table", [*TABLES, "launches"])
def test_tables_keep_their_columns_when_empty(table):
    of_snapshot, of_trace = (getattr(profkit.analyze(path), table) for path in (SNAPSHOT, TRACE))
    assert isinstance(of_snapshot, pd.DataFrame)
    assert list(of_snapshot.columns) == list(of_trace.columns)
    assert len(of_trace.columns)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_an_attribute(table, report):
    pd.testing.assert_frame_equal(getattr(report, table), report.table(table, per="window"))


def test_a_table_per_step_is_the_sum_divided(report):
    steps = int(report.steps.kept.sum())
    per_step, whole = report.table("kernels"), report.kernels
    assert list(per_step.total_ms) == pytest.approx(list(whole.total_ns / steps / 1e6))
    assert list(per_step["count"]) == pytest.approx(list(whole["count"] / steps))
    assert list(per_step.mean_ns) == list(whole.mean_ns)
    assert report.table("idle").total_ms.sum() == pytest.approx(report.document.idle.total_ns / steps / 1e6)


def test_a_wrong_table_says_which_there_are(report):
    with pytest.raises(profkit.AnalysisError, match="It has kernels, phases"):
        report.table("kernel")
    with pytest.raises(profkit.AnalysisError, match='Write "step" or "window"'):
        report.table("kernels", per="second")


@pytest.mark.parametrize(
    "files", [[TRACE], [str(DATA / "nsys/ddp.sqlite.gz")], [str(DATA / "run_gpt")]], ids=str
)
def test_launches_add_up_to_the_tables(files):
    report = profkit.analyze(files)
    launches = report.launches
    assert list(launches.columns) == list(LAUNCH_COLUMNS)
    kept = launches[launches.step.isin(report.steps.name[report.steps.kept])]
    kernels = kept[kept.grid.notna()]
    sums = kernels.groupby("name").duration_ns.agg(["sum", "count"])
    table = report.kernels.groupby("name")[["total_ns", "count"]].sum()
    assert sums["sum"].to_dict() == table.total_ns.to_dict()
    assert sums["count"].to_dict() == table["count"].to_dict()
    assert launches.duration_ns.ge(0).all()
    assert set(launches.device) == set(report.devices.id)
    shapes = {(row.name, row.grid, row.block) for row in report.document.kernels}
    assert set(zip(kernels.name, kernels.grid, kernels.block, strict=True)) == shapes


def test_launches_of_other_steps_and_none_are_there(report):
    launches, steps = report.launches, report.steps
    assert len(launches) >= sum(launches.step.isin(steps.name[steps.kept]))
    assert launches.start_ns.is_monotonic_increasing
    assert set(launches.step.dropna()) <= set(steps.name)
    assert launches.operator.notna().any()


def test_a_saved_report_has_no_launches(report, tmp_path):
    saved = profkit.load(report.save(tmp_path / "r.json"))
    with pytest.raises(profkit.AnalysisError, match="Analyse the recording again"):
        _ = saved.launches
    pd.testing.assert_frame_equal(saved.kernels, report.kernels)


def test_a_report_can_be_pickled(report):
    again = pickle.loads(pickle.dumps(report))
    pd.testing.assert_frame_equal(again.launches, report.launches)


def test_peaks_are_a_name_or_a_file(tmp_path):
    named = profkit.analyze(TRACE, peaks="H100").document.devices[0]
    assert "H100" in named.peaks_source or named.peaks["bf16"] == pytest.approx(989, rel=0.01)
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nbf16_tensor = 123\nbandwidth_gbs = 1000\n')
    assert profkit.analyze(TRACE, peaks=file).document.devices[0].peaks["bf16"] == 123
    with pytest.raises(profkit.ProfkitError, match="neither a file nor a known GPU"):
        profkit.analyze(TRACE, peaks="abacus")


def test_durations_and_sizes_are_texts():
    text, number = (
        profkit.analyze(TRACE, **given) for given in ({"plain_step": "3ms"}, {"plain_step_ns": 3_000_000})
    )
    assert text.document == number.document
    assert text.document.method.options.plain_step_ns == 3_000_000
    with pytest.raises(profkit.ProfkitError, match="not a duration"):
        profkit.analyze(TRACE, plain_step="3")
    with pytest.raises(profkit.ProfkitError, match="given twice"):
        profkit.analyze(TRACE, plain_step="3ms", plain_step_ns=3)
    assert profkit.fit([SNAPSHOT], memory="24GB") == profkit.fit([SNAPSHOT], memory_bytes=24 * 10**9)


def test_the_examples_in_docstrings_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner()
    for name in profkit.__all__:
        thing = getattr(profkit, name)
        if not inspect.ismodule(thing):
            for test in finder.find(thing, name, globs={}):
                runner.run(test)
    assert runner.failures == 0
    assert runner.tries >= 8


@pytest.mark.parametrize("name", profkit.__all__)
def test_public_functions_document_every_argument_with_its_unit(name):
    thing = getattr(profkit, name)
    doc = inspect.getdoc(thing)
    assert doc
    if not inspect.isfunction(thing):
        return
    for each in inspect.signature(thing).parameters:
        assert f"{each}:" in doc, each
        if each.endswith("_ns"):
            assert "in ns" in doc


WRONG = {
    "a number for a file": (lambda: profkit.analyze(3), "3 names no recording"),
    "nothing": (lambda: profkit.analyze(None), "None names no recording"),
    "an empty list": (lambda: profkit.analyze([]), "names no recording"),
    "a time without a unit": (lambda: profkit.analyze(TRACE, plain_step=0.0383), "0.0383 is not a duration"),
    "a time in words": (lambda: profkit.analyze(TRACE, plain_step="soon"), "'soon' is not a duration"),
    "an unknown GPU": (lambda: profkit.analyze(TRACE, peaks="H1000"), "neither a file nor a known GPU"),
    "an unknown step": (lambda: profkit.analyze(TRACE, step="nope"), "no range has this name"),
    "a device by torch's name": (lambda: profkit.analyze(TRACE, device="cuda:0"), "no such device"),
    "an unknown change": (lambda: profkit.what_if(TRACE, ["tf23"]), "no change is called 'tf23'"),
    "an unknown change as text": (lambda: profkit.what_if(TRACE, "tf32,tf23"), "no change is called 'tf23'"),
    "a negative batch": (lambda: profkit.fit(SNAPSHOT, batch=-1), "batch=-1 is no multiple"),
    "an endless batch": (lambda: profkit.fit(SNAPSHOT, batch=1e300), "up to 1024"),
    "a batch in words": (lambda: profkit.fit(SNAPSHOT, batch="two"), "batch='two' is no multiple"),
    "no ranks": (lambda: profkit.fit(SNAPSHOT, ranks=0), "ranks=0 is not a whole number"),
    "an unknown optimizer": (
        lambda: profkit.fit(SNAPSHOT, optimizer="lion"),
        "no optimizer is called 'lion'",
    ),
    "an unknown shard": (lambda: profkit.fit(SNAPSHOT, shard="zero9"), "no shard is called 'zero9'"),
    "a size without a unit": (lambda: profkit.fit(SNAPSHOT, memory=24), "24 is not a size"),
    "a trace to fit": (lambda: profkit.fit(TRACE), "there is no memory snapshot"),
    "an unknown limit": (lambda: profkit.gate(TRACE, {"max-stepp": "1s"}), "there is no such limit"),
    "a limit in words": (lambda: profkit.gate(TRACE, {"max-step": "fast"}), "'fast' is no limit"),
    "a number to try": (lambda: profkit.try_(5), "cannot run 5"),
    "a number to time": (lambda: profkit.benchmark(3), "cannot call 3"),
    "a number to mark": (lambda: profkit.instrument(3), "3 is not a torch.nn.Module"),
    "a number to watch": (lambda: profkit.numerics(3), "3 is not a torch.nn.Module"),
    "a phase without a name": (lambda: profkit.phase(3), "cannot mark 3"),
    "no such file": (lambda: profkit.compare(TRACE, "gone.json"), "there is no such file"),
    "no such history": (lambda: profkit.load("gone.db#1"), "there is no such history"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_what_is_wrong(name):
    call, said = WRONG[name]
    with pytest.raises(profkit.ProfkitError, match=re.escape(said)):
        call()


def test_an_answer_reads_as_the_command_line_prints_it():
    priced, room = profkit.what_if(TRACE, "tf32"), profkit.fit(SNAPSHOT, batch=2)
    assert str(priced).startswith("Without the recorder: ")
    assert "Peak allocated" in str(room)
    shown = []
    printer = type("Printer", (), {"text": lambda _, text: shown.append(text)})()
    priced._repr_pretty_(printer, False)
    room._repr_pretty_(printer, False)
    assert shown == [str(priced), str(room)]
