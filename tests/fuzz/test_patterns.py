"""Every regular expression of the package takes linear time, whatever text it meets.

All are found in the source: none is listed here.
"""

import ast
import importlib
import re
import signal
from pathlib import Path

import pytest

import profkit
from tests.fuzz.costly import _UNITS

SOURCE = Path(profkit.__file__).parent
LENGTH = 8_000
MOST_SECONDS = 0.15
"""Of the processor; what takes the square of the length takes ten times as long."""
FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


class TooSlow(Exception):
    pass


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(("profkit", *path.relative_to(SOURCE).with_suffix("").parts))
        yield path, name.removesuffix(".__init__")


USED = re.compile(r"\b(\w+)\.(search|match|fullmatch|sub|subn|split|findall|finditer)\b")
NOT_FROM_FILES = {
    r"(--[\w-]+): light-dark\((#\w+),": "the package's own style sheet",
    r"([\w.-]*(?:key|token|secret": "the command line of the program that is recorded",
    r"\b(0|no|zero)\s+(\w+\s+){0,3}(dropped|lost|discarded)": "the first 1,000 characters of a message",
    r"context_(\d+)|(\d+) ctx reqs": "short names of iterations of an engine",
    r"generation_(\d+)|(\d+) gen reqs": "short names of iterations of an engine",
}
"""Patterns that meet other text, or text that is short by then, by their beginning."""


def uses_of(path, call):
    """How a pattern is used: by the call itself, or by its constant's methods anywhere in the package."""
    if call.func.attr != "compile":
        return {call.func.attr}
    line = path.read_text().splitlines()[call.lineno - 1]
    name = re.match(r"\s*(\w+)(?:: \w+)? =", line)
    if not name:  # one of a table: by whatever the file does with a variable
        return {
            use for known, use in USED.findall(path.read_text()) if known.islower() and known != "re"
        } or {"search"}
    places = [path] if name[1].startswith("_") else [each for each, _ in modules()]
    return {use for each in places for known, use in USED.findall(each.read_text()) if known == name[1]}


def patterns_of(path, name):
    """The pattern and flags of each call of ``re`` in a file, evaluated in the names of its module."""
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS
        and isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.args
    ]  # fmt: skip
    names = vars(importlib.import_module(name)) if calls else {}
    for call in calls:
        try:
            pattern = eval(compile(ast.Expression(call.args[0]), str(path), "eval"), dict(names))
        except NameError:  # made of what a function was given: of literals that were escaped
            continue
        place = {
            "compile": 1,
            "search": 2,
            "match": 2,
            "fullmatch": 2,
            "findall": 2,
            "finditer": 2,
            "split": 3,
        }.get(call.func.attr, 4)
        flags = [each.value for each in call.keywords if each.arg == "flags"] + call.args[place : place + 1]
        number = eval(compile(ast.Expression(flags[0]), str(path), "eval"), dict(names)) if flags else 0
        if isinstance(pattern, str | bytes):
            yield call.lineno, re.compile(pattern, number), uses_of(path, call)


PATTERNS = [
    pytest.param(pattern, uses, id=f"{name.removeprefix('profkit.')}:{line}")
    for path, name in modules()
    if not name.startswith("profkit.recording.integrations")
    for line, pattern, uses in patterns_of(path, name)
    if not str(pattern.pattern).startswith(tuple(NOT_FROM_FILES))
]


def texts_for(pattern):
    """Long texts that a pattern begins to match again and again, and never ends."""
    own = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    plain = re.sub(r"\\[bBdDsSwWAZ]|[()?*+|^$\[\]]|\{[\d,]*\}", " ", own).replace("\\", "")
    literals = {word for word in plain.split() if len(word) < 40}
    units = {
        *_UNITS,
        *literals,
        *(f"{word} " for word in literals),
        "=",
        "'",
        '"',
        "/",
        "://",
        "a=",
        "-",
        "\\",
        "1",
        "1.",
        ";",
    }
    for unit in sorted(units):
        for end in ("\0",):
            yield (unit * (LENGTH // len(unit) + 1))[:LENGTH] + end


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "uses"), PATTERNS)
def test_a_pattern_takes_linear_time(pattern, uses):
    def stop(*_):
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        for text in texts_for(pattern):
            given = text if isinstance(pattern.pattern, str) else text.encode("utf-8", "replace")
            for use in (
                getattr(pattern, {"match": "match", "fullmatch": "fullmatch"}.get(use, "search"))
                for use in uses
            ):
                signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
                try:
                    use(given)
                except TooSlow:
                    pytest.fail(f"{pattern.pattern!r} takes too long for {text[:30]!r} repeated")
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)


def test_patterns_are_found():
    assert len(PATTERNS) > 150
