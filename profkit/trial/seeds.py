"""Other seeds for a program that sets its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from profkit.trial.changes.wrapping import replace

__all__ = ["random_states", "seed", "set_random_states"]


def seed(shift: int, undo: ExitStack) -> None:
    """Seed random, numpy and torch once, and add ``shift`` to each seed that the program sets later."""
    import torch

    random.seed(shift)
    np.random.seed(shift)
    torch.manual_seed(shift)
    if not shift:
        return

    def shifted(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_seed(*args: Any, **kwargs: Any) -> Any:
            args = tuple(each + shift if isinstance(each, int) else each for each in args)
            kwargs = {name: each + shift if isinstance(each, int) else each for name, each in kwargs.items()}
            return original(*args, **kwargs)

        return set_seed

    for owner, name in (
        (random, "seed"),
        (np.random, "seed"),
        (torch, "manual_seed"),
        (torch.Generator, "manual_seed"),
        (torch.cuda, "manual_seed"),
        (torch.cuda, "manual_seed_all"),
    ):
        try:
            replace(undo, owner, name, shifted)
        except TypeError:  # a class of C++, which cannot be changed
            continue


def random_states() -> tuple[Any, ...]:
    """Of random, numpy and torch on all devices."""
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda


def set_random_states(states: tuple[Any, ...]) -> None:
    """Let them be so again."""
    import torch

    own, numpys, torchs, cuda = states
    random.setstate(own)
    np.random.set_state(numpys)
    torch.set_rng_state(torchs)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
