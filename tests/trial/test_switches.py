"""Changes that are a switch or an argument: they are set while the hook is there, and only where the program has a place."""

import gc
import os
from contextlib import ExitStack

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from profkit.trial.changes import change_named  # noqa: E402
from profkit.trial.messages import Facts, LoaderFacts, OptimizerFacts  # noqa: E402

pytestmark = pytest.mark.torch

ROWS = TensorDataset(torch.ones(8, 4))


@pytest.fixture
def change():
    """Installs one change, and takes it back at the end."""
    with ExitStack() as undo:

        def install(name):
            made = change_named(name)
            made.install(undo, [made])
            install.undo = undo
            return made

        yield install


def is_tf32():
    return torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("name", "is_set"), [("tf32", is_tf32), ("cudnn-benchmark", lambda: torch.backends.cudnn.benchmark)]
)
def test_a_switch_of_torch_is_set_for_as_long_as_it_is_tried(change, name, is_set):
    made = change(name)
    assert is_set()
    made.warmed_up(change.undo)
    assert made.applied
    change.undo.close()
    assert not is_set()


@pytest.mark.parametrize(
    ("name", "back"),
    [
        ("tf32", lambda: torch.set_float32_matmul_precision("highest")),
        ("cudnn-benchmark", lambda: setattr(torch.backends.cudnn, "benchmark", False)),
    ],
)
def test_a_program_that_sets_a_switch_back_has_nothing_changed(change, name, back):
    made = change(name)
    back()
    made.warmed_up(change.undo)
    assert not made.applied


class Endless(IterableDataset):
    def __iter__(self):
        yield from range(8)


def test_a_loader_without_workers_gets_some_that_stay(change):
    made = change("loader-workers")
    loader = DataLoader(ROWS, batch_size=4)
    assert loader.num_workers == min(8, len(os.sched_getaffinity(0)))
    assert loader.persistent_workers
    assert DataLoader(ROWS, num_workers=1).num_workers == 1
    assert DataLoader(Endless()).num_workers == 0
    assert made.applied == 1


def test_batches_are_pinned_and_copied_without_waiting(change, monkeypatch):
    copied = []
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *args, **kwargs: copied.append(kwargs) or tensor)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.numel() == 4)
    made = change("pinned")
    assert DataLoader(ROWS).pin_memory
    assert made.applied == 1
    torch.ones(4).to("cpu")
    torch.ones(4).to("cpu", non_blocking=False)
    torch.ones(3).to("cpu")
    assert copied == [{"non_blocking": True}, {"non_blocking": False}, {}]


@pytest.mark.parametrize("keyword", ["fused", "foreach"])
def test_an_optimizer_gets_the_keyword_where_it_is_made(change, keyword):
    made = change(f"{keyword}-optimizer")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    assert optimizer.param_groups[0][keyword]
    assert made.applied == 1


def test_an_optimizer_that_cannot_be_fused_is_made_as_it_was(change):
    made = change("fused-optimizer")
    weights = [torch.nn.Parameter(torch.ones(2))]
    optimizer = torch.optim.SGD(weights, lr=0.1, differentiable=True)
    assert not optimizer.param_groups[0]["fused"]
    assert not made.applied
    assert made.refused


@pytest.mark.parametrize("owner", ["model", "optimizer"])
def test_gradients_that_would_be_zeroed_are_dropped(change, owner):
    model = torch.nn.Linear(2, 1)
    owners = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    made = change("set-to-none")
    model(torch.ones(1, 2)).sum().backward()
    owners[owner].zero_grad(set_to_none=False)
    assert model.weight.grad is None
    assert made.applied == 1


def test_garbage_is_not_collected_by_itself_while_it_is_tried(change):
    made = change("garbage-collection")
    made.warmed_up(change.undo)
    assert not gc.isenabled()
    assert made.applied == 1
    change.undo.close()
    assert gc.isenabled()
    assert not gc.get_freeze_count()


GPU = {"cuda": True, "capability": (9, 0)}
PLAIN = LoaderFacts(workers=0, pinned=False, iterable=False)
TUNED = LoaderFacts(workers=4, pinned=True, iterable=False)
STREAM = LoaderFacts(workers=0, pinned=False, iterable=True)
LOOP = OptimizerFacts(name="Adam", fused=False, foreach=False, can_fuse=True, can_foreach=True)
FUSED = OptimizerFacts(name="Adam", fused=True, foreach=False, can_fuse=True, can_foreach=True)
RPROP = OptimizerFacts(name="Rprop", fused=False, foreach=True, can_fuse=False, can_foreach=True)


@pytest.mark.parametrize(
    ("name", "facts", "why"),
    [
        ("tf32", {**GPU}, None),
        ("tf32", {"cuda": True, "capability": (7, 5)}, "this GPU has no TF32"),
        ("tf32", {**GPU, "tf32": True}, "already so"),
        ("bf16", {**GPU, "modules": 1}, None),
        ("bf16", {**GPU, "modules": 1, "autocast": True}, "already so"),
        ("loader-workers", {"loaders": [PLAIN]}, None),
        ("loader-workers", {"loaders": [TUNED]}, "already so"),
        ("loader-workers", {"loaders": [STREAM]}, "an IterableDataset must split its data among workers itself"),
        ("pinned", {**GPU, "loaders": [PLAIN]}, None),
        ("pinned", {**GPU, "loaders": [TUNED]}, "already so"),
        ("channels-last", {"convolutions": 2}, None),
        ("channels-last", {"convolutions": 2, "channels_last": True}, "already so"),
        ("cudnn-benchmark", {**GPU, "convolutions": 2}, None),
        ("cudnn-benchmark", {**GPU}, "no convolution"),
        ("fused-optimizer", {"optimizers": [LOOP]}, None),
        ("fused-optimizer", {"optimizers": [FUSED]}, "already so"),
        ("fused-optimizer", {"optimizers": [RPROP]}, "Rprop has no fused form"),
        ("foreach-optimizer", {"optimizers": [RPROP]}, "already so"),
        ("threads", {"cpus": 8}, None),
        ("threads", {**GPU, "cpus": 8}, "a GPU computes"),
        ("reduce-overhead", {**GPU, "modules": 1}, None),
        ("reduce-overhead", {"modules": 1}, "no GPU"),
        ("compile", {"modules": 1, "compiled": True}, "already so"),
        ("set-to-none", {"zeroed": True}, None),
        ("set-to-none", {}, "already so"),
        ("garbage-collection", {"collects": False}, "already so"),
    ],
)  # fmt: skip
def test_a_change_is_tried_where_the_program_has_a_place_for_it(name, facts, why):
    assert change_named(name).obstacle(Facts(**facts)) == why


@pytest.mark.parametrize(("now", "tried"), [(1, "8"), (8, "1")])
def test_the_other_number_of_threads_is_tried(now, tried):
    facts = Facts(cpus=8, threads=now)
    made = change_named("threads")
    assert made.environment(facts) == {"OMP_NUM_THREADS": tried}
    assert made.patch(facts) == [f"OMP_NUM_THREADS={tried}"]
