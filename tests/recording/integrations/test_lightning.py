"""The Lightning callback, against the real Trainer on the CPU."""

import gzip
import json
import warnings

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning.pytorch", reason="SKIPPED LOUDLY: lightning is not installed")

from profkit.recording.integrations.lightning import ProfkitCallback  # noqa: E402
from profkit.recording.run_script import recorded  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):
    fail_at = None

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, index):
        if index == self.fail_at:
            raise KeyError("mine")
        return self(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Validated(Module):
    def validation_step(self, batch, index):
        self.log("loss", self(batch[0]).square().mean())


def fit(folder, callbacks, fail_at=None, accumulate=1, validated=False):
    torch.manual_seed(0)
    module = Validated() if validated else Module()
    module.fail_at = fail_at
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(16, 4))
    trainer = lightning.Trainer(
        max_epochs=4 if validated else 1, accumulate_grad_batches=accumulate, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=callbacks,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    trainer.fit(module, loader, loader if validated else None)
    return module.layer.weight.detach().clone()


def test_the_trainer_is_recorded_and_trains_the_same(tmp_path):
    expected = fit(tmp_path, [])
    assert torch.equal(
        fit(tmp_path, [ProfkitCallback(tmp_path / "run", wait=1, warmup=1, steps=2)]), expected
    )
    trace = (tmp_path / "run" / "trace.json.gz").read_bytes()
    names = [event["name"] for event in json.loads(gzip.decompress(trace))["traceEvents"]]
    for name in ("profkit::forward", "profkit::backward", "profkit::optimizer"):
        assert names.count(name) == 2, name


def test_the_programs_own_error_comes_out_and_the_trace_is_kept(tmp_path):
    callback = ProfkitCallback(tmp_path / "run", wait=0, warmup=1, steps=100)
    with pytest.raises(KeyError, match="mine"):
        fit(tmp_path, [callback], fail_at=3)
    assert (tmp_path / "run" / "trace.json.gz").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "ended by KeyError"


def test_a_step_is_the_optimizers_and_holds_its_loader_but_no_forward_in_the_optimizer(tmp_path):
    fit(tmp_path, [ProfkitCallback(tmp_path / "run", wait=1, warmup=1, steps=1)], accumulate=2)
    trace = (tmp_path / "run" / "trace.json.gz").read_bytes()
    events = [
        e for e in json.loads(gzip.decompress(trace))["traceEvents"] if e.get("cat") == "user_annotation"
    ]
    spans = {}
    for event in events:
        spans.setdefault(event["name"].removeprefix("profkit::"), []).append(
            (event["ts"], event["ts"] + event["dur"])
        )
    assert len([name for name in spans if name.startswith("ProfilerStep#")]) == 1
    assert len(spans["forward"]) == len(spans["backward"]) == 2
    assert len(spans["data"]) >= 2, "the first epoch's loader"
    for start, end in spans["optimizer"]:
        assert not any(start < at < end for at, _ in [*spans["forward"], *spans["backward"]])


def callback(folder):
    return fit(
        folder, [ProfkitCallback(folder / "run", wait=1, warmup=1, steps=10)], accumulate=2, validated=True
    )


def unedited(folder):
    with recorded({"folder": str(folder / "run"), "wait": 1, "warmup": 1, "steps": 10}):
        fit(folder, [], accumulate=2, validated=True)


@pytest.mark.parametrize("program", [callback, unedited])
def test_validation_is_in_no_step(tmp_path, program):
    """Four epochs of four steps, so that two validations lie among the ten steps."""
    program(tmp_path)
    trace = (tmp_path / "run" / "trace.json.gz").read_bytes()
    events = [
        e for e in json.loads(gzip.decompress(trace))["traceEvents"] if e.get("cat") == "user_annotation"
    ]
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("ProfilerStep#")]
    assert len(steps) == 10
    for name, count in {"evaluation": 0, "forward": 2, "backward": 2, "optimizer": 1}.items():
        starts = [e["ts"] for e in events if e["name"] == f"profkit::{name}"]
        assert {sum(a <= at <= b for at in starts) for a, b in steps} == {count}, name
    assert len([e for e in events if e["name"] == "profkit::evaluation"]) == 16
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["problems"] == []


def test_a_plain_step_in_which_validation_lies_is_not_timed(tmp_path):
    callback = ProfkitCallback(tmp_path / "run", wait=10, warmup=1, steps=1)
    fit(tmp_path, [callback], accumulate=2, validated=True)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(facts["plain_step_ns"]) == 10 - 1 - 2, "neither the first nor those of two validations"
