"""Finding the way: suggestions, exit codes in the help, completion, and short lines."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from profkit.cli import main
from tests.packaging.test_wheel import command_names


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("analyse", "analyze"),
        ("comapre", "compare"),
        ("what-if", "whatif"),
        ("hist", "history"),
        ("recrod", "record"),
    ],
)
def test_a_command_that_is_none_names_the_nearest(typed, meant):
    done = CliRunner().invoke(main, [typed, "x"])
    assert done.exit_code == 2
    assert f"No such command '{typed}'. Did you mean" in done.output
    assert meant in done.output


def test_what_is_near_nothing_is_only_refused():
    done = CliRunner().invoke(main, ["zzzzzz"])
    assert done.exit_code == 2
    assert "Did you mean" not in done.output


def test_an_option_that_is_none_names_the_nearest():
    done = CliRunner().invoke(main, ["analyze", "x", "--plain-stp", "3ms"])
    assert done.exit_code == 2
    assert "--plain-step" in done.output


def test_the_help_has_the_exit_codes():
    text = CliRunner().invoke(main, ["--help"]).output
    for code in ("0 done", "1 the input cannot be analysed", "2 wrong usage", "3 a gate failed"):
        assert code in text
    assert "_PROFKIT_COMPLETE=bash_source" in text


@pytest.mark.parametrize(
    ("words", "at", "found"),
    [
        ("profkit an", 1, "analyze"),
        ("profkit whatif --tf", 2, "--tf32"),
        ("profkit analyze --form", 2, "--format"),
    ],
)
def test_the_shell_completes(words, at, found):
    done = subprocess.run(
        [sys.executable, "-c", "from profkit.cli import main; main(prog_name='profkit')"],
        env={**os.environ, "_PROFKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert f"plain,{found}" in done.stdout.splitlines()


def test_no_help_shows_the_mark_that_keeps_its_lines_apart():
    for path in command_names():
        text = CliRunner().invoke(main, [*path, "--help"]).output
        assert "\\b" not in text
        # Wrapped together, examples would be one paragraph.
        assert "profkit " not in text.partition("Examples:")[2].split("\n")[0]
