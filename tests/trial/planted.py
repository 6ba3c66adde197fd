"""Changes that a trial has to refuse."""

import time
from abc import abstractmethod

from profkit.trial.changes import Change, Promise


class AtEachUpdate(Change):
    promise = Promise.EQUAL
    warm = False

    def install(self, undo, beside):
        import torch

        original = torch.optim.Adam.step

        def step(optimizer, *args, **kwargs):
            self.applied += 1
            self.update(lambda: original(optimizer, *args, **kwargs))

        torch.optim.Adam.step = step

    def warmed_up(self, undo):
        self.warm = True

    def patch(self, facts):
        return []

    @abstractmethod
    def update(self, do):
        """What happens at an update."""


class Ruins(AtEachUpdate):
    """Fast, since it trains nothing."""

    name = "ruins"

    def update(self, do):
        if self.applied < 3:
            do()


class Crashes(AtEachUpdate):
    name = "crashes"

    def update(self, do):
        if self.applied > 2:
            raise RuntimeError("planted crash")
        do()


class Hangs(AtEachUpdate):
    name = "hangs"

    def update(self, do):
        if self.warm:
            time.sleep(1000)
        do()
