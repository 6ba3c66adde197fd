"""0 done, 1 the input could not be analysed (one line), 2 wrong usage, 3 a gate has failed.

Of several files some may be unreadable: the others are analysed, and the report says which are missing.
"""

import os

import pytest
from click.testing import CliRunner

from profkit.cli import main
from tests.packaging.test_wheel import command_names
from tests.shared import DATA

TRACE, SNAPSHOT = str(DATA / "kineto/sync_item.json.gz"), str(DATA / "snapshot/leak.pickle.gz")

DONE = [
    ["--help"], ["--version"], ["analyze", TRACE], ["analyze", TRACE, "-o", "-", "--format", "json"],
    ["analyze", SNAPSHOT, "-q", "-o", "r.html"], ["analyze", TRACE, "--save"], ["whatif", TRACE, "--no-sync"],
    ["compare", TRACE, TRACE], ["gate", TRACE, "--max-step", "1s"], ["analyze", TRACE, "missing.json"], ["show", TRACE],
    ["export", TRACE, "-o", "t.json.gz"], ["hardware"], ["hardware", "--name", "NVIDIA H200"], ["doctor"],
    ["history", "--db", "kept.db"], ["show", "kept.db#1"], ["export", "kept.db#1", "-o", "r.html"],
    ["gate", "kept.db#1", "--db", "kept.db", "--baseline", "main"],
]  # fmt: skip
NOT_ANALYSED = [
    *(["analyze", file] for file in ("missing.sqlite", "empty", "folder", "text.json", "locked.json")),
    ["analyze", TRACE, "--device", "99"], ["analyze", TRACE, "--step", "no such"],
    ["analyze", "missing.json", "empty"], ["analyze", TRACE, "-o", "missing/r.html"], ["analyze", TRACE, "-o", "folder"],
    ["analyze", TRACE, "--cluster", "nowhere"], ["analyze", TRACE, "-q", "--db", "text.json"],
    ["whatif", "missing.json"], ["whatif", SNAPSHOT], ["whatif", TRACE, "--step", "no such"],
    ["compare", TRACE, "missing.json"], ["compare", TRACE, TRACE, "-o", "missing/c.md"],
    ["gate", "missing.json", "--max-step", "1s"], ["gate", TRACE, "--baseline", "main"],
    ["gate", TRACE, "--baseline", "nobody", "--db", "kept.db"],
    ["show", "missing.json"], ["show", "kept.db#9"], ["show", "text.json"], ["export", "missing.json", "-o", "t.json.gz"],
    ["export", TRACE, "-o", "folder"], ["history"], ["history", "--db", "text.json"],
    ["hardware", "--name", "abacus"], ["benchmark", "missing.py:step"], ["record", "torch", "--", "./a.out"],
]  # fmt: skip
WRONG_USAGE = [
    *([*path, "--no-such-option"] for path in command_names()),
    ["analyse"], ["analyze"], ["analyze", TRACE, "--format", "pdf"], ["analyze", TRACE, "--device", "first"],
    ["analyze", TRACE, "--plain-step", "38"], ["analyze", TRACE, "--peaks", "missing.toml"],
    ["analyze", TRACE, "-q", "--save", "--tag", "word"], ["whatif"], ["whatif", TRACE, "--loader-workers", "0"],
    ["whatif", TRACE, "--plain-step", "38"], ["compare", TRACE], ["compare", TRACE, TRACE, "--format", "pdf"], ["compare", TRACE, TRACE, "--json", "--format", "md"], ["gate"],
    ["gate", TRACE, "--max-step", "3"], ["gate", TRACE, "--max-phase", "forward"], ["gate", TRACE, "--min-busy", "+3%"],
    ["show"], ["show", "a", "b"], ["export", TRACE], ["history", "--db", "kept.db", "--phase", "a", "--kernel", "b"],
    ["history", "--db", "kept.db", "--last", "0"], ["record", "nsys"], ["benchmark"],
    ["doctor", "me"],
]  # fmt: skip
GATE_FAILED = [
    ["gate", TRACE, "--max-step", "1ns"], ["gate", TRACE, "--min-busy", "99.9%"], ["gate", TRACE, "--max-memory", "1GiB"],
    ["gate", TRACE, "--max-phase", "no such=1s"], ["gate", SNAPSHOT, "--db", "kept.db", "--baseline", "main"],
]  # fmt: skip


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    file = tmp_path_factory.mktemp("history") / "kept.db"
    done = CliRunner().invoke(
        main, ["analyze", TRACE, "-q", "--db", str(file), "--baseline", "main", "-o", os.devnull]
    )
    return file.read_bytes() if done.exit_code == 0 else pytest.fail(done.output)


@pytest.fixture
def run(tmp_path, monkeypatch, history):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.db").write_bytes(history)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text.json").write_text("once upon a time")
    (tmp_path / "locked.json").write_text("{}")
    (tmp_path / "locked.json").chmod(0)

    def invoke(command):
        done = CliRunner().invoke(main, command)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return invoke


def said(command):
    return " ".join(command).replace(str(DATA), "data")


@pytest.mark.parametrize("command", DONE, ids=said)
def test_done_is_0(run, command):
    assert run(command).exit_code == 0


@pytest.mark.parametrize("command", NOT_ANALYSED, ids=said)
def test_what_cannot_be_analysed_is_1_and_one_line(run, command):
    done = run(command)
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")


@pytest.mark.parametrize("command", WRONG_USAGE, ids=said)
def test_wrong_usage_is_2_and_says_how(run, command):
    done = run(command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: ")
    assert "\nError: " in done.stderr


@pytest.mark.parametrize("command", GATE_FAILED, ids=said)
def test_a_gate_that_fails_is_3_and_says_why(run, command):
    done = run(command)
    assert done.exit_code == 3
    assert done.stdout.splitlines()[-1] == "The gate has failed."
    assert len(done.stdout.splitlines()) > 1
