"""The pairs of `examples/before_after`, made small: both sides run on the CPU and compute the same."""

import importlib
import math
import subprocess
import sys

import pytest

from tests.shared import DATA

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

FOLDER = DATA.parents[1] / "examples" / "before_after"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "steps")
FOR_GPUS = ["cuda_graphs", "data_parallel", "pinned_copies", "streams"]
TOO_LARGE = {"item_gpu_bound", "compile_chain", "compile_norm_chain"}
OTHER_NUMBERS = {"fp64_mlp", "fp64_mlp_tf32", "vocabulary", "loader_4_workers", "loader_8_workers"}
"""Sides that start from other random numbers: another type, another size, workers."""
SMALL = {
    "gpt": {"batch": 2, "length": 16, "width": 64, "layers": 1, "vocab": 64},
    "mlp": {"batch": 4, "width": 32, "layers": 2},
    "convnet": {"batch": 2, "size": 16},
}


def shrunk(build, sizes):
    return lambda **options: build(**{**options, **sizes})


@pytest.fixture(scope="module")
def modules():
    """The scripts that need no GPU, with small models."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.syspath_prepend(str(FOLDER))
    steps = importlib.import_module("steps")
    for name, sizes in SMALL.items():
        monkeypatch.setattr(steps, name, shrunk(getattr(steps, name), sizes))
    # its own way to change a setting: one that is set and taken back by attribute is gone afterwards
    with torch._dynamo.config.patch(disable=True):
        yield {name: importlib.import_module(name) for name in NAMES if name not in FOR_GPUS}
    monkeypatch.undo()
    for name in ("steps", *NAMES):
        sys.modules.pop(name, None)


def first_loss(build):
    found = build()()
    return found.float().mean().item() if isinstance(found, torch.Tensor) else None


@pytest.mark.filterwarnings(
    "ignore:'pin_memory' argument is set",
    "ignore:.torch.jit:DeprecationWarning",
    "ignore:This DataLoader will create",
)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in FOR_GPUS])
def test_both_sides_of_a_pair_run_and_compute_the_same(modules, name):
    steps = sys.modules["steps"]
    assert modules[name].PAIRS
    for pair, (before, after) in modules[name].PAIRS.items():
        if pair in TOO_LARGE:
            continue
        steps.defaults()
        was = first_loss(before)
        steps.defaults()
        now = first_loss(after)
        assert was is None or math.isfinite(was), pair
        if was is not None and pair not in OTHER_NUMBERS:
            assert now == pytest.approx(was, rel=0.03, abs=1e-3), pair
    steps.defaults()


def test_names_of_pairs_are_the_studys(modules):
    study = importlib.import_module("tests.advice.test_study")
    named = [pair for module in modules.values() for pair in module.PAIRS]
    on_gpus = {"graph_tiny_mlp", "graph_gpt_short", "graph_gpt_long", "pinned_prefetch"}

    assert len(named) == len(set(named))
    assert set(study.PREDICTIONS) <= set(named) | on_gpus


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are the GPUs that it needs")
@pytest.mark.parametrize("name", FOR_GPUS)
def test_without_the_gpus_that_it_needs_an_example_says_so_in_one_line(name):
    if name != "data_parallel" and torch.cuda.is_available():
        pytest.skip("there is the GPU that it needs")

    done = subprocess.run(
        [sys.executable, f"{name}.py"], cwd=FOLDER, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("this example needs ")
    assert len(done.stderr.splitlines()) == 1


def test_ranks_that_wait_for_each_other_make_equally_many_steps(modules):
    made = []

    sys.modules["steps"].timed(lambda: made.append(1), warmup=2, loops=3, steps=4)

    assert len(made) == 2 + 3 * 4
