"""The N-th input of a seed: made from a recording, and sometimes packed, or given together with another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.fuzz import kineto_inputs, nsys_inputs, snapshot_inputs
from tests.fuzz.damage import Made
from tests.fuzz.packing import packed

READERS: dict[str, Callable[[Random], Made]] = {
    "kineto": kineto_inputs.make,
    "nsys": nsys_inputs.make,
    "snapshot": snapshot_inputs.make,
}


def nth(reader: str, seed: int, number: int) -> Made:
    """The input of that number, which depends on its seed and number alone."""
    return make(reader, Random(f"{reader} {seed} {number}"))


def make(reader: str, random: Random) -> Made:
    """One input for a reader, different for every state of ``random``."""
    made = READERS[reader](random)
    kind = random.random()
    if kind < 0.06:
        return packed(made, random)
    if kind < 0.1:
        return replace(made, beside=READERS[random.choice([*READERS, reader])](random))
    return made
