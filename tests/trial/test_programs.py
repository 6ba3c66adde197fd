"""Whole trials of unedited programs."""

import json
import sys

import jsonschema
import pytest

from profkit.api.trying import try_program
from profkit.errors import RecordingError
from profkit.trial.document import encode, try_schema
from profkit.trial.running import Program
from profkit.trial.search import Plan
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


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Runs a trial of a script; one thread, since the machine may be another's too."""
    monkeypatch.chdir(tmp_path)
    told = []

    def run(source, *only, patience_s=120.0, **plan):
        (tmp_path / "train.py").write_text(source)
        before = sorted(tmp_path.iterdir())
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        program = Program((sys.executable, "train.py"), 4, patience_s=patience_s, environment=environment)
        plan = {"budget_s": 240.0, "steps": 12, "keep_going": True, **plan}
        found = try_program(program, Plan(only=only, **plan), tell=told.append)
        assert sorted(tmp_path.iterdir()) == before
        jsonschema.validate(json.loads(encode(found)), try_schema())
        return found, {row.change: row for row in found.trials if not row.beside}

    yield run
    print("\n".join(told))


def test_what_helps_is_kept_and_what_harms_is_survived(trial):
    planted = [f"tests.trial.planted:{name}" for name in ("Ruins", "Crashes", "Hangs")]
    found, rows = trial(MANY_WEIGHTS, "fused-optimizer", *planted, "tf32", "set-to-none", patience_s=60.0)
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


def test_a_program_that_fails_by_itself_is_an_error_with_its_last_line(trial):
    with pytest.raises(
        RecordingError, match=r"ValueError: my own mistake\. It has to run without a change first"
    ):
        trial("raise ValueError('my own mistake')")


def test_a_program_without_steps_is_told(trial):
    with pytest.raises(RecordingError, match="ended by itself after fewer than 4 steps"):
        trial("import torch")
