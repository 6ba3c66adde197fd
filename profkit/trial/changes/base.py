"""What a change is: a hook that is installed in the program's process, with its precondition and the code to write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Any, ClassVar

from profkit.trial.messages import Facts

__all__ = ["ALREADY", "Change", "Promise"]

ALREADY = "already so"


class Promise(Enum):
    """What a change says of the program's numbers."""

    EQUAL = "equal"
    """The same but for the order of sums: losses of the same seed stay together."""
    DRAWS = "draws"
    """The same, but random numbers may be drawn in another order: as another seed."""
    PRECISION = "precision"
    """Fewer bits."""


class Change(ABC):
    """A change that can be made from outside, and taken back."""

    name: ClassVar[str]
    """As in `profkit.simulation.change_help`, which says what it does."""
    promise: ClassVar[Promise]
    kind_of: ClassVar[str | None] = None
    """Changes of one kind exclude each other."""

    def __init__(self) -> None:
        self.applied = 0
        """How often it found something to change."""
        self.refused = ""
        """What torch said where it did not fit."""

    def obstacle(self, facts: Facts) -> str | None:
        """Why it is not tried on a program like this, in words; None where it may help."""
        return None

    def environment(self, facts: Facts) -> dict[str, str]:
        """Variables to set before the program starts."""
        return {}

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:  # noqa: B027 - some need none
        """Put the hook in; what takes it back goes to ``undo``. ``beside`` are all changes of this process."""

    def arrived(self, optimizers: Sequence[Any]) -> None:  # noqa: B027 - most need none
        """These were made before the hook was put in, since the process is not the trial's."""

    def warmed_up(self, undo: ExitStack) -> None:  # noqa: B027 - most need none
        """The steps before the first timed one are over."""

    @abstractmethod
    def patch(self, facts: Facts) -> list[str]:
        """Lines of code to write, with a comment where they go; for a command line: variables to set before it."""
