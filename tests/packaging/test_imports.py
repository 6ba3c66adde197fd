"""What modules of profkit take from each other: public names only."""

import ast

from tests.packaging.conftest import ROOT


def private_imports(source):
    return [
        name.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("profkit")
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]


def test_no_module_imports_a_private_name_of_another():
    found = {path: private_imports(path.read_text()) for path in (ROOT / "profkit").rglob("*.py")}

    assert {path.relative_to(ROOT).as_posix(): names for path, names in found.items() if names} == {}


def test_a_private_name_is_seen():
    assert private_imports("from profkit.units import _a, b, __version__") == ["_a"]
