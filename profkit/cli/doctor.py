"""``profkit doctor``: what can be recorded here."""

from __future__ import annotations

import dataclasses
import json

import click

__all__ = ["command"]


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a check.")
def command(as_json: bool) -> None:
    """Say what can be recorded on this machine, and what mends each lack."""
    from profkit.recording.doctor import examine

    for check in examine():
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(check)))
            continue
        click.echo(f"{'ok     ' if check.ok else 'missing'}  {check.name}: {check.found}")
        if not check.ok:
            click.echo(f"         needed for {check.needed_for}\n         to mend: {check.mend}")
