"""profkit as a user gets it: a wheel, installed where the source tree cannot be seen."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment that holds the built wheel."""

    python: Path
    folder: Path
    """An empty folder, where all commands run."""

    def run(self, *command, **options):
        """The environment's python or one of its scripts, without anything of this process's search path."""
        first, *rest = map(str, command)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
        return subprocess.run(
            [self.python.parent / first, *rest],
            **{"cwd": self.folder, "env": environment, "capture_output": True, "text": True} | options,
        )


def _hatchling(folder, target, into):
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return into


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    pytest.importorskip("hatchling", reason="SKIPPED LOUDLY: no hatchling, the wheel is not tried")
    (archive,) = _hatchling(ROOT, "sdist", tmp_path_factory.mktemp("sdist")).iterdir()
    return archive


@pytest.fixture(scope="session")
def unpacked(sdist, tmp_path_factory):
    """The source archive's only folder."""
    into = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        archive.extractall(into, **safe)
    (folder,) = into.iterdir()
    return folder


@pytest.fixture(scope="session")
def wheel(unpacked, tmp_path_factory):
    """Built from the source archive, so that a file which that lacks is missed."""
    (built,) = _hatchling(unpacked, "wheel", tmp_path_factory.mktemp("wheel")).iterdir()
    return built


@pytest.fixture(scope="session")
def installed(request, tmp_path_factory):
    """The environment that PROFKIT_INSTALLED names (make wheel), or a new one with this one's dependencies.

    The new one sees this environment's packages by a line of a .pth file. Lines of their .pth files do not count
    there, so an editable profkit is not among them.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    given = os.environ.get("PROFKIT_INSTALLED")
    if given:
        return Installed(ROOT / given, folder)
    wheel = request.getfixturevalue("wheel")
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    quietly = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *quietly, wheel]
    subprocess.run(pip, check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    ours = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n")
    return Installed(python, folder)
