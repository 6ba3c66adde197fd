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


def fit(folder, callbacks, fail_at=None, accumulate=1):
    torch.manual_seed(0)
    module = Module()
    module.fail_at = fail_at
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(16, 4))
    trainer = lightning.Trainer(
        max_epochs=1, accumulate_grad_batches=accumulate, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=callbacks,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=2))
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
