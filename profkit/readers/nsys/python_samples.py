"""Sampled call stacks of Python as ranges: a function runs from the first to the last sample in a row that has it."""

from __future__ import annotations

import html
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Ranges
from profkit.model.marks import PYTHON_CHAINS, PYTHON_SAMPLES
from profkit.readers.nsys.actors import Actors
from profkit.readers.nsys.clock import Clock
from profkit.readers.nsys.columns import NULL, Columns, Integers, distinct
from profkit.readers.nsys.database import Database
from profkit.readers.nsys.strings import StringIds
from profkit.readers.strings import Strings

__all__ = ["python_ranges"]

_DEEPEST: Final = 200
"""Frames of a stack that are looked at, from the outermost one."""

_MOST_FRAMES: Final = 20_000_000
"""Frames of all different stacks together; of more, the inner ones are left out."""

_MISSED: Final = 10
"""Sampling periods without a sample after which it is not known what ran, unless the whole stack is the same before and
after: what holds the interpreter keeps the sampler away too."""

_PAUSE: Final = 1000
"""Sampling periods without a sample after which it is not known what ran at all."""

_MOST_LINES: Final = 1 << 31


def python_ranges(
    database: Database, string_ids: StringIds, strings: Strings, actors: Actors, clock: Clock
) -> Ranges:
    """The functions that samples saw for longer than a period, named ``file.py(12): function``.

    The line is the one that most samples of the function saw: where it spends its time, not where it begins.
    """
    samples, chains = database.table(PYTHON_SAMPLES), database.table(PYTHON_CHAINS)
    if samples is None or chains is None:
        return Ranges.empty()
    rows = samples.integers({"timestamp": NULL, "globalTid": NULL, "callchainId": -1})
    rows = clock.credible(
        Columns(len(rows), {**rows.values, "start": rows["timestamp"], "end": rows["timestamp"]})
    )
    order = np.lexsort((rows["start"], rows["globalTid"]))
    rows = Columns(len(rows), {name: column[order] for name, column in rows.values.items()})
    table = chains.integers({"id": -1, "symbol": -1, "module": -1, "line": 0, "stackDepth": -1})
    known, chain = distinct(table["id"])
    place = np.searchsorted(known, rows["callchainId"])
    held = (place < len(known)) & (np.append(known, -1)[place] == rows["callchainId"])
    held &= actors.thread(rows["globalTid"]) >= 0
    rows, place = rows.take(held), place[held]
    if not len(rows):
        return Ranges.empty()
    functions, function = np.unique(np.stack((table["module"], table["symbol"])), axis=1, return_inverse=True)
    function = np.ravel(function)
    stacks = _stacks(chain, table["stackDepth"], function, len(known))
    lines = _lines(chain, function, table["line"], np.bincount(place, minlength=len(known)))
    names = np.array(
        [
            strings.add(f"{_text(string_ids, module)}({line}): {_text(string_ids, symbol)}")
            for (module, symbol), line in zip(functions.T.tolist(), lines.tolist(), strict=True)
        ],
        np.int64,
    )
    first, last, which = _runs(rows["start"], rows["globalTid"], stacks, place)
    return Ranges.of(
        len(first),
        start_ns=clock.session_ns(rows["start"][first]),
        end_ns=clock.session_ns(rows["start"][last]),
        thread=actors.thread(rows["globalTid"][first]),
        name=names[which],
        kind=np.full(len(first), RangeKind.PYTHON),
    )


def _text(string_ids: StringIds, number: int) -> str:
    return html.unescape(string_ids.text(number))


def _stacks(chain: Integers, depth: Integers, function: Integers, count: int) -> NDArray[np.int32]:
    """The functions of each call chain from the outermost, -1 beyond the innermost: shape (chains, depth)."""
    depth = np.clip(depth, 0, 1 << 20)
    deepest = np.zeros(count, np.int64)
    np.maximum.at(deepest, chain, depth)
    level = deepest[chain] - depth
    kept = level < min(_DEEPEST, max(1, _MOST_FRAMES // count))
    stacks = np.full((count, int(level[kept].max(initial=0)) + 1), -1, np.int32)
    stacks[chain[kept], level[kept]] = function[kept]
    return stacks


def _lines(chain: Integers, function: Integers, line: Integers, samples: Integers) -> Integers:
    """The line of each function that most samples saw."""
    line = np.where((line >= 0) & (line < _MOST_LINES), line, 0)
    pairs, pair = np.unique(np.stack((function, line)), axis=1, return_inverse=True)
    seen = np.bincount(np.ravel(pair), samples[chain], minlength=pairs.shape[1])
    order = np.lexsort((seen, pairs[0]))
    found = np.zeros(int(function.max()) + 1, np.int64)
    found[pairs[0][order]] = pairs[1][order]  # the last of a function is the one that was seen most
    return found


def _runs(
    time: Integers, thread: Integers, stacks: NDArray[np.int32], place: NDArray[np.int64]
) -> tuple[Integers, Integers, Integers]:
    """Functions that follow each other in samples: the first and the last sample of each run, and the function."""
    step = np.diff(time)
    same = thread[1:] == thread[:-1]
    period = float(np.median(step[same])) if same.any() else 0.0
    lost = (step > _MISSED * period) & (place[1:] != place[:-1])
    broken = np.concatenate(([True], ~same | lost | (step > _PAUSE * period)))
    found: list[tuple[Integers, Integers, Integers]] = []
    for level in range(stacks.shape[1]):
        column = stacks[place, level]
        broken = broken | np.concatenate(([True], column[1:] != column[:-1]))
        first = np.flatnonzero(broken)
        last = np.append(first[1:], len(column)) - 1
        kept = (column[first] >= 0) & (last > first)
        found.append((first[kept], last[kept], column[first[kept]]))
    first, last, which = (np.concatenate([part[i] for part in found]) for i in range(3))
    return first, last, which
