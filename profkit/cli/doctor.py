"""``profkit doctor``: what can be recorded here."""

from __future__ import annotations

import dataclasses
import json

import click

__all__ = ["command"]


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each check.")
def command(as_json: bool) -> None:
    """Check which recorders work on this machine, and how to fix the rest.

    The exit code is 1 if none does.
    """
    from profkit.recording.doctor import examine, recorders

    checks = examine()
    for check in checks:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(check)))
            continue
        click.echo(f"{'ok     ' if check.ok else 'missing'}  {check.name}: {check.found}")
        if not check.ok:
            click.echo(f"         needed for {check.needed_for}\n         to fix: {check.fix}")
    found = recorders(checks)
    if not as_json:
        click.echo(f"\nRecorders that work here: {', '.join(found) or 'none'}")
    click.get_current_context().exit(0 if found else 1)
