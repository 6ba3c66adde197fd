"""Accelerate's prepared loop on the CPU, with gradient accumulation."""

import gzip
import json
import warnings

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    accelerate = pytest.importorskip("accelerate", reason="SKIPPED LOUDLY: accelerate is not installed")

from profkit.recording.integrations.accelerate import recorded  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def test_accumulated_steps_count_as_one(tmp_path):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(24, 4))
    parts = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=2))
    model, optimizer, loader = parts
    with recorded(accelerator, *parts, tmp_path / "run", wait=1, warmup=1, steps=2) as recorder:
        for (batch,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).mean())
                optimizer.step()
                optimizer.zero_grad()
    names = [e["name"] for e in json.loads(gzip.decompress(recorder.files[0].read_bytes()))["traceEvents"]]
    assert names.count("profkit::optimizer") == 2
    assert names.count("profkit::forward") == names.count("profkit::backward") == 4
