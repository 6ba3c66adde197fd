"""The table of docs/dev/robustness.md cannot rot: every report is in it once, and every test that it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dev" / "robustness.md").read_text()
ROW = re.compile(r"^\| (\d+(?:, \d+)*) \| .* \| .* \| (.*) \|$", re.MULTILINE)
ROWS = [(match[1], match[2]) for match in ROW.finditer(PAGE)]
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+(?:::\w+)*)`", PAGE)))
REPORTS = 131


@cache
def named_in(file):
    """Every test of a file by the name that pytest gives it."""
    names = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.update(
                f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            )
    return {name for name in names if name.rpartition("::")[2].startswith("test_")}


def test_every_report_is_decided_once():
    numbers = [int(number) for rows, _ in ROWS for number in rows.split(", ")]
    assert sorted(numbers) == list(range(1, REPORTS + 1))


@pytest.mark.parametrize(("rows", "shown"), ROWS, ids=[rows for rows, _ in ROWS])
def test_every_decision_is_shown_by_a_test(rows, shown):
    assert re.findall(r"`(tests/[\w/.]+(?:::\w+)*)`", shown), rows


@pytest.mark.parametrize("test", TESTS)
def test_every_test_that_is_named_exists(test):
    file, _, name = test.partition("::")
    assert (ROOT / file).exists()
    if file.endswith(".py"):
        assert named_in(file)
        assert not name or name in named_in(file)


def test_the_check_would_fail():
    assert len(TESTS) > 100
    assert "test_every_report_is_decided_once" in named_in("tests/bugreports/test_table.py")
    assert "test_that_nobody_wrote" not in named_in("tests/bugreports/test_table.py")
    assert ROW.findall("| 1, 2 | a | b | `tests/x.py::test_y` |") == [("1, 2", "`tests/x.py::test_y`")]
