"""The blind workloads: new, fixed before they were measured, and every one builds and runs a step."""

import contextlib
import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "reports" / "calibration"
DATA = FOLDER / "data"
FIXED = json.loads((DATA / "blind.json").read_text())
AGAIN = json.loads((DATA / "blind_again.json").read_text())
BLIND = [*FIXED["names"], *AGAIN["names"]]
NO_META = {
    "adamw_fused_mixed": "the fused optimizer refuses parameters of the meta device",
    "compiled_mlp_bf16": "torch.compile makes no code for the meta device",
    "compiled_norm_gelu_dropout_fp16": "torch.compile makes no code for the meta device",
}


@pytest.fixture
def torch():
    """torch, whose switches a workload may turn."""
    torch = pytest.importorskip("torch")
    switches = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield torch
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = switches


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def registry(torch, study):
    return study("record").REGISTRY


def test_nobody_edited_them_since_they_were_fixed(study):
    hashes = study("blind").hashes
    assert hashes("blind") == FIXED["sha256"], "before they are measured: python reports/calibration/blind.py"
    assert hashes("blind_again") == AGAIN["sha256"], "likewise: python reports/calibration/blind.py again"


def test_they_are_in_neither_part_of_the_split():
    split = json.loads((DATA / "split.json").read_text())
    assert not set(BLIND) & {*split["fit"], *split["held_out"]}
    recorded = {row["name"]: row["held_out"] for row in json.loads((DATA / "workloads.json").read_text())}
    assert {name for name, held_out in recorded.items() if held_out is None} <= set(BLIND)
    assert all(recorded.get(name) is None for name in BLIND)


@pytest.mark.torch
def test_the_fixed_ones_are_those_that_the_files_define(registry):
    assert [work.name for work in registry.values() if work.blind == 1] == FIXED["names"]
    assert [work.name for work in registry.values() if work.blind == 2] == AGAIN["names"]
    assert len(FIXED["names"]) >= 30


@pytest.mark.torch
def test_what_is_claimed_of_the_recorded_ones_is_what_the_files_say(registry):
    for row in json.loads((DATA / "workloads.json").read_text()):
        work = registry[row["name"]]
        assert row == {claim: getattr(work, claim) for claim in row}
        assert row["blind"] == work.blind


@pytest.mark.torch
def test_the_group_names_all_of_them(study, torch):
    assert study("record").names("blind,gemm_tf32") == {*FIXED["names"], "gemm_tf32"}
    assert study("record").names("again") == set(AGAIN["names"])
    with pytest.raises(SystemExit, match="no workload named"):
        study("record").names("blinds")


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(set(BLIND) - set(NO_META)))
def test_a_step_runs_without_a_device(registry, name):
    step = registry[name].build("meta")
    first, second = (step(lambda phase: contextlib.nullcontext()) for _ in range(2))
    results = second if isinstance(second, tuple | list) else [second]
    if registry[name].kind != "optimizer":
        assert all(result.device.type == "meta" and result.numel() for result in flat(results))
    assert type(first) is type(second)


def flat(results):
    for result in results:
        yield from flat(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["adamw_fused_mixed"])
def test_a_small_step_runs_on_the_cpu_where_the_meta_device_cannot(registry, name):
    registry[name].build("cpu")(lambda phase: contextlib.nullcontext())


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", ["compiled_mlp_bf16", "compiled_norm_gelu_dropout_fp16"])
@pytest.mark.filterwarnings("ignore")  # torch's compiler deprecates its own parts
def test_a_compiled_step_runs_small_on_the_cpu(registry, torch, name):
    try:
        gradients = registry[name].build("cpu")(lambda phase: contextlib.nullcontext())
    finally:
        torch.compiler.reset()
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_those_that_the_meta_device_cannot_run_are_few():
    assert set(NO_META) <= set(FIXED["names"])
    assert len(NO_META) <= 3


def test_the_second_round_was_scored_by_the_models_fixed_before():
    assert (
        json.loads((DATA / "blind_again_scores.json").read_text())["models_at_revision"]
        == AGAIN["models_at_revision"]
    )


def test_the_scores_of_the_first_look_are_those_of_the_models_fixed_before():
    first = json.loads((DATA / "blind_scores.json").read_text())
    assert first["models_at_revision"] == FIXED["models_at_revision"]
    kineto = first["scores"]["kineto"]
    assert kineto["bytes_within_25_pct"]["share"] >= 0.80
    assert min(group["share"] for group in kineto["side_agrees_by_group"].values()) >= 0.90
    assert kineto["slow_called_slow"]["share"] >= 0.90
    assert kineto["busy_flagged"]["share"] <= 0.05
