"""A report beside the brute force: what both say of the same thing, under one name."""

from typing import Any

from profkit.model.report import Report
from profkit.verification.intervals import common, length, within
from tests.exactness.brute_force import nature
from tests.exactness.brute_idle import IDLE_CAUSES, BruteIdle

Numbers = dict[str, Any]

OTHER = (
    "initialisation", "allocation", "compilation", "capture", "profiler", "dependency", "tail", "unknown",
)  # fmt: skip
"""The idle causes of the share of that name."""


def told(result: Report) -> Numbers:
    """What a report says."""
    totals, window, steps = result.totals, result.window, result.window.steps
    told_by_device = [_told_of_device(row) for row in result.devices]
    return {
        "kernels": totals.kernel_count,
        "kernel sum": totals.kernel_sum_ns,
        "kernel union": totals.kernel_union_ns,
        "kernels by name": {row.name: (row.count, row.total_ns) for row in totals.kernels},
        "busy": totals.gpu_busy_ns,
        "span": totals.gpu_span_ns,
        "copies": totals.copy_ns,
        "communication": totals.communication_sum_ns,
        "exposed communication": totals.communication_exposed_ns,
        "window": (window.start_ns, window.end_ns, window.device_ns),
        "steps": [(row.kept, row.device_ns, row.gpu_busy_ns) for row in steps],
        "phases": {
            row.path: (row.count, row.kernel_count, row.gpu_inclusive_ns, row.gpu_exclusive_ns)
            for row in result.phases
        },
        "idle by phase": {
            row.path: tuple(row.shares[share] for share in ("input", "sync", "host_work", "other"))
            for row in result.phases
        },
        "kernels of the window": {
            shape: (sum(row.count for row in rows), sum(row.total_ns for row in rows))
            for shape, rows in _rows_by_shape(result).items()
        },
        "launches by phase": _told_by_phase(result),
        "devices": told_by_device,
        "idle": result.idle.by_cause,
        "waits": {(row.api, row.phase): (row.count, row.blocked_ns, row.cost_ns) for row in result.syncs},
        "gaps": sorted((row.start_ns, row.dur_ns, row.cause) for row in result.idle.gaps),
    }


def worked_out(brute: BruteIdle) -> Numbers:
    """What the brute force says, in the same words."""
    kernels = brute.kernels()
    pieces = [piece for device in brute.devices for piece in brute.window(device)]
    origin = brute.whole()[0]
    first = min((start for start, _ in pieces), default=origin)
    last = max((end for _, end in pieces), default=origin)
    by_device = {device: brute.idle(device) for device in brute.devices}
    return {
        "kernels": len(kernels),
        "kernel sum": sum(op.length for op in kernels),
        "kernel union": brute.summed_busy(kernels),
        "kernels by name": _by_name(brute),
        "busy": brute.summed_busy(),
        "span": brute.span(),
        "copies": sum(op.length for op in brute.ops if op.kind not in ("kernel", "memset", "graph")),
        "communication": sum(op.length for op in brute.ops if nature(op) == "communication"),
        "exposed communication": sum(
            length(brute.layers(device)["communication"]) for device in brute.devices
        ),
        "window": (first - origin, last - origin, sum(length(brute.window(d)) for d in brute.devices)),
        "steps": [
            (brute.is_kept(number), brute.device_ns(number), _busy_of_step(brute, number))
            for number in range(brute.number_of_steps)
        ],
        "phases": {
            path: (row["count"], row["kernel_count"], row["gpu_inclusive_ns"], row["gpu_exclusive_ns"])
            for path, row in brute.phase_rows().items()
        },
        "idle by phase": {path: _idle_of_phase(brute, path) for path in brute.phase_rows()},
        "kernels of the window": _by_shape(brute),
        "launches by phase": _launches_by_phase(brute),
        "devices": [_device(brute, device, by_device[device]) for device in brute.devices],
        "idle": {cause: sum(causes[cause] for causes in by_device.values()) for cause in IDLE_CAUSES},
        "waits": _waits(brute),
        "gaps": _gaps(brute, origin),
    }


def _told_of_device(row: dict[str, Any]) -> Numbers:
    shares = row.shares
    work = ("compute", "memory", "launch", "unclassified")
    return {
        "window": row.window_ns,
        "busy": row.busy_ns,
        "work and late launches": sum(shares[share] for share in work),
        **{
            share: shares[share]
            for share in ("communication", "transfer", "input", "sync", "host_work", "other")
        },
    }


def _device(brute: BruteIdle, device: int, idle: dict[str, int]) -> Numbers:
    window = brute.window(device)
    layers = {name: length(common(pieces, window)) for name, pieces in brute.layers(device).items()}
    return {
        "window": length(window),
        "busy": length(common(brute.busy(device), window)),
        "work and late launches": layers["work"] + idle["host"] + idle["queue"],
        "communication": layers["communication"],
        "transfer": layers["transfer"],
        "input": idle["input"],
        "sync": idle["sync"],
        "host_work": idle["host_work"],
        "other": sum(idle[cause] for cause in OTHER),
    }


def _idle_of_phase(brute: BruteIdle, path: str) -> tuple[int, ...]:
    by_device = [brute.idle_of_phase(device, tuple(path.split("/"))) for device in brute.devices]

    def total(*causes: str) -> int:
        return sum(idle[cause] for idle in by_device for cause in causes)

    return total("input"), total("sync"), total("host_work"), total(*OTHER)


def _gaps(brute: BruteIdle, origin: int) -> list[tuple[int, int, str]]:
    found = []
    for device in brute.devices:
        for gap in brute.gaps(device):
            inside = common([(gap.start, gap.end)], brute.window(device))
            found.append((inside[0][0] - origin, length(inside), gap.cause))
    return sorted(found)


def _by_name(brute: BruteIdle) -> dict[str, tuple[int, int]]:
    rows: dict[str, tuple[int, int]] = {}
    for op in brute.kernels():
        count, total = rows.get(op.name, (0, 0))
        rows[op.name] = (count + 1, total + op.length)
    return rows


def _rows_by_shape(result: Report) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows of one kernel and launch shape, whatever its operators took."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in result.kernels:
        found.setdefault((row.name, *(row.grid or ()), *(row.block or ())), []).append(row)
    return found


def _told_by_phase(result: Report) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in result.kernels:
        for path, told in row.phases.items():
            count, ns = found.get((row.name, path), (0, 0))
            found[row.name, path] = (count + told.count, ns + told.ns)
    return found


def _launches_by_phase(brute: BruteIdle) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for op in brute.kernels():
        path = "/".join(brute.path[id(op)])
        if path and brute.in_window(op):
            count, ns = found.get((op.name, path), (0, 0))
            found[op.name, path] = (count + 1, ns + op.length)
    return found


def _by_shape(brute: BruteIdle) -> dict[tuple[Any, ...], tuple[int, int]]:
    rows: dict[tuple[Any, ...], tuple[int, int]] = {}
    for op in brute.kernels():
        if brute.in_window(op):
            count, total = rows.get((op.name, *op.shape), (0, 0))
            rows[op.name, *op.shape] = (count + 1, total + op.length)
    return rows


def _busy_of_step(brute: BruteIdle, number: int) -> int:
    return sum(length(within(brute.busy(device), *tile)) for device, tile in brute.tiles(number).items())


def _waits(brute: BruteIdle) -> dict[tuple[str, str | None], tuple[int, int, int]]:
    """The waits that returned in the window. One may hold up several devices: its cost adds up over them."""
    cost: dict[int, int] = {}
    calls = {}
    for device in brute.devices:
        brute.gaps(device)
        for wait in brute.waits(device):
            if any(start < wait.call.end <= end for start, end in brute.window(device)):
                calls[id(wait.call)] = wait
                cost[id(wait.call)] = cost.get(id(wait.call), 0) + wait.cost
    rows: dict[tuple[str, str | None], tuple[int, int, int]] = {}
    for key, wait in calls.items():
        name = (wait.call.name, "/".join(wait.phase) or None)
        count, blocked, spent = rows.get(name, (0, 0, 0))
        rows[name] = (count + 1, blocked + wait.call.end - wait.call.start, spent + cost[key])
    return rows
