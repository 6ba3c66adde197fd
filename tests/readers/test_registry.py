"""The one list of formats: everything that differs by format is asked of it."""

import ast
from pathlib import Path

import pytest

import profkit
from profkit.readers.registry import (
    FORMATS,
    RECORDING_SUFFIXES,
    format_named,
    role_of,
    stem_of,
    without_exported,
)

SOURCE = Path(profkit.__file__).parent
NAMES = {each.name for each in FORMATS}


def comparisons(path):
    """Places where a text that is the name of a format is compared with something."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = {
                e.value
                for side in sides
                for e in ast.walk(side)
                if isinstance(e, ast.Constant) and isinstance(e.value, str)
            }
            asked = {e.attr for side in sides for e in ast.walk(side) if isinstance(e, ast.Attribute)}
            asked |= {e.value for side in sides for e in ast.walk(side) if isinstance(e, ast.Constant)}
            asked |= {e.id for side in sides for e in ast.walk(side) if isinstance(e, ast.Name)}
            if texts & NAMES and asked & {"format", "formats"}:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}"


def test_no_code_asks_for_a_format_by_name():
    assert [place for path in SOURCE.rglob("*.py") for place in comparisons(path)] == []


def test_a_format_that_is_not_known_is_called_nothing():
    assert format_named("hta") is None
    assert role_of("hta") is None


def test_every_reader_exists_and_every_format_has_a_name_in_a_sentence():
    for each in FORMATS:
        module, _, function = each.reader.partition(":")
        assert hasattr(__import__(module, fromlist=[function]), function)
        assert each.what.split()[0] in ("a", "an")


def test_an_original_is_not_read_beside_its_export():
    files = ["a/run.nsys-rep", "a/run.sqlite.gz", "a/other.nsys-rep", "a/trace.json"]

    assert without_exported(files) == files[1:]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("rank0.json.gz", "rank0"),
        ("r.sqlite", "r"),
        ("x.ncu.csv", "x"),
        ("Trace.JSON", "Trace"),
        ("notes.txt", "notes.txt"),
    ],
)
def test_the_stem_of_a_file_has_no_suffix_of_a_recording(name, stem):
    assert stem_of(name) == stem


def test_folders_are_searched_for_every_format_plain_and_packed():
    assert {".json", ".json.gz", ".nsys-rep", ".pickle.gz", ".ncu.csv"} <= set(RECORDING_SUFFIXES)
