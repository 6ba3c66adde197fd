"""A loader's workers have nothing of a trial: a hook that asks CUDA in a forked process is an error."""

import os
from contextlib import ExitStack

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from torch.nn.modules import module as modules  # noqa: E402

from profkit.recording import program_events  # noqa: E402
from profkit.trial.changes import CHANGES, changes_named  # noqa: E402
from profkit.trial.forks import undone_in_children  # noqa: E402
from profkit.trial.losses import Losses  # noqa: E402

pytestmark = pytest.mark.torch


class Rows(torch.utils.data.Dataset):
    """Rows that a transform of torchvision would convert: with `Tensor.to`, in a module."""

    def __init__(self):
        self.transform = torch.nn.Sequential(torch.nn.ReLU())

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(torch.ones(4, dtype=torch.float64).to(torch.float32))


@pytest.fixture
def installed():
    with ExitStack() as undo:
        undone_in_children(undo)

        def install(*names):
            found = changes_named(names)
            for change in found:
                change.install(undo, found)
            Losses().listen(undo)

        yield install


def test_no_hook_asks_a_device_in_a_worker(installed, monkeypatch):
    parent = os.getpid()

    def asked(*args, **kwargs):
        if os.getpid() != parent:
            raise RuntimeError("CUDA error: initialization error")
        return False

    monkeypatch.setattr(torch.Tensor, "is_pinned", asked)
    monkeypatch.setattr(torch, "autocast", asked)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context="fork")
    installed(*CHANGES)
    assert sum(len(batch) for batch in loader) == 8


def listeners():
    """How many listen to a program's events, and to all modules."""
    return sum(map(len, program_events._listeners.values())) + len(modules._global_forward_hooks)


def test_a_forked_process_has_no_hook_and_the_parent_keeps_its_own(installed):
    before = listeners()
    plain = torch.Tensor.to, torch.autograd.backward, torch.optim.Adam.__init__
    installed(*CHANGES)
    assert listeners() > before
    hooked = torch.Tensor.to, torch.autograd.backward, torch.optim.Adam.__init__
    child = os.fork()
    if not child:
        left = (torch.Tensor.to, torch.autograd.backward, torch.optim.Adam.__init__)
        os._exit(0 if left == plain and listeners() <= before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(one is not other for one, other in zip(plain, hooked, strict=True))
    assert (torch.Tensor.to, torch.autograd.backward, torch.optim.Adam.__init__) == hooked
