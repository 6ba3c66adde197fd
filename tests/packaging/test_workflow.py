"""The workflow for GitHub Actions in docs/comparing.md, run step by step as a runner would.

Played: pip and gh (they write down how they were called), nsys (it exports a bundled recording), the actions for the
checkout and the cache, and the few expressions that the workflow uses. Real: the shell, git and profkit.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.packaging.conftest import ROOT
from tests.shared import DATA

yaml = pytest.importorskip("yaml", reason="SKIPPED LOUDLY: no PyYAML, the documented workflow is not run")

WORKFLOW = yaml.safe_load(
    re.search(r"```yaml\n(.*?)```", (ROOT / "docs/comparing.md").read_text(), re.DOTALL)[1]
)
FAST, SLOW = DATA / "nsys/gpt_bf16_compile.sqlite.gz", DATA / "nsys/gpt_bf16.sqlite.gz"

NSYS = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in
    --output=*) exec gunzip -c "$RECORDING" > "${1#--output=}" ;;
    -o) exec touch "$2.nsys-rep" ;;
  esac
  shift
done
exit 1
"""
SCRIPTS = {
    "nsys": NSYS,
    "pip": '#!/bin/bash\necho "pip $*" >> "$CALLS"\n',
    "gh": '#!/bin/bash\n[ "$GH_TOKEN" = secret ] && [ -s "$5" ] && echo "gh $*" >> "$CALLS"\n',
    "profkit": f'#!/bin/bash\nexec {sys.executable} -m profkit "$@"\n',
    "python": f'#!/bin/bash\nexec {sys.executable} "$@"\n',
}


@dataclass
class Runner:
    """One machine with one cache; each job gets a fresh checkout."""

    root: Path
    cache: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self):
        self.tools = self.root / "tools"
        self.tools.mkdir()
        for name, text in SCRIPTS.items():
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)

    def run(self, number, event, recording):
        """A job of one event, whose program runs as the recording has it."""
        job = Job(self, self.root / f"job{number}", event, recording, sha=f"{number:040x}")
        (steps,) = [each["steps"] for each in WORKFLOW["jobs"].values()]
        for step in steps:
            job.step(step)
        return job


@dataclass
class Job:
    runner: Runner
    folder: Path
    event: str
    recording: Path
    sha: str
    codes: dict[str, int] = field(default_factory=dict)
    """Exit codes of the shell steps that ran, by the first two words of their command."""

    def holds(self, condition):
        """Whether a step runs: always() says also after a failure, which a condition without it excludes."""
        failed = any(self.codes.values())
        names = {
            "github": SimpleNamespace(event_name=self.event),
            "always": lambda: True,
            "hashFiles": lambda name: "hash" if (self.folder / name).exists() else "",
        }
        told = eval(condition.replace("&&", "and").replace("||", "or"), {"__builtins__": {}}, names)
        return bool(told) and (not failed or "always()" in condition)

    def filled(self, text):
        values = {"github.sha": self.sha, "github.event.number": "7", "github.token": "secret"}
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda match: values[match[1]], text)

    def step(self, step):
        if not self.holds(step.get("if", "True")):
            return
        assert set(step) <= {"if", "run", "uses", "with", "env"}
        if "run" in step:
            self.shell(self.filled(step["run"]), {k: self.filled(v) for k, v in step.get("env", {}).items()})
        else:
            {
                "actions/checkout@v4": self.checkout,
                "actions/cache/restore@v4": self.restore,
                "actions/cache/save@v4": self.save,
            }[step["uses"]](**{k.replace("-", "_"): self.filled(v) for k, v in step.get("with", {}).items()})

    def shell(self, command, environment):
        given = {
            "PATH": f"{self.runner.tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RECORDING": str(self.recording),
            "CALLS": str(self.folder.with_suffix(".calls")),
        }
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=os.environ | given | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        self.codes[" ".join(command.split()[:2])] = done.returncode

    def checkout(self):
        self.folder.mkdir()
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
        (self.folder / "train.py").write_text("raise SystemExit\n")
        for command in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "x"]):
            subprocess.run([*git, *command], cwd=self.folder, check=True)

    def restore(self, path, key, restore_keys):
        kept = [name for name in self.runner.cache if name.startswith(restore_keys)]
        if kept:
            shutil.copy(self.runner.cache[key if key in kept else kept[-1]], self.folder / path)

    def save(self, path, key):
        assert not list(self.folder.glob(f"{path}-*")), "a part of the history would be lost"
        kept = self.folder.with_suffix(".cached")
        shutil.copy(self.folder / path, kept)
        self.runner.cache[key] = kept

    @property
    def calls(self):
        return self.folder.with_suffix(".calls").read_text().splitlines()


RECORDED = {"pip install": 0, "profkit record": 0}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("git") is None, reason="needs bash and git")
def test_the_workflow_keeps_a_history_and_stops_a_slower_step(tmp_path):
    runner = Runner(tmp_path)
    early = runner.run(1, "pull_request", FAST)
    assert early.codes == RECORDED | {"profkit gate": 1}, "there is no history yet"
    assert not runner.cache

    main = runner.run(2, "push", FAST)
    assert main.codes == RECORDED | {"profkit analyze": 0}
    assert list(runner.cache) == [f"profkit-{2:040x}"]

    same = runner.run(3, "pull_request", FAST)
    assert same.codes == RECORDED | {"profkit gate": 0, "gh pr": 0}
    assert same.calls == ["pip install ./profkit", "gh pr comment 7 --body-file comment.md"]

    slower = runner.run(4, "pull_request", SLOW)
    assert slower.codes == RECORDED | {"profkit gate": 3, "gh pr": 0}
    assert "lower" in (slower.folder / "comment.md").read_text().splitlines()[0]

    merged = runner.run(5, "push", SLOW)
    assert merged.codes == main.codes
    assert runner.run(6, "pull_request", SLOW).codes == same.codes, "the last run of main is the baseline"
    assert len(runner.cache) == 2


def test_the_workflow_asks_for_the_events_and_permissions_that_it_needs():
    # PyYAML reads the key `on` as a truth value, as YAML 1.1 has it.
    assert WORKFLOW[True] == {"push": {"branches": ["main"]}, "pull_request": None}
    assert WORKFLOW["permissions"] == {"contents": "read", "pull-requests": "write"}
