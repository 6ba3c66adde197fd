"""Odd places, odd names and odd moments, through the command line as a user has it."""

import gzip
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import profkit
from profkit.api import export_timeline
from profkit.cli import main
from tests.shared import DATA

TRACE = DATA / "kineto/sync_item.json.gz"
PROFKIT = [sys.executable, "-m", "profkit"]


def run(*arguments, **options):
    result = CliRunner().invoke(main, [str(a) for a in arguments], **options)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def hidden_files(folder):
    return [file.name for file in folder.iterdir() if file.name.startswith(".")]


@pytest.fixture
def trace(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    file = folder / "trace.json.gz"
    file.write_bytes(TRACE.read_bytes())
    return file


@pytest.mark.parametrize("way", ["itself", "folder", "pattern", "soft link", "hard link"])
def test_no_input_is_written_over_however_it_is_named(trace, way):
    target = trace
    given = {"folder": trace.parent, "pattern": trace.parent / "*.gz"}.get(way, trace)
    if way.endswith("link"):
        target = trace.parent.parent / "report.html"
        (target.symlink_to if way == "soft link" else target.hardlink_to)(trace)
    result = run("analyze", given, "-o", target)
    assert result.exit_code == 1
    assert "it is one of the inputs" in result.output
    assert trace.read_bytes() == TRACE.read_bytes()


def test_standard_input_is_not_written_over(trace):
    with trace.open("rb") as source:
        done = subprocess.run(
            [*PROFKIT, "analyze", "-", "-o", trace], stdin=source, capture_output=True, text=True
        )
    assert done.returncode == 1
    assert "it is one of the inputs" in done.stderr
    assert trace.read_bytes() == TRACE.read_bytes()


def test_a_history_is_not_written_over_by_a_run_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("analyze", TRACE, "-q", "-o", "r.html", "--db", "runs.db").exit_code == 0
    assert run("show", "runs.db#1", "-o", "runs.db").exit_code == 1
    assert run("show", "runs.db#1").exit_code == 0


def test_a_report_in_the_folder_is_no_recording_of_it(trace):
    report = trace.parent / "report.json"
    for _ in range(2):
        assert run("analyze", trace.parent, "-q", "-o", report).exit_code == 0
    assert [each["path"] for each in json.loads(report.read_bytes())["inputs"]] == [trace.name]


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real.html").write_text("old")
    link = tmp_path / "link.html"
    link.symlink_to("real.html")
    assert run("analyze", TRACE, "-q", "-o", link).exit_code == 0
    assert link.is_symlink()
    assert "<html" in (tmp_path / "real.html").read_text()[:200]


def test_a_pipe_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert run("analyze", TRACE, "-q", "-o", pipe).exit_code == 0
        assert b"launch" in reader.communicate()[0]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("place", ["missing/report.html", "folder", "file/report.html", "x" * 300 + ".html"])
def test_a_place_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    result = run("analyze", TRACE, "-q", "-o", tmp_path / place)
    assert result.exit_code == 1
    assert "cannot be written" in result.output
    assert sorted(f.name for f in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_printing_where_there_is_no_room_is_one_line(unbuffered):
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROFKIT, "analyze", TRACE], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=env
        )
    assert done.returncode == 1
    assert done.stderr == "Error: standard output: No space left on device\n"


def test_a_file_that_does_not_fit_is_one_line_and_leaves_nothing(tmp_path):
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9999, 9999)); from profkit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", limited, "analyze", TRACE, "-o", tmp_path / "report.html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be written: File too large" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_early_is_no_error_to_see():
    line = f"{sys.executable} -m profkit analyze {DATA / 'kineto/gpt_bf16.json.gz'} --format json -o - | head -c 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{", "")


def test_an_interrupt_leaves_no_half_a_file(tmp_path):
    trace, target = DATA / "kineto/gpt_bf16.json.gz", tmp_path / "report.html"
    for wait in (0.2, 0.5):
        with subprocess.Popen([*PROFKIT, "analyze", trace, "-o", target], stderr=subprocess.PIPE) as process:
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            process.communicate()
        assert process.returncode != 0 or target.exists()
        assert not target.exists() or target.read_text().endswith("</html>\n")
        assert not hidden_files(tmp_path)


@pytest.mark.parametrize(
    "name",
    [b"a\xff\xfe.json.gz", b"b\x1b[31mred\n.json.gz", b"-o.json.gz", b"<b>'\".json.gz", b"a[1]*?.json.gz"],
)
def test_any_name_of_a_file_is_read_and_shown_harmlessly(tmp_path, name):
    file = tmp_path / os.fsdecode(name)
    file.write_bytes(TRACE.read_bytes())
    report = profkit.analyze(file)
    for format in ("json", "text", "md", "html"):
        shown = report.render(format)
        shown.encode()
        assert "\x1b" not in shown
    assert "<b>'" not in report.render("html")
    result = run("analyze", "-q", "-o", tmp_path / "report.html", "--", file)
    assert result.exit_code == 0


SHOWN = {
    "StringIds", "NVTX_EVENTS", "TARGET_INFO_GPU", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV",
    "DIAGNOSTIC_EVENT",
}  # fmt: skip
"""Tables with texts of the recorded program, or with facts that are taken by a fixed list of names."""


def test_what_nsys_captured_of_the_machine_reaches_no_report(tmp_path):
    """A secret in every text of every table that does not hold names, and in every environment variable."""
    export = tmp_path / "report.sqlite"
    export.write_bytes(gzip.decompress((DATA / "nsys/sync_item.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(export)) as database, database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = 0
        for table in {*tables} - SHOWN:
            for _, column, type_, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                if type_ == "TEXT" and not table.startswith("ENUM_"):
                    filled += database.execute(f'UPDATE "{table}" SET "{column}" = ?', ("hunter2",)).rowcount
        for variable in (
            "HF_TOKEN",
            "RANK",
            "AWS_SECRET_ACCESS_KEY",
            "EnvironmentVariables",
            "CommandLine",
            "UserName",
        ):
            database.execute(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV (name, nameEnum, devStateName, value) VALUES (?, 0, '', ?)",
                (variable, "hunter2"),
            )
    assert filled > 0
    report = profkit.analyze(export)
    for format in ("html", "json", "md", "text", "csv"):
        assert "hunter2" not in report.render(format)
    assert b"hunter2" not in gzip.decompress(export_timeline(export))


@pytest.mark.parametrize(
    ("closed", "way"),
    [(">&-", []), (">&- 2>&-", ["--format", "json"]), (">&-", ["-o", "report.html"]), ("2>&-", [])],
)
def test_a_closed_stream_gets_no_file_and_a_report_that_cannot_be_printed_is_an_error(trace, closed, way):
    """The shell's ``>&-``: without care an input or a report gets the number of the closed stream."""
    command = " ".join([*PROFKIT, "analyze", str(trace), *way, closed])
    before = trace.read_bytes()
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=trace.parent.parent)
    printed = way in ([], ["--format", "json"])
    assert done.returncode == (1 if printed and closed.startswith(">") else 0), done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode and "2>" not in closed:
        assert "standard output: Bad file descriptor" in done.stderr
    assert trace.read_bytes() == before
