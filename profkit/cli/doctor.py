"""``profkit doctor``: what can be recorded here."""

from __future__ import annotations

import dataclasses
import json

import click

from profkit.cli.options import format_options
from profkit.cli.streams import echo

__all__ = ["command"]


@click.command(name="doctor")
@format_options("text", "json")
def command(format_: str | None) -> None:
    """Check which recorders work on this machine, and how to fix the rest.

    The exit code is 1 if none does.
    """
    from profkit.recording.doctor import examine, recorders

    checks = examine()
    for check in checks:
        if format_ == "json":
            echo(json.dumps(dataclasses.asdict(check)))
            continue
        echo(f"{'ok     ' if check.ok else 'missing'}  {check.name}: {check.found}")
        if not check.ok:
            echo(f"         needed for {check.needed_for}\n         to fix: {check.fix}")
    found = recorders(checks)
    if format_ != "json":
        echo(f"\nRecorders that work here: {', '.join(found) or 'none'}")
    click.get_current_context().exit(0 if found else 1)
