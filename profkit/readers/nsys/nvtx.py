"""NVTX ranges, and what emit_nvtx writes into their texts.

`torch.autograd.profiler.emit_nvtx` appends to the name of an operator, in this order and each only where known
(torch/csrc/profiler/util.cpp, getNvtxStr)::

    aten::addmm, seq = 12, op_id = 345, sizes = [[64], [8, 32], [32, 64]], input_op_ids = [(0,-1), (340,0), (344,0)]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model import PHASE_DOMAIN, PHASE_MARK, UNKNOWN, WORK_MARK, RangeKind, Ranges, Severity
from profkit.readers.nsys.actors import Actors, process_ids
from profkit.readers.nsys.clock import Clock
from profkit.readers.nsys.columns import NULL, Columns, Integers, distinct, distinct_pairs
from profkit.readers.nsys.database import Database, join, text
from profkit.readers.nsys.strings import UNNAMED, StringIds
from profkit.readers.strings import Strings

__all__ = ["Labels", "Marks", "read_ranges"]

_PUSH_POP = (59, 70)
_START_END = (60, 71)
_THREAD_NAME = 39
_DOMAIN_CREATED = 75
"""Event types of ENUM_NSYS_EVENT_TYPE; 70 and 71 are of imported text files. Marks (34) are no ranges."""

_OPERATOR = re.compile(
    rb"(?P<name>.+?)(?:, seq = (?P<sequence>\d{1,18}))?(?:, op_id = \d{1,20})?"
    rb"(?:, sizes = (?P<sizes>\[[\d\[\], -]*\]))?(?:, input_op_ids = \[[\d(), -]*\])?",
    re.DOTALL,
)
_LONGEST_NUMBER = 18
_MARK, _WORK = PHASE_MARK.encode(), WORK_MARK.encode()
_OPERATOR_PREFIXES = (b"aten::", b"autograd::", b"torch::autograd::")
_ROWS = {
    "start": NULL,
    "end": NULL,
    "eventType": _PUSH_POP[0],
    "globalTid": NULL,
    "domainId": 0,
    "textId": -1,
}


class Meaning(IntEnum):
    """What the text of a range makes it."""

    ANNOTATION = 0
    OPERATOR = 1
    PHASE = 2
    """It carries the mark of `profkit.phase`."""
    WORK = 3
    """It says the work of the phase around it, whose domain it has: it is none itself."""


Label = tuple[int, int, Meaning]
"""A name, the shapes of an operator's inputs, and what it is."""

_OP_ID, _INPUTS, _SEQUENCE, _SIZES = b", op_id = ", b", input_op_ids = ", b", seq = ", b"sizes = "


class Labels:
    """Understands texts of ranges. Millions of texts say few things: each of those is kept once, by a number."""

    def __init__(self, strings: Strings) -> None:
        self.labels: list[Label] = []
        self._strings = strings
        self._numbers: dict[Label, int] = {}
        self._plain: dict[bytes, tuple[int, int]] = {}
        self._operators: dict[tuple[bytes, bytes], int] = {}
        self._shapes: dict[bytes, int] = {b"": UNKNOWN}

    def of(self, contents: Sequence[bytes]) -> tuple[list[int], list[int]]:
        """Numbers of labels, and sequence numbers, of texts of the default domain."""
        operators, plain = self._operators, self._plain
        numbers: list[int] = []
        sequences: list[int] = []
        for content in contents:
            # the shape of nearly all texts of emit_nvtx is looked for here, without a function call
            head, found, tail = content.partition(_OP_ID)
            if found:
                op_id, _, rest = tail.partition(b", ")
                sizes, _, _ = rest.partition(_INPUTS)
                name, _, digits = head.partition(_SEQUENCE)
                number = operators.get((name, sizes))
                if number is not None and op_id.isdigit():
                    if not digits:
                        numbers.append(number)
                        sequences.append(UNKNOWN)
                        continue
                    if digits.isdigit() and len(digits) <= _LONGEST_NUMBER:
                        numbers.append(number)
                        sequences.append(int(digits))
                        continue
            known = plain.get(content)
            number, sequence = known if known is not None else self._understand(content)
            numbers.append(number)
            sequences.append(sequence)
        return numbers, sequences

    def whole(self, content: bytes, meaning: Meaning = Meaning.ANNOTATION) -> int:
        """The label of a text that is a name and nothing else."""
        return self._number((self._strings.add(text(content) or UNNAMED), UNKNOWN, meaning))

    def _understand(self, content: bytes) -> tuple[int, int]:
        """Label and sequence number of one text. What only looks like an operator stays whole."""
        match = _OPERATOR.fullmatch(content)
        shapes = self._shapes_of(match["sizes"] or b"") if match else None
        if match is None or match["name"] == content or shapes is None:
            meaning = Meaning.OPERATOR if content.startswith(_OPERATOR_PREFIXES) else Meaning.ANNOTATION
            if content.startswith((_MARK, _WORK)):
                meaning = Meaning.PHASE if content.startswith(_MARK) else Meaning.WORK
            known = self._plain[content] = (self.whole(content.removeprefix(_MARK), meaning), UNKNOWN)
            return known
        name, sequence = match["name"], int(match["sequence"] or UNKNOWN)
        if name.startswith(_MARK):
            return self.whole(name.removeprefix(_MARK), Meaning.PHASE), sequence
        number = self._number((self._strings.add(text(name)), shapes, Meaning.OPERATOR))
        self._operators[name, _SIZES + match["sizes"] if match["sizes"] else b""] = number
        return number, sequence

    def _number(self, label: Label) -> int:
        number = self._numbers.get(label)
        if number is None:
            number = self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return number

    def _shapes_of(self, sizes: bytes) -> int | None:
        """The string of some sizes; None when they are not a list, hence not written by emit_nvtx."""
        if sizes not in self._shapes:
            try:
                msgspec.json.decode(sizes, type=list)
            except (msgspec.MsgspecError, RecursionError):
                return None
            self._shapes[sizes] = self._strings.add_whole(text(sizes))
        return self._shapes[sizes]


@dataclass(frozen=True, eq=False)
class Marks:
    """The NVTX table, its texts already understood."""

    labels: Labels
    domains: dict[tuple[int, int], str]
    """Names of domains by global process id and domain id."""
    thread_names: dict[int, str]
    """Names of threads by global thread id."""
    rows: Columns
    """Only the ranges, with two more columns: ``label``, a place in the labels, and ``sequence``."""

    @classmethod
    def of(cls, database: Database, string_ids: StringIds, strings: Strings) -> Marks:
        """Read the table; rows that are no ranges give the names of domains and threads."""
        table = database.table("NVTX_EVENTS")
        nothing = Columns(0, dict.fromkeys((*_ROWS, "label", "sequence"), np.empty(0, np.int64)))
        marks = cls(Labels(strings), {}, {}, nothing)
        if table is None or "start" not in table:
            return marks
        columns, parts = {**_ROWS, "label": UNKNOWN, "sequence": UNKNOWN}, []
        for values, contents in table.chunks(_ROWS, "text"):
            chunk = dict(zip(_ROWS, values, strict=True))
            contents = contents or [b""] * len(values[0])
            number, sequence = _labels(marks.labels, contents, chunk, string_ids)
            marks.add_names(contents, chunk, string_ids)
            ranges = np.isin(chunk["eventType"], (*_PUSH_POP, *_START_END))
            kept = Columns(len(number), {**chunk, "label": number, "sequence": sequence}).take(ranges)
            parts.append([kept[name] for name in columns])
        length = sum(len(part[0]) for part in parts)
        rows = Columns(length, join(columns, parts, length))
        if table.is_filled_in("end"):
            open_ranges = (rows["end"] == 0) & (rows["start"] > 0)
            rows = Columns(length, {**rows.values, "end": np.where(open_ranges, NULL, rows["end"])})
        return replace(marks, rows=rows)

    def add_names(
        self, contents: Sequence[bytes], chunk: Mapping[str, Integers], string_ids: StringIds
    ) -> None:
        """Take names of domains and threads from the rows that give them."""
        for row in np.flatnonzero(np.isin(chunk["eventType"], (_THREAD_NAME, _DOMAIN_CREATED))).tolist():
            name = text(contents[row] or string_ids.raw(int(chunk["textId"][row])))
            thread = chunk["globalTid"][row : row + 1]
            if chunk["eventType"][row] == _THREAD_NAME:
                self.thread_names[int(thread[0])] = name
            elif name:
                self.domains.setdefault((int(process_ids(thread)[0]), int(chunk["domainId"][row])), name)


def read_ranges(
    database: Database, marks: Marks, strings: Strings, actors: Actors, clock: Clock, last_ns: int
) -> Ranges:
    """Ranges of all domains. Those that were never closed end with the last event.

    Args:
        database: The export.
        marks: Its NVTX table.
        strings: The trace's texts.
        actors: Whose ranges they are.
        clock: Which times are credible.
        last_ns: The end of the last event of the recording, as it is written.
    """
    rows = _closed(database, marks.rows, last_ns)
    rows = clock.credible(rows, ranges=True)
    labels = np.array(marks.labels.labels, np.int32).reshape(-1, 3)
    name, shapes, meaning = (column[rows["label"]] for column in labels.T)
    domain = np.where(meaning == Meaning.WORK, UNKNOWN, _domains(marks, rows, strings))
    phase_domain = strings.add(PHASE_DOMAIN) if (meaning == Meaning.PHASE).any() else UNKNOWN
    # a phase under both nsys and emit_nvtx leaves two ranges; only the one of its own domain counts
    doubled = phase_domain != UNKNOWN and bool((domain == phase_domain).any())
    operator = (meaning == Meaning.OPERATOR) | ((meaning == Meaning.PHASE) & doubled)
    kind = np.where(operator, RangeKind.OPERATOR, RangeKind.ANNOTATION)
    return Ranges.of(
        len(rows),
        start_ns=clock.session_ns(rows["start"]),
        end_ns=clock.session_ns(rows["end"]),
        thread=actors.thread(rows["globalTid"]),
        kind=np.where(np.isin(rows["eventType"], _START_END), RangeKind.START_END, kind),
        name=name,
        domain=np.where((meaning == Meaning.PHASE) & ~operator, phase_domain, domain),
        sequence=rows["sequence"],
        shapes=shapes,
    )


def _closed(database: Database, rows: Columns, last_ns: int) -> Columns:
    open_ranges = (rows["end"] == NULL) & (rows["start"] != NULL)
    count = int(np.count_nonzero(open_ranges))
    if not count:
        return rows
    database.note("ranges-open", Severity.INFO, count)
    last = max(last_ns, int(rows["end"].max()), int(rows["start"][open_ranges].max()))
    return Columns(len(rows), {**rows.values, "end": np.where(open_ranges, last, rows["end"])})


def _labels(
    labels: Labels, contents: Sequence[bytes], chunk: Mapping[str, Integers], string_ids: StringIds
) -> tuple[NDArray[np.int32], Integers]:
    """Labels and sequence numbers of one chunk. A text stands in the row or, else, in the table of strings."""
    numbers, sequences = (np.fromiter(each, np.int64, len(contents)) for each in labels.of(contents))
    elsewhere = np.flatnonzero([not content for content in contents] if b"" in contents else [])
    values, places = distinct(chunk["textId"][elsewhere])
    registered = [string_ids.raw(value) for value in values.tolist()]
    if registered:
        found = labels.of(registered)
        numbers[elsewhere], sequences[elsewhere] = (np.array(column)[places] for column in found)
    # only the default domain is emit_nvtx's; names of other domains mean what their owners like
    for row in np.flatnonzero(chunk["domainId"] != 0).tolist():
        if labels.labels[numbers[row]][2] not in (Meaning.ANNOTATION, Meaning.WORK):
            numbers[row] = labels.whole(contents[row] or string_ids.raw(int(chunk["textId"][row])))
            sequences[row] = UNKNOWN
    return numbers.astype(np.int32), sequences


def _domains(marks: Marks, rows: Columns, strings: Strings) -> NDArray[np.int32]:
    """The domain of each range, -1 for the default domain; a domain without a name is known by its number."""
    pairs, places = distinct_pairs(rows["domainId"], process_ids(rows["globalTid"]))
    names = [
        strings.add(marks.domains.get((process, number), f"domain {number}")) if number else UNKNOWN
        for number, process in pairs
    ]
    return np.array(names, np.int32)[places]
