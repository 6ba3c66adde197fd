"""Whole trials of unedited programs."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest

from profkit.api.trying import compared, try_program
from profkit.errors import RecordingError
from profkit.trial import search
from profkit.trial.document import encode, try_schema
from profkit.trial.plan import Plan
from profkit.trial.running import Program
from profkit.trial.sentences import trial_text
from tests.packaging.conftest import ROOT

pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

MANY_WEIGHTS = """
import torch
torch.manual_seed(0)
layers = [torch.nn.Linear(16, 16) for _ in range(60)]
net = torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
for step in range(100_000):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        torch.save(net.state_dict(), "latest.pt")
"""


STARVED = """
import time
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.01)
        row = torch.full((16,), index / 100_000)
        return row, row.sum()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for x, y in DataLoader(Slow(), batch_size=8):
        loss = (net(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CHAIN = """
import torch


class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((100_000,), 0.9))

    def forward(self, x):
        x = x * self.weight
        for _ in range(6):
            x = torch.relu(x * 0.99 + 0.01) - 0.3 * x
        return x


torch.manual_seed(0)
net = Chain()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(100_000)
for _ in range(100_000):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TRANSFORMER = """
import torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
net = torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.TransformerEncoder(layer, 6), torch.nn.Linear(32, 50))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(100_000):
    tokens = torch.randint(0, 50, (2, 9))
    loss = torch.nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CNN = """
import torch
from torch import nn
torch.manual_seed(0)
block = lambda: nn.Sequential(
    nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 1, 1)
)
blocks = [block() for _ in range(3)]
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
for _ in range(100_000):
    loss = nn.functional.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TUNED = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
x, y = torch.randn(256, 512), torch.randint(0, 10, (256,))
for _ in range(100_000):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Runs a trial of a script; one thread, since the machine may be another's too."""
    monkeypatch.chdir(tmp_path)
    told = []

    def run(source, *only, patience_s=120.0, **plan):
        (tmp_path / "train.py").write_text(source)
        before = sorted(tmp_path.iterdir())
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        program = Program((sys.executable, "train.py"), 4, patience_s=patience_s, environment=environment)
        plan = {"budget_s": 240.0, "steps": 12, "keep_going": True, **plan}
        found = try_program(program, Plan(only=only, **plan), tell=told.append)
        assert sorted(tmp_path.iterdir()) == before
        jsonschema.validate(json.loads(encode(found)), try_schema())
        return found, {row.change: row for row in found.trials if not row.beside}

    yield run
    print("\n".join(told))


def test_what_helps_is_kept_and_what_harms_is_survived(trial, monkeypatch, tmp_path_factory):
    """With several processes started at once, as on a machine of many cores."""
    monkeypatch.setattr(search, "at_once", lambda facts, peak_bytes: 5)
    planted = [f"tests.trial.planted:{name}" for name in ("Ruins", "Crashes", "Hangs")]
    names = ("fused-optimizer", *planted, "tf32", "set-to-none")
    folder = tmp_path_factory.mktemp("compared")
    found, rows = trial(MANY_WEIGHTS, *names, patience_s=60.0, compared_in=str(folder))
    ruins, crashes, hangs = (rows[name] for name in planted)
    assert found.final.changes == ["fused-optimizer"], trial_text(found)
    assert found.final.speedup.low > 1
    assert found.final.patch == ["Adam(..., fused=True)  # where the optimizer is made; same arguments"]
    assert found.loss.unchanged
    assert "loss unchanged" in found.sentence
    assert not ruins.kept
    assert ruins.measured.low > 1
    assert "from the baseline" in ruins.why
    assert crashes.why == "crashed: RuntimeError: planted crash"
    assert hangs.why.startswith("hung: ")
    assert rows["tf32"].why == "no GPU"
    assert rows["set-to-none"].why == "already so"
    comparison = compared(found, Plan(compared_in=str(folder)))
    assert comparison.parts
    assert "optimizer" in (folder / "comparison.html").read_text()


def test_a_program_that_fails_by_itself_is_an_error_with_its_last_line(trial):
    with pytest.raises(
        RecordingError, match=r"ValueError: my own mistake\. It has to run without a change first"
    ):
        trial("raise ValueError('my own mistake')")


def test_a_program_without_steps_is_told(trial):
    with pytest.raises(RecordingError, match="ended by itself after fewer than 4 steps"):
        trial("import torch")


@pytest.mark.parametrize(
    ("source", "tried", "right"),
    [
        pytest.param(
            STARVED, ["loader-workers", "fused-optimizer"], "loader-workers", id="a loader that starves"
        ),
        pytest.param(CHAIN, ["compile"], "compile", id="an uncompiled chain"),
        pytest.param(TRANSFORMER, ["fused-optimizer"], "fused-optimizer", id="a small transformer"),
        pytest.param(CNN, ["channels-last"], "channels-last", id="a CNN"),
    ],
)
def test_the_right_change_is_kept(trial, source, tried, right):
    found, rows = trial(source, *tried)
    assert found.final.changes == [right], trial_text(found)
    assert rows[right].measured.low > 1
    assert found.loss.unchanged
    assert found.final.patch


def test_nothing_helps_a_tuned_program(trial):
    found, rows = trial(TUNED, skip=("compile", "threads", "bf16"))
    assert found.final.changes == [], trial_text(found)
    assert found.sentence.startswith("Nothing helps: the step takes ")
    assert rows["fused-optimizer"].why == rows["foreach-optimizer"].why == "already so"
    assert rows["garbage-collection"].measured is not None


def test_sigterm_ends_a_trial_with_what_is_known(tmp_path):
    (tmp_path / "train.py").write_text(MANY_WEIGHTS)
    only = "fused-optimizer,tests.trial.planted:Hangs"
    command = [sys.executable, "-m", "profkit", "try", "--keep-going", "--only", only, "-o", "found.json"]
    process = subprocess.Popen(
        [*command, "--", sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        told = iter(process.stderr.readline, "")
        assert any("Hangs: starting" in line for line in told)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Note: interrupted" in said
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["final"]["changes"] == ["fused-optimizer"]
    assert found["final"]["speedup"]["low"] > 1
