"""Write the reference for users from the code: docs/commands.md, docs/api.md and the words in docs/glossary.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import Any

import click

import profkit
from profkit import errors
from profkit.cli import main as command_line
from profkit.rendering.sentences.labels import BASES, BOUNDS, CAUSES, SHARES

DOCS = Path(__file__).parents[1]
WORDS = re.compile(r"(<!-- words: [^\n]*-->\n).*?(<!-- end of words -->)", re.DOTALL)
MADE = "<!-- Made from the code: python docs/dev/reference.py -->"


def pages() -> dict[Path, str]:
    """The pages by where they lie."""
    glossary = DOCS / "glossary.md"
    return {
        DOCS / "commands.md": commands_page(),
        DOCS / "api.md": api_page(),
        glossary: WORDS.sub(lambda found: f"{found[1]}\n{words()}\n{found[2]}", glossary.read_text()),
    }


def words() -> str:
    """What a report calls its shares, idle causes, bounds and bases."""
    parts = []
    for title, terms in (
        ("share of the time", SHARES),
        ("cause of idle time", CAUSES),
        ("bound of a kernel", BOUNDS),
    ):
        rows = [f"| `{name}` | {term.label} | {cell(term.meaning)} |" for name, term in terms.items()]
        parts.append("\n".join([f"| {title} | shown as | the GPU is, or was |", "|---|---|---|", *rows]))
    rows = [f"| `{name}` | {cell(meaning)} |" for name, meaning in BASES.items()]
    parts.append("\n".join(["| basis of a number | where it comes from |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def commands_page() -> str:
    """Every command with its help and options."""
    parts = [MADE, "# Commands", "What `profkit COMMAND --help` prints.", prose(command_line.epilog or "")]
    for path, command in commands(command_line, ("profkit",)):
        context = click.Context(command, info_name=" ".join(path))
        usage = command.get_usage(context)
        parts += [
            f"## {' '.join(path)}",
            f"```text\n{usage}\n```",
            prose(inspect.cleandoc(command.help or "")),
        ]
        options = [
            each.get_help_record(context)
            for each in command.get_params(context)
            if isinstance(each, click.Option)
        ]
        rows = [f"| `{cell(name)}` | {cell(text)} |" for name, text in filter(None, options)]
        if rows:
            parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def prose(help_text: str) -> str:
    """A command's help as Markdown: its examples, which click leaves as they are, in a block."""
    parts = []
    for paragraph in help_text.split("\n\n"):
        literal = paragraph.lstrip().startswith("\b")
        text = dedent(paragraph.replace("\b\n", "")).strip("\n")
        parts.append(f"```console\n{text}\n```" if literal else " ".join(text.split()))
    return "\n\n".join(parts)


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def api_page() -> str:
    """Every public name with its signature and docstring."""
    parts = [MADE, "# Python", "The public names of `profkit`. Everything else may change between versions."]
    for name in profkit.__all__:
        thing = getattr(profkit, name)
        if inspect.ismodule(thing):
            for each in thing.__all__:
                parts += entry(f"profkit.{name}.{each}", getattr(thing, each))
        elif not (
            inspect.isclass(thing) and issubclass(thing, Exception)
        ):  # the tree of errors below has these
            parts += entry(f"profkit.{name}", thing)
    parts += ["## Errors", "```text\n" + dedent(inspect.getdoc(errors) or "") + "\n```"]
    return "\n\n".join(parts) + "\n"


def entry(name: str, thing: Any) -> list[str]:
    """One function or class; of a class its public methods and properties too."""
    parts = [f"## {name}", f"```python\n{signature(name, thing)}\n```", documented(thing)]
    members = vars(thing) if inspect.isclass(thing) else {}
    public = {
        each: member
        for each, member in members.items()
        if not each.startswith("_") and inspect.getdoc(member)
    }
    properties = {
        each: member for each, member in public.items() if isinstance(member, property | cached_property)
    }
    if properties:
        parts.append(
            "\n".join(
                f"- `{each}`: {' '.join(documented(member).split())}" for each, member in properties.items()
            )
        )
    for each, member in public.items():
        if inspect.isfunction(member):
            title = f"{name.rpartition('.')[2]}.{each}"
            parts += [f"### {title}", f"```python\n{signature(title, member)}\n```", documented(member)]
    return parts


def signature(name: str, thing: Any) -> str:
    """The call as it is written."""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):  # an object made by a factory
        return name
    text = re.sub(r"<object object at 0x[0-9a-f]+>|<factory>", "...", text.replace("'", ""))
    return f"{name}{text}"


def documented(thing: Any) -> str:
    """A docstring, Google style, as Markdown: sections become lists."""
    lines, made = (inspect.getdoc(thing) or "").splitlines(), []
    section = False
    for line in lines:
        if re.fullmatch(r"(Args|Raises|Returns|Yields|Example):", line):
            section = line != "Example:"
            made += [f"**{line[:-1]}**", ""]
        elif section and re.match(r"    \S", line):
            name, colon, rest = line.strip().partition(": ")
            made.append(f"- `{name}`: {rest}" if colon and " " not in name else f"- {line.strip()}")
        elif section and line.startswith("     "):
            made[-1] += f" {line.strip()}"
        else:
            made.append(line)
    return re.sub(r"``(.+?)``", r"`\1`", "\n".join(made)).strip()


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text)
        print(f"Wrote {path.name}")


if __name__ == "__main__":
    main()
