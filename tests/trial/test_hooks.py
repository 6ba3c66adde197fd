"""What changes do to a program's modules, and what that costs them."""

import copy
import pickle
from contextlib import ExitStack

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from torch.nn.modules import module as modules  # noqa: E402

from profkit.trial.changes import changes_named  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def installed():
    """Installs changes, as the program's process does."""
    with ExitStack() as undo:

        def install(*names):
            found = changes_named(names)
            for change in found:
                change.install(undo, found)
            return found, undo

        yield install


@pytest.fixture
def model():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 3))


def loss_of(model):
    return torch.nn.functional.cross_entropy(model(torch.ones(2, 1, 4, 4)), torch.tensor([0, 1]))


@pytest.mark.parametrize("name", ["bf16", "channels-last", "fused-attention"])
def test_after_the_warm_up_no_hook_runs_at_each_layer(installed, model, name):
    (change,), undo = installed(name)
    loss_of(model)
    assert modules._global_forward_hooks
    change.warmed_up(undo)
    assert not modules._global_forward_hooks
    assert not modules._global_forward_pre_hooks


def test_bf16_stays_in_model_and_loss_after_the_warm_up(installed, model):
    (change,), undo = installed("bf16")
    loss_of(model)
    change.warmed_up(undo)
    assert model(torch.ones(2, 1, 4, 4)).dtype is torch.bfloat16
    assert loss_of(model).dtype is torch.float32  # cross entropy is one that autocast keeps in fp32
    assert not torch.is_autocast_enabled("cpu")
    undo.close()
    assert model(torch.ones(2, 1, 4, 4)).dtype is torch.float32


def test_a_model_in_bf16_can_still_be_copied_and_saved(installed, model):
    (change,), undo = installed("bf16")
    loss_of(model)
    change.warmed_up(undo)
    assert copy.deepcopy(model)(torch.ones(2, 1, 4, 4)).dtype is torch.float32
    pickle.loads(pickle.dumps(model))


def test_an_exception_in_the_model_closes_autocast(installed, model):
    (change,), undo = installed("bf16")
    loss_of(model)
    change.warmed_up(undo)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 5, 4, 4))
    assert not torch.is_autocast_enabled("cpu")


def test_with_a_compiler_the_hooks_stay_so_that_nothing_is_compiled_again(installed, model):
    (change, _), undo = installed("bf16", "compile")
    change.entered(change.kinds[0], model)
    change.left(change.kinds[0], model, None)
    change.warmed_up(undo)
    assert modules._global_forward_hooks
