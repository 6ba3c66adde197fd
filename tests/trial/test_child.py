"""The program's own process: when it counts steps, and when it stands still."""

from contextlib import ExitStack

import pytest

pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from profkit.trial.child import Turns
from profkit.trial.losses import Losses
from profkit.trial.messages import Facts, LoaderFacts, Order, Turn
from profkit.trial.observe import Observer

pytestmark = pytest.mark.torch


class Talk:
    """Hears blocks, and gives turns of two steps."""

    def __init__(self):
        self.blocks = []

    def say(self, block):
        self.blocks.append(block)

    def hear(self):
        return Turn(steps=2)


@pytest.mark.parametrize(
    ("ahead", "first_turn"),
    [pytest.param(0, 3, id="no workers"), pytest.param(8, 11, id="what workers prepared is used up first")],
)
def test_steps_of_each_turn(monkeypatch, ahead, first_turn):
    loader = LoaderFacts(workers=4, pinned=False, iterable=False, ahead=ahead)
    monkeypatch.setattr(Observer, "facts", lambda observer: Facts(loaders=[loader]))
    talk = Talk()
    with ExitStack() as undo:
        turns = Turns(talk, Order(socket="", warmup=2), {}, Losses(), undo, {})
        taken = []
        for _ in range(3):
            steps, known = 0, len(talk.blocks)
            while len(talk.blocks) == known:
                turns.stepped()
                steps += 1
            taken.append(steps)
    assert taken == [2, first_turn, 3]
    assert [block.steps for block in talk.blocks] == [2, 2, 2]
