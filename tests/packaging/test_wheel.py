"""The built wheel, away from the source tree. `make wheel` runs this where only the wheel and what it asks for are."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from profkit.cli import main
from tests.packaging.conftest import ROOT
from tests.shared import DATA

TRACE, EXPORT = DATA / "kineto/sync_item.json.gz", DATA / "nsys/sync_item.sqlite.gz"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.xdist_group("wheel")  # built and installed once


def command_names(group=main, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*path, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from command_names(command, (*path, name))


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    package = [file.relative_to(ROOT).as_posix() for file in (ROOT / "profkit").rglob("*") if file.is_file()]
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("profkit-")}
    assert names == {name for name in package if "__pycache__" not in name}
    assert {"profkit/py.typed", "profkit/hardware/gpus.csv"} <= names


def test_the_same_tree_makes_the_same_wheel(wheel, unpacked, tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=unpacked,
        check=True,
        capture_output=True,
    )
    (again,) = tmp_path.iterdir()
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_what_is_imported_is_the_wheel(installed):
    done = installed.run("python", "-I", "-c", "import profkit; print(profkit.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed.python.parents[1])
    done = installed.run("profkit", "--version")
    assert done.stdout.split()[-1] == PROJECT["version"]


def test_importing_profkit_loads_nothing_large(installed):
    heavy = ("torch", "pandas", "plotly", "numpy", "jinja2", "nvtx", "rich", "click", "sqlite_utils")
    script = f"import sys, profkit; dir(profkit); print([m for m in {heavy} if m in sys.modules])"
    assert installed.run("python", "-I", "-c", script).stdout == "[]\n"
    # pytest loads profkit's plugin wherever profkit is installed.
    script = script.replace("import sys, profkit;", "import pytest, sys, profkit, profkit.pytest_plugin;")
    if find_spec("pytest") and installed.run("python", "-I", "-c", "import pytest").returncode == 0:
        assert installed.run("python", "-I", "-c", script).stdout == "[]\n"


@pytest.mark.parametrize("path", [(), *command_names()], ids=" ".join)
def test_every_command_has_help(installed, path):
    done = installed.run("profkit", *path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['profkit', *path])} ")


@pytest.mark.parametrize(
    ("format", "start"),
    [
        ("html", "<!doctype html>"),
        ("json", "{"),
        ("md", "## The step is launch-bound"),
        ("text", "The step is launch-bound"),
        ("csv", "name,short_name,"),
    ],
)
def test_a_bundled_recording_is_analysed(installed, format, start):
    """In isolation, and with warnings as errors."""
    command = ["analyze", TRACE, "-q", "--format", format, "-o", f"report.{format}"]
    done = installed.run("python", "-I", "-W", "error", "-m", "profkit", *command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"Wrote report.{format}\n")
    assert (installed.folder / f"report.{format}").read_text().startswith(start)


def test_the_page_holds_its_scripts_and_styles(installed):
    installed.run("profkit", "analyze", TRACE, "-q", "-o", "page.html")
    page = (installed.folder / "page.html").read_text()
    for asset in (ROOT / "profkit/rendering/assets").glob("*.[jc]s*"):
        lines = [
            line for line in asset.read_text().splitlines() if re.fullmatch(r"[\w .,;:{}()=-]{20,}", line)
        ]
        assert lines, asset
        assert all(line in page for line in lines), asset


def test_the_other_commands_work(installed):
    """Compared, exported, saved, listed and shown: each needs files or packages that analyze does not."""
    for command in (
        ["compare", EXPORT, TRACE, "-o", "compare.html"],
        ["export", EXPORT, "-o", "step.perfetto.json.gz"],
        ["analyze", EXPORT, "-q", "--db", "runs.db", "-o", "saved.json"],
        ["show", "saved.json", "--format", "md"],
        ["history", "--db", "runs.db", "--metric", "step_ms", "-o", "trend.html"],
        ["gate", "runs.db#1", "--max-step", "1s"],
        ["hardware", "--name", "NVIDIA H200"],
        ["doctor"],
    ):
        done = installed.run("profkit", *command)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (command, done.stderr)


USER = """
import profkit
report = profkit.analyze("report.sqlite")
reveal_type(report)
reveal_type(profkit.compare("a.json", "b.json"))

@profkit.phase("forward")
def forward(scale: float) -> int:
    return round(scale)

reveal_type(forward(1.0))
report.save(3)
forward("1")
"""


@pytest.mark.slow
def test_a_users_script_is_checked_against_our_types(installed, tmp_path):
    pytest.importorskip("mypy", reason="SKIPPED LOUDLY: no mypy, py.typed is not tried")
    script, settings = tmp_path / "user.py", tmp_path / "mypy.ini"
    script.write_text(USER)
    # Reading the types of these takes most of the time, and they are not what is tried.
    settings.write_text("[mypy]\nstrict = true\n[mypy-numpy.*,pandas.*]\nfollow_imports = skip\n")
    mypy = [sys.executable, "-m", "mypy", "--config-file", settings, "--python-executable", installed.python]
    done = subprocess.run([*mypy, script], cwd=tmp_path, capture_output=True, text=True)
    assert re.findall(r'Revealed type is "(.*)"', done.stdout) == [
        "profkit.api.report.Report",
        "profkit.api.comparing.ComparisonReport",
        "int",
    ]
    assert re.findall(r"py:(\d+): error: .*\[(.*)\]$", done.stdout, re.M) == [
        ("12", "arg-type"),
        ("13", "arg-type"),
    ], done.stdout


def test_the_wheel_asks_for_what_the_project_names(installed):
    script = "import json, importlib.metadata as m; print(json.dumps(m.requires('profkit')))"
    asked = json.loads(installed.run("python", "-I", "-c", script).stdout)
    plain = {re.sub(r"\s", "", each) for each in PROJECT["dependencies"]}
    assert {re.sub(r"\s", "", each).replace('"', "'") for each in asked if "extra ==" not in each} >= {
        each for each in plain if ";" not in each
    }
