"""The Hugging Face callback, against the real Trainer on the CPU."""

import gzip
import json
import warnings

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="SKIPPED LOUDLY: transformers is not installed")
    pytest.importorskip("accelerate", reason="SKIPPED LOUDLY: accelerate is not installed")

from profkit.recording.integrations.transformers import ProfkitCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        return {"loss": (self.layer(x)[:, 0] - labels).square().mean()}


def trained(folder, callbacks, **options):
    torch.manual_seed(0)
    data = [{"x": torch.full((4,), float(i)), "labels": torch.tensor(1.0)} for i in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=2, max_steps=8, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, remove_unused_columns=False, logging_strategy="no",
        **options,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=Model(), args=arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks
    )
    trainer.train()
    return trainer.model.layer.weight.detach().clone()


class Failing(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 4:
            raise KeyError("mine")


def test_a_training_that_fails_leaves_nothing_on_and_keeps_what_was_recorded(tmp_path):
    backward = torch.autograd.backward
    callback = ProfkitCallback(tmp_path / "run", wait=0, warmup=1, steps=100)
    with pytest.raises(KeyError, match="mine"):
        trained(tmp_path / "recorded", [callback, Failing()])
    assert (tmp_path / "run" / "trace.json.gz").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "ended by KeyError"
    assert torch.autograd.backward is backward
    assert not torch.autograd.profiler._is_profiler_enabled
    assert not torch.nn.modules.module._global_forward_hooks


def test_the_trainer_is_recorded_and_trains_the_same(tmp_path):
    expected = trained(tmp_path / "plain", [])
    callback = ProfkitCallback(tmp_path / "run", wait=1, warmup=1, steps=2)
    assert torch.equal(trained(tmp_path / "recorded", [callback]), expected)
    (trace,) = callback.recorder.files
    names = [event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]]
    for name in ("profkit::forward", "profkit::backward", "profkit::data", "profkit::optimizer"):
        assert names.count(name) == 2, name
    assert {name for name in names if name.startswith("ProfilerStep#")} == {
        "ProfilerStep#2",
        "ProfilerStep#3",
    }


def test_an_evaluation_is_in_no_step(tmp_path):
    callback = ProfkitCallback(tmp_path / "run", wait=1, warmup=1, steps=5)
    trained(tmp_path / "out", [callback], eval_strategy="steps", eval_steps=2)
    (trace,) = callback.recorder.files
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    marks = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation"]
    steps = [(start, end) for name, start, end in marks if name.startswith("ProfilerStep#")]
    forwards = [start for name, start, _ in marks if name == "profkit::forward"]
    assert [sum(start <= at <= end for at in forwards) for start, end in steps] == [1] * 5
    assert len(forwards) > 5, "those of two evaluations between the steps"
