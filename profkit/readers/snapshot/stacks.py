"""Texts, frames and stacks of a snapshot, each distinct one stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from profkit.model import UNKNOWN, IntColumn
from profkit.model.memory_history import Frames, Stacks
from profkit.readers.strings import Strings

__all__ = ["CleanStrings", "StackTable"]

_LONGEST_TEXT = 2000
_LARGEST_LINE = 1 << 31
_DEEPEST_STACK = 2000
"""Frames kept of one stack, innermost first; Python's own limit is 1000."""


class CleanStrings(Strings):
    """Texts of a snapshot, which may be anything."""

    def id(self, text: Any) -> int:
        """The id of a text, made valid Unicode and cut at 2000 characters; -1 for what is no text."""
        if not isinstance(text, str):
            return UNKNOWN
        known = self._ids.get(text)
        if known is None:
            kept = text[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
            known = self._ids[text] = self.add(kept)
        return known


class StackTable:
    """Interns stacks as the pickle shares them: the same list, then the same frames, then equal frames.

    Objects are told apart by `id`, so what was unpickled must stay alive while the table grows.
    """

    def __init__(self, strings: CleanStrings) -> None:
        self.malformed_frames = 0
        self._strings = strings
        self._frame_of_object: dict[int, int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}
        self._stack_of_objects: dict[tuple[int, ...], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def ids(self, stacks: Sequence[Any]) -> IntColumn:
        """The stack ids of many ``frames`` values; -1 where there are none."""
        objects = np.fromiter(map(id, stacks), np.uint64, len(stacks))
        _, first, inverse = np.unique(objects, return_index=True, return_inverse=True)
        distinct = np.empty(len(first), np.int32)
        # Numbered in order of appearance: addresses differ from run to run.
        for at in np.argsort(first).tolist():
            distinct[at] = self._id(stacks[first[at]])
        return distinct[inverse] if len(stacks) else np.zeros(0, np.int32)

    def tables(self) -> tuple[Frames, Stacks]:
        """All frames and stacks so far, as columns."""
        columns = np.array(list(self._frames), np.int64).reshape(-1, 3).T
        frames = Frames.of(len(self._frames), file=columns[0], line=columns[1], function=columns[2])
        lengths = np.fromiter(map(len, self._stacks), np.int64, len(self._stacks))
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.fromiter((frame for stack in self._stacks for frame in stack), np.int32, int(starts[-1]))
        return frames, Stacks(starts, flat)

    def _id(self, frames: Any) -> int:
        if not isinstance(frames, list | tuple) or not frames:
            return UNKNOWN
        if len(frames) > _DEEPEST_STACK:
            frames = frames[:_DEEPEST_STACK]
        objects = tuple(map(id, frames))
        known = self._stack_of_objects.get(objects)
        if known is None:
            rows = tuple(row for row in map(self._frame, frames) if row >= 0)
            known = self._stacks.setdefault(rows, len(self._stacks)) if rows else UNKNOWN
            self._stack_of_objects[objects] = known
        return known

    def _frame(self, frame: Any) -> int:
        known = self._frame_of_object.get(id(frame))
        if known is None:
            known = self._new_frame(frame)
            self._frame_of_object[id(frame)] = known
        return known

    def _new_frame(self, frame: Any) -> int:
        if not isinstance(frame, dict):
            self.malformed_frames += 1
            return UNKNOWN
        line = frame.get("line")
        line = line if type(line) is int and 0 <= line < _LARGEST_LINE else UNKNOWN
        key = (self._strings.id(frame.get("filename")), line, self._strings.id(frame.get("name")))
        return self._frames.setdefault(key, len(self._frames))
