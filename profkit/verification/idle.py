"""Why devices were idle, a second time: every gap cut into stretches of one cause, by loops over lists."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Final

from profkit.verification.events import Call, Op, Thread
from profkit.verification.host import REASONS, Host
from profkit.verification.intervals import Piece, common, length, near, united, within, without
from profkit.verification.timeline import Timeline

__all__ = ["IdleTime"]

_IDLE_DEVICE_NS: Final = 5_000
"""What a launch needs to reach a device that stands idle."""

Late = dict[tuple[Thread, Thread], list[Piece]]


class IdleTime:
    """The idle time of one recording's devices, in its window.

    Attributes:
        queue_ns: The longest gap between two queued operations, as the report states it.
        by_cause: How long, over all devices.
        cost: Of every wait, by the `id` of its call: the idle time that it explains.
        blocked: The waits that returned in the window.
    """

    def __init__(self, timeline: Timeline, host: Host, queue_ns: int) -> None:
        self.timeline, self.host, self.queue_ns = timeline, host, queue_ns
        self.by_cause: dict[str, int] = defaultdict(int)
        self.cost: dict[int, int] = defaultdict(int)
        self.blocked: list[Call] = []
        for device in timeline.devices:
            self._explain(device)
        self._find_blocked()

    def _explain(self, device: int) -> None:
        window = self.timeline.window(device)
        late: dict[int, Late] = defaultdict(lambda: defaultdict(list))
        for start, end, op in self._gaps(device):
            launch = None if op is None else self.timeline.launch.get(id(op))
            returned = start if launch is None else min(max(launch.end, start), end)
            if op is not None and launch is not None and returned > start:
                pair = launch.thread, self.host.phase_of(op)[1]
                late[op.process][pair].append((start, returned))
            latency = max(self.queue_ns, _IDLE_DEVICE_NS) if returned > start else self.queue_ns
            queued = min(returned + latency, end) if launch is not None else returned
            self._count("queue", [(returned, queued)], window)
            rest = "tail" if op is None else "unknown"
            if op is not None and launch is not None and self._follows_another(device, op, start):
                rest = "dependency"
            self._count(rest, [(queued, end)], window)
        for process, pairs in late.items():
            self._cut(device, process, pairs, window)

    def _gaps(self, device: int) -> list[tuple[int, int, Op | None]]:
        """The idle stretches of the whole recording, each with the operation that ends it."""
        first, last = self.timeline.recording.edges()
        starters: dict[int, Op] = {}
        for op in self.timeline.by_device[device]:
            if op.end > op.start:
                known = starters.get(op.start)
                if known is None or self._returned(op) < self._returned(known):
                    starters[op.start] = op
        idle = without([(first, last)], self.timeline.busy(device))
        return [(start, end, starters.get(end)) for start, end in idle]

    def _returned(self, op: Op) -> float:
        launch = self.timeline.launch.get(id(op))
        return float("inf") if launch is None else launch.end

    def _follows_another(self, device: int, op: Op, time: int) -> bool:
        """Whether an operation that ended where the gap begins ran on another stream."""
        if not hasattr(self, "_ended"):
            self._ended: dict[tuple[int, int], list[Op]] = defaultdict(list)
            for each in self.timeline.ops:
                if each.end > each.start:
                    self._ended[each.device, each.end].append(each)
        return any(
            (each.process, each.stream) != (op.process, op.stream) for each in self._ended[device, time]
        )

    def _cut(self, device: int, process: int, pairs: Late, window: list[Piece]) -> None:
        """Late gaps of one process: by what its threads did, then by the waits before, then work or launching."""
        demand: list[Piece] = []
        work: list[Piece] = []
        launching: list[Piece] = []
        for (thread, other), pieces in pairs.items():
            rest, doing = united(pieces), self.host.doing(thread, other)
            for reason in REASONS:
                part = common(rest, doing[reason])
                self._count(reason, part, window)
                rest = without(rest, part)
            own = common(rest, doing["host_work"])
            work += own
            launching += without(rest, own)
            demand += without(rest, self.host.blocked_in(thread, other))
        explained = self._spend(device, process, united(demand))
        self._count("sync", explained, window)
        self._count("host_work", without(work, explained), window)
        self._count("host", without(launching, explained), window)

    def _spend(self, device: int, process: int, demand: list[Piece]) -> list[Piece]:
        """The idle time that waits explain: each from its return on, the oldest first, until its step ends."""
        waits = sorted(
            (call for call in self.host.waits if call.thread[0] == process),
            key=lambda call: (call.end, call.start),
        )
        borders, found, free = self._borders(device), [], 0
        begun = [start for start, _ in demand]
        before = [0]
        for start, end in demand:
            before.append(before[-1] + end - start)

        def clock(time: int) -> int:
            """How much demand lies before an instant."""
            at = bisect_right(begun, time) - 1
            return before[at] + min(time, demand[at][1]) - demand[at][0] if at >= 0 else 0

        region = -1
        for call in waits:
            if bisect_left(borders, call.end) != region:
                region, free = bisect_left(borders, call.end), 0
            lapse = clock(borders[region]) if region < len(borders) else before[-1]
            start = max(clock(call.end), free)
            free = start + call.end - call.start
            served = min(start, lapse), min(free, lapse)
            self.cost[id(call)] += served[1] - served[0]
            found.append(served)
        spent = []
        for start, end in united(found):
            at = bisect_right(before, start) - 1
            while at < len(demand) and before[at] < end:
                offset = demand[at][0] - before[at]
                spent.append((max(start, before[at]) + offset, min(end, before[at + 1]) + offset))
                at += 1
        return united(spent)

    def _borders(self, device: int) -> list[int]:
        if self.timeline.number_of_steps:
            return sorted({edge for tile in self.timeline.edges[device] for edge in tile})
        ops = self.timeline.by_device[device]
        return [min(op.start for op in ops)] if ops else []

    def _count(self, cause: str, pieces: list[Piece], window: list[Piece]) -> None:
        for start, end in pieces:
            for first, last in near(window, start, end):
                self.by_cause[cause] += length(within([(start, end)], first, last))

    def _find_blocked(self) -> None:
        """The waits that returned in the window of a device that their process uses; without devices, in a kept step."""
        if not self.timeline.devices:
            self.blocked = [call for call in self.host.waits if self.timeline.begun_in_window(call)]
            return
        for call in self.host.waits:
            devices = [
                device
                for device in self.timeline.devices
                if any(op.process == call.thread[0] for op in self.timeline.by_device[device])
            ]
            if any(
                start <= call.end - 1 < end
                for device in devices
                for start, end in near(self.timeline.window(device), call.end - 1, call.end)
            ):
                self.blocked.append(call)
