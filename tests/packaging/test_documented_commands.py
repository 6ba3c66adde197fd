"""Every `profkit ...` that the documentation shows is one that the command line takes."""

import contextlib
import re
import shlex

import click
import pytest

from profkit.cli import main
from tests.packaging.conftest import ROOT
from tests.packaging.test_wheel import command_names

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^ *(?:\$ |(?:- )?run: )?(profkit [a-z].*)$", re.MULTILINE)
MENTION = re.compile(r"`(profkit [a-z][^`]*)`")


def arguments(line):
    """What the shell would pass on: without its comment, up to a pipe."""
    return shlex.split(re.split(r"\s#|\s\|\s", line)[0])[1:]


def commands_of(page):
    """Whole commands, each on a line of its own."""
    text = page.read_text()
    return LINE.findall("\n".join(FENCED.findall(text)) if page.suffix == ".md" else text)


def mentions_of(page):
    """Commands in running text, which may leave arguments out; those with [optional parts] are grammar."""
    return [each for each in MENTION.findall(FENCED.sub("", page.read_text())) if "[" not in each]


def helps():
    for path in command_names():
        command = main
        for name in path:
            command = command.get_command(click.Context(command), name)
        yield " ".join(path), command.help


COMMANDS = [(page.name, line) for page in PAGES for line in commands_of(page)]
COMMANDS += [(f"help of {name}", line) for name, text in helps() for line in LINE.findall(text)]
MENTIONS = [(page.name, line) for page in PAGES for line in mentions_of(page)]


def parse(words, command=main, name="profkit"):
    """Click's own parsing, without running the command; a file need not exist."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        chosen, command, rest = command.resolve_command(click.Context(command), list(words))
        parse(rest, command, chosen)
        return
    try:
        command.make_context(name, list(words))
    except click.BadParameter as error:
        if not isinstance(error.param and error.param.type, click.Path):
            raise


@pytest.mark.parametrize(("place", "line"), dict.fromkeys(COMMANDS))
def test_a_documented_command_is_one(place, line):
    parse(arguments(line))


@pytest.mark.parametrize(("place", "line"), dict.fromkeys(MENTIONS))
def test_a_mentioned_command_has_the_options_that_are_mentioned(place, line):
    with contextlib.suppress(click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        parse(arguments(line))


@pytest.mark.parametrize(
    "line",
    ["profkit analyse x", "profkit gate x --max-stepp +3%", "profkit export x", "profkit show a b", "profkit analyze x --format pdf"],
)  # fmt: skip
def test_what_is_no_command_is_found(line):
    with pytest.raises(click.UsageError):
        parse(arguments(line))


def test_every_command_is_documented():
    assert len(COMMANDS) > 50
    assert {line.split()[1] for _, line in COMMANDS + MENTIONS} == {path[0] for path in command_names()}
