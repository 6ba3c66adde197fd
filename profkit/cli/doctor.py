"""``profkit doctor``: what can be recorded here."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from profkit.cli.options import format_options
from profkit.cli.streams import echo

if TYPE_CHECKING:
    from profkit.recording.doctor import Check

__all__ = ["command"]


@click.command(name="doctor")
@format_options("text", "json")
def command(format_: str | None) -> None:
    """Check which recorders work on this machine, and how to fix the rest.

    A recorder that is not installed is no fault: files are analysed without any. The exit code is 1 if something is
    installed and does not work.
    """
    from profkit.recording.doctor import examine, recorders

    checks = examine()
    for check in checks:
        if format_ == "json":
            echo(json.dumps(dataclasses.asdict(check)))
            continue
        echo(f"{_state(check):7}  {check.name}: {check.found}")
        if not check.ok:
            echo(f"         needed for {check.needed_for}\n         to fix: {check.fix}")
    found = recorders(checks)
    if format_ != "json":
        echo(f"\nRecorders that work here: {', '.join(found) or 'none; files can be analysed without one'}")
    click.get_current_context().exit(1 if any(check.broken for check in checks) else 0)


def _state(check: Check) -> str:
    if check.ok:
        return "ok"
    return "broken" if check.broken else "missing"
