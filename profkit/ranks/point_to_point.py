"""Sends and receives: which kernel carries which message, and who is on the other side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_table import Described
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["Messages", "find_messages"]

Column = NDArray[np.int64]

_TITLE: Final = re.compile(r"nccl:(?:send (\d+)->(\d+)|recv (\d+)<-(\d+))")
"""What torch's ProcessGroupNCCL calls them; the numbers are those within the group, the first is one's own."""


@dataclass(frozen=True, eq=False)
class Messages:
    """One row for a message; a batch of them is one kernel."""

    row: Column
    """Place in `Described.rows`; of a message that is not yet linked, -1."""
    sends: NDArray[np.bool_]
    peer: Column
    """The rank on the other side."""
    group: Column
    """String: the process group, or -1."""

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Messages:
        """Some of the rows."""
        return Messages(self.row[rows], self.sends[rows], self.peer[rows], self.group[rows])


def find_messages(view: TraceView, described: Described, rank: int | None) -> Messages:
    """The messages of a trace.

    A kernel of one send or receive says whom it is with. A batch is launched after its messages were asked for, on
    the same thread. Where no file says so much, the titles of torch's ranges do: ``nccl:send 0->1``.

    Args:
        view: The trace.
        described: Its collectives.
        rank: The rank that recorded it, which titles are checked against.
    """
    collectives = view.trace.collectives
    carrier = np.array([k[0] == "send_recv" for k in described.keys] or [False])[described.kind]
    said = np.full(len(view.trace.operations), -1, np.int64)
    said[collectives.operation] = np.arange(len(collectives))
    at = said[described.rows]
    own = np.flatnonzero((at >= 0) & carrier)
    own = own[collectives.peer[at[own]] >= 0]
    asked, thread, time = _asked(view)
    if not len(asked.peer) and not len(own):
        asked, thread, time = _titled(view, rank)
    carried = _carriers(view, described, np.flatnonzero(carrier), thread, time)
    carried, asked = carried[carried >= 0], asked.take(carried >= 0)
    # Of a batch a kernel may name one message, or none.
    batch = np.bincount(carried, minlength=len(described.rows)) > 1
    own = own[~batch[own]]
    told = Messages(
        own,
        view.trace.names(collectives.name[at[own]]) == "send",
        collectives.peer[at[own]].astype(np.int64),
        collectives.group[at[own]].astype(np.int64),
    )
    alone = np.zeros(len(described.rows), bool)
    alone[own] = True
    batched = Messages(carried, asked.sends, asked.peer, asked.group).take(~alone[carried])
    return Messages(*(np.concatenate([getattr(told, c), getattr(batched, c)]) for c in vars(told)))


def _asked(view: TraceView) -> tuple[Messages, Column, Column]:
    """What the host asked for: the messages, and the thread and time of each."""
    asked = view.trace.messages
    found = Messages(
        np.full(len(asked), -1, np.int64),
        view.trace.names(asked.name) == "send",
        asked.peer.astype(np.int64),
        asked.group.astype(np.int64),
    )
    return found, asked.thread.astype(np.int64), asked.time_ns.astype(np.int64)


def _titled(view: TraceView, rank: int | None) -> tuple[Messages, Column, Column]:
    """The same by the titles of ranges, if their numbers are those of the whole job."""
    ranges, strings = view.trace.ranges, view.trace.strings
    titled = np.flatnonzero(matching(strings, ranges.name, lambda text: _TITLE.fullmatch(text) is not None))
    names, which = np.unique(ranges.name[titled], return_inverse=True)
    parsed = np.array([_parsed(strings[name]) for name in names.tolist()] or np.empty((0, 3)), np.int64)[
        which
    ]
    kept = parsed[:, 0] == (-1 if rank is None else rank)
    row, (_, peer, sends) = titled[kept], parsed[kept].T
    unknown = np.full(len(row), -1, np.int64)
    found = Messages(unknown, sends.astype(bool), peer, unknown)
    return found, ranges.thread[row].astype(np.int64), ranges.start_ns[row].astype(np.int64)


def _parsed(title: str) -> tuple[int, int, bool]:
    """One's own number, the other's, and whether it is a send."""
    found = _TITLE.fullmatch(title)
    sender, receiver, to, by = found.groups() if found else (None,) * 4
    own, other = (to, by) if sender is None else (sender, receiver)
    return int((own or "")[:9] or -1), int((other or "")[:9] or -1), sender is not None


def _carriers(view: TraceView, described: Described, rows: Column, thread: Column, time: Column) -> Column:
    """The place of the first send or receive that its thread launched after each message was asked for, or -1."""
    launches = view.launches
    rows = rows[launches.linked[described.rows[rows]]]
    launched_by = launches.thread[described.rows[rows]]
    launched_at = launches.time_ns[described.rows[rows]]
    found = np.full(len(time), -1, np.int64)
    for each in np.unique(thread).tolist():
        own = rows[launched_by == each]
        order = np.argsort(launched_at[launched_by == each], kind="stable")
        mine = np.flatnonzero(thread == each)
        at = np.searchsorted(launched_at[launched_by == each][order], time[mine])
        inside = at < len(own)
        found[mine[inside]] = own[order[at[inside]]]
    return found
