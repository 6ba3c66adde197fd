"""The command line: parses, calls, writes; decides nothing."""

from __future__ import annotations

import errno
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from profkit.cli.streams import prepare_streams
from profkit.errors import ProfkitError, printable

__all__ = ["main"]

_COMMANDS = (
    "analyze",
    "whatif",
    "fit",
    "try",
    "compare",
    "gate",
    "history",
    "show",
    "export",
    "scrub",
    "record",
    "benchmark",
    "doctor",
    "hardware",
    "mcp",
)
"""In the order of the help. Each is a module of this package with a ``command``, imported when it is used."""


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""Where a report was to be printed there is no room; files that cannot be written are told by `OutputError`."""


class _Commands(click.Group):
    """Loads a command when it is called, and turns profkit's errors into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"profkit.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        near = get_close_matches(name, _COMMANDS, 2, 0.6)
        if name not in _COMMANDS and near and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
            formatter.write_dl(
                [(name, each.get_short_help_str(limit=200)) for name, each in commands if each]
            )

    def invoke(self, ctx: click.Context) -> Any:
        prepare_streams()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except ProfkitError as error:
            raise click.ClickException(printable(str(error))) from error
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            # What is left in the buffer would fail once more at the end.
            sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            raise click.ClickException(f"standard output: {error.strerror}") from error
        return result


_EPILOG = """\b
Exit codes:  0 done; 1 the input cannot be analysed; 2 wrong usage; 3 a gate failed.
Completion:  eval "$(_PROFKIT_COMPLETE=bash_source profkit)"    # or zsh_source; put it into ~/.bashrc
"""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(package_name="profkit")
def main() -> None:
    """Find out where each millisecond of a PyTorch training step goes.

    \b
    Mark the step:    @profkit.phase("forward")
    Record it:        profkit record nsys -- python train.py
    Read it:          profkit analyze report.sqlite
    """
