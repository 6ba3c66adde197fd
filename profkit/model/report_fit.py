"""What `profkit.fit` returns: memory and time of a step before and after some changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from profkit.model.names import MemoryCategory
from profkit.model.rows import Bytes, Interval, Ns, Row

__all__ = ["Fit", "FitCategory", "FitChoice", "FitNote", "FitNow", "FitThen"]


class FitNow(Row, frozen=True, kw_only=True):
    """The recorded step."""

    peak_bytes: Bytes
    """The most that was allocated at once."""
    reserved_bytes: Bytes | None
    """The most that the allocator held from CUDA."""
    step_ns: Ns | None
    """The step's time without a recorder; None without a trace."""


class FitThen(Row, frozen=True, kw_only=True):
    """The step with the changes."""

    peak_bytes: Interval
    reserved_bytes: Interval
    """The lower end is what it still runs in when memory is short and free segments are given back."""
    step_ns: Interval | None


class FitCategory(Row, frozen=True, kw_only=True):
    """What a category holds at the peak."""

    category: MemoryCategory
    """What for."""
    before_bytes: Bytes
    """At the peak of the recorded step."""
    after_bytes: Bytes
    """At the peak of the changed step, which may lie elsewhere."""


class FitNote(Row, frozen=True, kw_only=True):
    """Something that limits what is known, as a code."""

    code: str
    params: Mapping[str, str | int | float] = {}


class FitChoice(Row, frozen=True, kw_only=True):
    """A set of changes with which the step fits."""

    changes: Sequence[str]
    settings: Mapping[str, float | str]
    after: FitThen


class Fit(Row, frozen=True, kw_only=True):
    """Whether a step fits into memory after some changes, and what it then takes."""

    schema: Literal["profkit.fit/1"] = "profkit.fit/1"
    before: FitNow
    changes: Sequence[str]
    """The changes by name, in the order in which they were made."""
    settings: Mapping[str, float | str]
    """The values of those that have one: ``{"batch": 2.0, "optimizer": "sgd"}``."""
    after: FitThen
    memory_bytes: Bytes | None
    """What it has to fit into: as given, else the GPU's."""
    outside_bytes: Bytes
    """What is in use outside of the allocator: an out-of-memory report in the history tells. Of the GPU's own memory CUDA's
    context takes its part at least."""
    fits: bool | None
    """True when the upper end of reserved memory and what is outside fit, False when the lower end does not."""
    by_category: Sequence[FitCategory]
    cheapest: FitChoice | None = None
    """Where it is not sure to fit: the further changes with which it does, and with which the step is shortest."""
    notes: Sequence[FitNote] = ()
