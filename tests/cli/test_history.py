import json

import pytest
from click.testing import CliRunner

from profkit.cli import main
from tests.shared import DATA

EAGER, COMPILED = (str(DATA / "nsys" / f"{name}.sqlite.gz") for name in ("gpt_bf16", "gpt_bf16_compile"))


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Five runs of one step, then two of a faster one."""
    folder = tmp_path_factory.mktemp("history")
    for number, file in enumerate([EAGER] * 5 + [COMPILED] * 2):
        tag = f"number={number}"
        done = run(
            "analyze",
            file,
            "-q",
            "-o",
            folder / "r.json",
            "--db",
            folder / "h.db",
            "--tag",
            tag,
            "--tag",
            "branch=main",
        )
        assert done.exit_code == 0, done.output
    return folder / "h.db"


def test_runs_are_listed_with_their_tags(history):
    lines = run("history", "--db", history).output.splitlines()
    assert len(lines) == 8
    assert "40.232 ms" in lines[1]
    assert "branch=main number=0" in lines[1]
    assert len(run("history", "--db", history, "--tag", "number=3").output.splitlines()) == 2


def test_the_run_where_a_number_changed_is_named(history, tmp_path):
    page = tmp_path / "trend.html"
    result = run("history", "--db", history, "--phase", "forward", "--metric", "gpu_ms", "-o", page)
    assert "forward gpu_ms changed with run 6" in result.output
    text = page.read_text()
    assert "changed with run 6" in text
    assert "default-src 'none'" in text
    document = json.loads(run("history", "--db", history, "--family", "copy", "--format", "json").output)
    assert [change["run"] for change in document["changes"]] == [6]
    assert run("history", "--db", history, "--family", "gemm").output.endswith(
        "has not changed over 7 runs\n"
    )


def test_a_saved_run_is_shown_as_the_report_it_was(history, tmp_path):
    shown, plain = tmp_path / "shown.json", tmp_path / "plain.json"
    assert run("show", f"{history}#1", "-o", shown).exit_code == 0
    assert run("analyze", EAGER, "-q", "-o", plain).exit_code == 0
    assert shown.read_bytes() == plain.read_bytes()
    for format_ in ("text", "md", "csv", "html"):
        assert len(run("show", f"{history}#latest", "--format", format_).output) > 1000
    assert run("show", shown).output == run("show", f"{history}#1").output


def test_a_saved_run_is_exported_as_its_report(history, tmp_path):
    assert run("export", f"{history}#1", "-o", tmp_path / "report.json").exit_code == 0
    assert json.loads((tmp_path / "report.json").read_text())["schema"] == "profkit.report/2"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "{db}#99"], 1, "no such run"), (["show", "missing.db#1"], 1, "no such history"),
        (["history", "--db", "missing.db"], 1, "no such history"), (["history", "--db", EAGER], 1, "not a history database"),
        (["history", "--db", "{db}", "--phase", "a", "--idle", "b"], 2, "one of"),
        (["history", "--db", "{db}", "--metric", "speed"], 1, "there is no metric"),
        (["history", "--db", "{db}", "--tag", "x"], 2, "KEY=VALUE"),
        (["analyze", EAGER, "--tag", "x"], 2, "KEY=VALUE"), (["compare", "{db}#1", "{db}#6"], 0, "Faster"),
        (["history", "--db", "{db}", "--phase", "nothing"], 0, "has not changed over 0 runs"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_clear_line(history, arguments, code, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*(argument.format(db=history) for argument in arguments))
    assert result.exit_code == code
    assert says in result.output
    assert not list(tmp_path.iterdir())


def test_versions_and_revision_come_from_the_run_file(tmp_path):
    import sqlite3
    from shutil import copy

    copy(EAGER, tmp_path / "trace.sqlite.gz")
    facts = {
        "schema": "profkit.run/1",
        "versions": {"torch": "2.11"},
        "git": {"revision": "abc", "dirty": True},
        "driver": "580",
    }
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert run("analyze", tmp_path, "-q", "-o", tmp_path / "r.html", "--db", tmp_path / "h.db").exit_code == 0
    database = sqlite3.connect(tmp_path / "h.db")
    assert database.execute("SELECT git_revision, git_dirty FROM runs").fetchall() == [("abc", 1)]
    assert database.execute("SELECT value FROM environment WHERE key = 'torch'").fetchall() == [("2.11",)]
    database.close()
