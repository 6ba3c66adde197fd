"""What a format is for, the registry says: nobody else asks for one by its name."""

import ast

import pytest

from profkit.readers.registry import FORMATS
from tests.packaging.conftest import ROOT

NAMES = {each.name for each in FORMATS}


def asked_by_name(source):
    """The lines that compare something's format, or a set of formats, with the name of one."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and "format" in ast.unparse(node.left)
        and any(
            isinstance(part, ast.Constant) and part.value in NAMES
            for each in node.comparators
            for part in ast.walk(each)
        )
    ]


def test_no_room_asks_for_a_format_by_its_name():
    product = ROOT / "profkit"
    found = {
        path.relative_to(product).as_posix(): asked_by_name(path.read_text("utf-8"))
        for path in product.rglob("*.py")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "test", ['trace.source.format == "nsys"', 'formats == {"ncu"}', 'a.format in ("kineto",)']
)
def test_such_a_question_is_seen(test):
    assert asked_by_name(f"if {test}: ...") == [1]
