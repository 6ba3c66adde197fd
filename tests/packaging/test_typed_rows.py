"""Rows of a report are structs: what holds anything under any name is none."""

import ast

from tests.packaging.conftest import ROOT

ROOMS = (
    "report", "rendering", "saved_runs", "comparison", "timeline", "roofline", "memory", "ranks", "advice", "simulation",
    "model",
)  # fmt: skip
JSON = {"rendering/schema.py", "rendering/comparison_json.py", "rendering/first_edition.py"}
"""A JSON Schema, and a document of another edition before it is checked, are JSON and no rows."""


SECTIONS = ("report", "rendering", "saved_runs", "comparison")
"""Where a report is put together, said, kept and compared: not even arguments go by unchecked names."""


def mappings_of_anything(source, kinds=("dict",)):
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript) and ast.unparse(node) in [f"{kind}[str, Any]" for kind in kinds]
    ]


def test_no_row_is_a_mapping_of_anything():
    product = ROOT / "profkit"
    files = {
        path.relative_to(product).as_posix(): path
        for room in ROOMS
        for path in (product / room).rglob("*.py")
    }
    found = {
        name: mappings_of_anything(
            path.read_text(), ("dict", "Mapping") if name.startswith(SECTIONS) else ("dict",)
        )
        for name, path in files.items()
        if name not in JSON
    }

    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_mapping_of_anything_is_seen():
    assert mappings_of_anything("def f(row: list[dict[str, Any]]) -> dict[str, int]: ...") == [1]
    assert mappings_of_anything("def f() -> Mapping[str, Any]: ...", ("dict", "Mapping")) == [1]
