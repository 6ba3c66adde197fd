"""``profkit scrub``: a recording without what tells who recorded it, and with which secrets."""

from __future__ import annotations

import click

from profkit.cli.streams import echo
from profkit.units import count_text

__all__ = ["command"]


@click.command(name="scrub")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE|FOLDER",
    help="Write the copy here; of several files, into this folder.",
)
@click.option("--threads", is_flag=True, help="Hide the names of host threads too.")
@click.option("--word", "words", multiple=True, metavar="TEXT", help="Hide this too; may be repeated.")
def command(files: tuple[str, ...], output: str, threads: bool, words: tuple[str, ...]) -> None:
    """Make a copy of a recording that can be shared, and say what was removed.

    FILE is an nsys export, a torch.profiler trace, a memory snapshot, a table of ncu, or a run.json. Values of the
    environment, access keys, names of people and machines, addresses, command lines and folders are removed; a report
    of the copy has the same numbers. Names of phases, modules and files stay: look at them before you share.

    \b
    Examples:
      profkit scrub report.sqlite -o shared.sqlite
      profkit scrub trace.json.gz snapshot.pickle -o shared/ --threads --word project-x
    """
    from profkit.api.scrubbing import scrub

    for found in scrub(files, output, threads=threads, words=words):
        removed = ", ".join(f"{count_text(count)} {what}" for what, count in found.removed.items())
        echo(f"Wrote {found.path}: {removed or 'nothing'} removed", err=True)
