"""The examples run on the CPU and record what they teach."""

import gzip
import importlib.util
import json

import pytest

from tests.shared import DATA

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

EXAMPLES = DATA.parents[1] / "examples"


def run(name, *arguments):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(*arguments)


def phases(folder):
    return set(json.loads((folder / "run.json").read_text())["phases"])


def operators(folder):
    trace = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    return [event["name"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]


@pytest.mark.slow
def test_annotated_gpt_splits_attention(tmp_path):
    run("annotated_gpt", tmp_path / "run")
    assert phases(tmp_path / "run") >= {
        "forward",
        "scores",
        "softmax",
        "value",
        "loss",
        "backward",
        "optimizer",
    }


def test_planted_item_can_be_taken_out(tmp_path):
    run("planted_item", tmp_path / "with")
    run("planted_item", tmp_path / "without", "--without")
    assert operators(tmp_path / "with").count("aten::item") >= 8 * 3
    assert operators(tmp_path / "without").count("aten::item") < 8 * 3


def test_slow_loader_names_its_fetches(tmp_path):
    run("slow_loader", tmp_path / "run")
    assert phases(tmp_path / "run") >= {"data", "forward", "backward", "optimizer", "zero_grad"}


def test_out_of_memory_says_that_it_needs_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run("out_of_memory", tmp_path / "run")
    assert "no GPU" in capsys.readouterr().out
