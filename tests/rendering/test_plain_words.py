"""What a person reads: short sentences in the words of the field."""

import ast
import re
from pathlib import Path

import pytest

import profkit
from profkit.cli import main

ROOT = Path(profkit.__file__).parent
MOST_WORDS = 25
DIALECT = re.compile(
    r"\b(?:cards?|matrix units?|lends?|lending|lent|borrow(?:s|ed)?|held up|holds? (?:\w+ )?up|holding up|blamed?|blames"
    r"|drafts?|charg(?:e|es|ed|ing) to|what the file does not tell|the file does not tell|plain step(?! time \()"
    r"|arithmetic limits|memory bandwidth limits)\b",
    re.IGNORECASE,
)
"""Words of our own where the field has others: GPU, Tensor Cores, straggler, unprofiled step, compute-bound."""

_CODE = re.compile(
    r"```.*?```|`[^`]*`|\b\w+(?:[._/=:-]+\w+)+(?:\([^)]*\))?|--[\w-]+|\b[A-Z]+\b(?=[ .,)])", re.DOTALL
)
_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*|]")


def literals(*rooms):
    """``(place, text)`` of the string literals of a room that are no docstrings."""
    for room in rooms:
        for path in sorted([*(ROOT / room).rglob("*.py")] if (ROOT / room).is_dir() else [ROOT / room]):
            tree = ast.parse(path.read_text("utf-8"))
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            parts = {
                id(p)
                for n in ast.walk(tree)
                if isinstance(n, ast.JoinedStr)
                for p in ast.walk(n)
                if p is not n
            }
            for node in ast.walk(tree):
                if (
                    id(node) not in docs | parts
                    and (text := _text(node))
                    and len(text.split()) > 1
                    and "</" not in text
                ):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def _text(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else "N" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def help_texts(command=main, path="profkit"):
    """``(place, text)`` of the help of every command and option."""
    yield path, command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""
    for name, each in getattr(command, "commands", {}).items():
        yield from help_texts(each, f"{path} {name}")


def raised():
    """``(place, text)`` of what is raised."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise):
                for each in ast.walk(node):
                    if text := _text(each):
                        yield f"{path.relative_to(ROOT)}:{each.lineno}", text


TEXTS = [*literals("rendering", "advice", "cli"), *help_texts(), *raised()]


def test_there_is_something_to_read():
    assert len(TEXTS) > 500


def long_sentences(texts):
    for place, text in texts:
        for sentence in _END.split(_CODE.sub("x", text)):
            words = len(re.findall(r"[\w'’µ%]+", sentence))
            if words > MOST_WORDS:
                yield f"{place} ({words}): {' '.join(sentence.split())}"


def test_sentences_are_short():
    found = list(long_sentences(TEXTS))
    assert not found, "\n".join(found)


def test_words_are_those_of_the_field():
    found = [f"{place}: {text}" for place, text in TEXTS if DIALECT.search(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "long"), [("a " * 26, True), ("a " * 25, False), ("a " * 20 + ". " + "a " * 20, False)]
)
def test_long_is_more_than_25_words(text, long):
    assert bool(list(long_sentences([("", text)]))) is long
