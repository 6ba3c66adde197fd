"""Sentences are made in rendering; analysis gives codes and numbers."""

import ast
import re
from pathlib import Path

import pytest

import profkit

ROOMS_WITH_WORDS = {"rendering", "advice", "simulation", "recording", "trial", "cli"}
"""The catalogue, rules with their words beside them, the help of changes, and the rooms that talk to a terminal."""

MOST = 4

_WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z'-]*(?![\w.]*[_(])")
_NO_ENGLISH = re.compile(
    r"\s*(?:SELECT|WITH|CREATE|INSERT|UPDATE|DELETE|PRAGMA|ALTER)\b|.*\b(?:ORDER BY|GROUP BY|IN \(SELECT)\b|\s*<iframe"
    r"|.*(?:\(\?|\\[bdw]|\|)",
    re.DOTALL,
)
"""SQL, regular expressions and markup."""


def sentences(source):
    """``(line, text)`` of every string literal of five words or more that is no docstring and raised nowhere."""
    tree = ast.parse(source)
    exempt = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        exempt |= {id(node) for value in _raised(scope) for node in ast.walk(value)}
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in exempt or (id(node) in inside and not isinstance(node, ast.JoinedStr)):
            continue
        text = _text(node)
        if len(_WORD.findall(text)) >= 5 and not _NO_ENGLISH.match(text):
            yield node.lineno, text


def _text(node):
    if isinstance(node, ast.JoinedStr):
        return " ".join(each.value for each in node.values if isinstance(each, ast.Constant))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _raised(scope):
    """What a function or module raises, warns of or compiles, and the expressions that give such values their names."""
    calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call | ast.Raise)]
    said = [node for node in calls if isinstance(node, ast.Raise) or _is_error(node)]
    yield from said
    names = {_name(part) for node in said for part in ast.walk(node)} - {""}
    for node in ast.walk(scope):
        if isinstance(node, ast.For) and names & {_name(part) for part in ast.walk(node.target)}:
            names.add(_name(node.iter))
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if names & {_name(target) for target in targets}:
                yield node.value
        if isinstance(node, ast.FunctionDef) and node.name in names:
            yield from (each for each in ast.walk(node) if isinstance(each, ast.Return))


_SAID_IN_MESSAGES = ("warn", "compile", "UsageError", "fail", "Format")
"""What is called with the words of a message or a pattern; a `Format` has the name of its files for messages."""


def _is_error(call):
    name = _name(call.func)
    return name.endswith(("Error", "Failure", "failure")) or name in _SAID_IN_MESSAGES


def _name(node):
    return (
        getattr(node, "id", getattr(node, "attr", "")) if isinstance(node, ast.Name | ast.Attribute) else ""
    )


def found():
    room = Path(profkit.__file__).parent
    for path in sorted(room.rglob("*.py")):
        where = path.relative_to(room)
        if where.parts[0] not in ROOMS_WITH_WORDS:
            yield from (f"{where}:{line}: {text}" for line, text in sentences(path.read_text("utf-8")))


def test_few_sentences_stand_outside_the_catalogue():
    told = list(found())
    assert len(told) <= MOST, "\n".join(told)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('x = "the GPU waits for the host"', 1),
        ('x = f"the GPU waits {n} for the host"', 1),
        ('"""The GPU waits for the host."""', 0),
        ('raise ValueError("the GPU waits for the host")', 0),
        ('hint = "the GPU waits for the host"\nraise ValueError(hint)', 0),
        ('x = "SELECT a FROM b WHERE c IN d"', 0),
        ('x = re.compile("the GPU waits for the host")', 0),
        ('x = "sm__throughput.avg.pct_of_peak_sustained_elapsed"', 0),
        ('x = "the GPU waits"', 0),
    ],
)
def test_what_counts_as_a_sentence(source, count):
    assert len(list(sentences(source))) == count
