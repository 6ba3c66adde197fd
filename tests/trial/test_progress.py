"""What the terminal is told while a trial runs."""

import importlib
import io
import re
import sys

import pytest


class Stderr(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def told(monkeypatch):
    def run(terminal):
        monkeypatch.setattr(sys, "stderr", Stderr(terminal))
        with importlib.import_module("profkit.cli.try")._progress(90.0) as tell:
            tell("12 s: [bold]tf32[/bold]: starting")
            tell("15 s: tf32: no faster")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stderr.getvalue())

    return run


def test_a_log_has_a_line_for_each_event(told):
    assert (
        told(terminal=False) == "profkit: 12 s: [bold]tf32[/bold]: starting\nprofkit: 15 s: tf32: no faster\n"
    )


def test_on_a_terminal_what_goes_on_stays_below_with_the_time_of_the_budget(told):
    said = told(terminal=True)
    assert "profkit: 12 s: [bold]tf32[/bold]: starting\n" in said
    assert "tf32: no faster 0:00:00 of 0:01:30" in said
