"""The lab's numbers: what formats do to sums and to a small training, within the rounding of each format."""

import runpy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def sums():
    return runpy.run_path(str(EXAMPLES / "accumulation.py"))


@pytest.fixture(scope="module")
def lab():
    torch.set_num_threads(1)
    return runpy.run_path(str(EXAMPLES / "numerics.py"))


@pytest.fixture(scope="module")
def trained(lab):
    """The last loss of each training with the training, after 60 steps."""
    return {name: ([each.step() for _ in range(60)][-1], each) for name, each in lab["formats"]()}


def test_each_sum_is_that_of_float64_within_the_rounding_of_its_type(sums):
    for numbers, into in sums["CASES"]:
        total, exact = (
            sums["accumulate"](0.01, 1000, numbers, into), sums["exact"](0.01, 1000, numbers),
        )  # fmt: skip
        # Each of 1000 sums, none above the whole, is off by half of the distance between two numbers at most.
        assert abs(total - exact) <= 1000 * exact * torch.finfo(into).eps / 2, (numbers, into)


def test_a_sum_in_bf16_stands_still_and_one_in_fp32_does_not(sums):
    assert sums["accumulate"](0.01, 1000, torch.bfloat16, torch.bfloat16) == 4.0
    assert sums["accumulate"](0.01, 1000, torch.bfloat16, torch.float32) == pytest.approx(10.0098, abs=1e-3)
    assert sums["accumulate"](0.01, 1000, torch.float16, torch.float16) == 9.953125


def test_autocast_keeps_weights_and_gradients_in_fp32(lab):
    types = lab["types_under"](torch.bfloat16)

    assert types["weights"] == types["gradients"] == types["loss"] == torch.float32
    assert types["output of fc1"] == types["output of fc2"] == torch.bfloat16


def test_each_format_does_to_the_training_what_the_lab_says(trained):
    loss = {name: found[0] for name, found in trained.items()}
    each = {name: found[1] for name, found in trained.items()}

    assert loss["autocast bf16"] == pytest.approx(loss["fp32"], abs=0.01)
    assert loss["autocast fp16, scaler"] == pytest.approx(loss["fp32"], abs=0.01)
    assert loss["pure bf16, master weights"] == pytest.approx(loss["fp32"], abs=0.02)
    assert loss["pure bf16"] > loss["fp32"] + 0.1
    assert each["autocast fp16"].lost_gradients > 0.1 > each["autocast fp16, scaler"].lost_gradients
    assert each["pure bf16"].swallowed > 0.8 > each["fp32"].swallowed


def test_profkit_names_the_missing_scaler_and_nothing_else(lab, trained):
    said = {name: lab["what_profkit_says"](found[1]) for name, found in trained.items()}

    assert [name for name, lines in said.items() if any("nothing scales" in line for line in lines)] == [
        "autocast fp16"
    ]
    assert said["fp32"] == said["pure bf16"] == []
    assert said["autocast bf16"] == ["Autocast to bf16 added 4 casts."]


def test_the_recorder_finds_lost_gradients_and_swallowed_updates_where_they_are(lab, trained):
    found = {name: lab["what_the_recorder_says"](each) for name, (_, each) in trained.items()}

    (lost,), (swallowed,) = found.pop("autocast fp16"), found.pop("pure bf16")
    assert "below fp16's normal range" in lost
    assert swallowed.startswith("bf16 weights swallow 8")
    assert not any(found.values())
