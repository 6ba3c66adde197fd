"""A trial's program reads its files and harms none of them."""

import os
import subprocess
import sys

import pytest

from profkit.trial.scratch import mirror
from tests.packaging.conftest import ROOT

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "project"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "many").mkdir()
    for number in range(2100):
        (folder / "many" / str(number)).touch()
    for name in ("log.txt", "data/rows.csv", "data/deep/more.csv", "latest.pt", "state.db"):
        (folder / name).write_text("original\n")
    return folder


def test_files_are_found_and_large_folders_are_linked_whole(folder, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mirror(folder, scratch)
    assert (scratch / "data/deep/more.csv").read_text() == "original\n"
    assert not (scratch / "data").is_symlink()
    assert (scratch / "many").is_symlink()


def test_a_folder_that_holds_the_scratch_folder_does_not_hold_it_again(tmp_path):
    scratch = tmp_path / "a" / "scratch"
    scratch.mkdir(parents=True)
    (tmp_path / "x").touch()
    mirror(tmp_path, scratch)
    assert sorted(each.name for each in scratch.iterdir()) == ["x"]


PROGRAM = """
import sys
from contextlib import ExitStack
from pathlib import Path
import torch
from profkit.trial.scratch import keep_originals
keep_originals(Path.cwd(), ExitStack())
open("log.txt", "a").write("more\\n")
open("data/rows.csv", "w").write("new\\n")
Path("data/deep/new.csv").write_text("new\\n")
torch.save({}, "latest.pt")
with open("state.db", "r+") as file:
    file.write("O")
print(open("log.txt").read())
"""


def test_what_the_program_writes_touches_no_original(folder, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mirror(folder, scratch)
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=scratch,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "original\nmore\n\n"
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
    assert (scratch / "data/rows.csv").read_text() == "new\n"
    assert (scratch / "state.db").read_text() == "Original\n"
    assert torch.load(scratch / "latest.pt") == {}


OUTSIDE = """
import sys
from contextlib import ExitStack
from pathlib import Path
import torch
from profkit.trial.scratch import keep_originals
outside = keep_originals(Path.cwd(), ExitStack())
for name in ("own.txt", "many/17", "../elsewhere.txt", "/dev/null"):
    open(name, "w").close()
open("../project/log.txt").close()
torch.save({}, "../project/latest.pt")
print(*[Path(each).relative_to(Path.cwd().parent) for each in outside])
"""


def test_what_the_program_writes_elsewhere_is_told(folder, tmp_path):
    """Through a link to a folder, or by a path that leads out; what it reads there, and devices, are nothing to tell."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mirror(folder, scratch)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "scratch")}
    command = [sys.executable, "-c", OUTSIDE]
    told = subprocess.check_output(command, cwd=scratch, env=environment, text=True)
    assert told.split() == ["project/many/17", "elsewhere.txt", "project/latest.pt"]
