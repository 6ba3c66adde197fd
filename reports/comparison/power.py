"""What a comparison can resolve, and how often it sees a change where there is none: ``python reports/comparison/power.py``.

Steps are drawn at random and judged as recorded ones are; the tables go into README.md. How much a host drifts
from one recording to the next is that of reports/advice/data: seven equal loops of each of 41 programs, in two sessions
on an H200.
"""

from __future__ import annotations

import json
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402

import profkit  # noqa: E402
from profkit.comparison.side import Side  # noqa: E402
from profkit.comparison.verdict import DRIFT, IDLE_SPREAD, judge, verdict_of  # noqa: E402

START, END = "<!-- power: written by reports/comparison/power.py -->", "<!-- end of power -->"
PAGE = HERE / "README.md"
STEP_NS = 20e6
REPEATS, MOST_MISSED = 200, 10
SLOWDOWNS = (
    0.005,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
    0.04,
    0.05,
    0.06,
    0.07,
    0.08,
    0.1,
    0.12,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.5,
)
STEPS = (3, 5, 10, 20, 50)
RECORDINGS = ((1, 10), (1, 50), (3, 10), (5, 10), (10, 10))
BUSY_DRIFT, IDLE_DRIFT = 0.002, 0.1
"""What recordings really differ by: loops that never wait for the host by 0.2 %, the median of the others by 10 % of
their idle time."""
HOST_BOUND = 0.2
"""A series counts as waiting for the host from this share of idle time on."""
Z98 = 2.326348


class Kind(NamedTuple):
    """How steps are drawn: shares and standard deviations over the mean."""

    idle: float
    busy_spread: float = 0.001
    idle_spread: float = 0.05
    alike: float = 0.0
    """Correlation of a step with the next."""


def drawn(random: np.random.Generator, kind: Kind, count: int, slower: tuple[float, float]) -> Any:
    """One recording; ``slower`` is what busy and idle time grow by, as shares of the step."""
    times = []
    for share, spread, drift, more in (
        (1 - kind.idle, kind.busy_spread, BUSY_DRIFT, slower[0]),
        (kind.idle, kind.idle_spread, IDLE_DRIFT, slower[1]),
    ):
        steps = random.standard_normal(count)
        for at in range(1, count if kind.alike else 0):
            steps[at] = kind.alike * steps[at - 1] + math.sqrt(1 - kind.alike**2) * steps[at]
        mean = share * (1 + drift * random.standard_normal())
        times.append(np.maximum(STEP_NS * (mean + share * spread * steps + more), 0).round().astype(int))
    busy, idle = times
    rows = [
        SimpleNamespace(kept=True, device_ns=b + i, gpu_busy_ns=b, wall_ns=b + i)
        for b, i in zip(busy.tolist(), idle.tolist(), strict=True)
    ]
    total = [int(times.sum()) for times in (busy, idle)]
    parts = [SimpleNamespace(cause=cause, ns=ns) for cause, ns in zip((None, "host"), total, strict=True)]
    return SimpleNamespace(
        devices=[SimpleNamespace(busy_ns=total[0])],
        window=SimpleNamespace(steps=rows, device_ns=sum(total), parts=parts),
    )


def verdicts(kind: Kind, recordings: int, steps: int, slower: tuple[float, float] = (0, 0)) -> Iterator[str]:
    """What is said of each repeat. The same draws every time, so that rates are monotone in ``slower``."""
    random = np.random.default_rng(11)
    for _ in range(REPEATS):
        sides = [
            Side([drawn(random, kind, steps, more) for _ in range(recordings)]) for more in ((0, 0), slower)
        ]
        yield verdict_of(judge(*sides, [], 1.0))


def is_called(kind: Kind, recordings: int, steps: int, slower: tuple[float, float]) -> bool:
    """Whether it is in enough repeats; none more is tried than it takes to know."""
    missed = (said for said in verdicts(kind, recordings, steps, slower) if said != "slower")
    return len(list(islice(missed, MOST_MISSED + 1))) <= MOST_MISSED


def smallest(kind: Kind, recordings: int, steps: int, where: Callable[[float], tuple[float, float]]) -> str:
    """The smallest slowdown that is called in 19 of 20 repeats."""
    at = bisect_left(
        SLOWDOWNS,
        True,
        key=lambda share: is_called(kind, recordings, steps, where(share)),
    )
    return f"{100 * SLOWDOWNS[at]:g} %" if at < len(SLOWDOWNS) else f"over {100 * SLOWDOWNS[-1]:g} %"


def table(head: str, columns: Sequence[str], rows: dict[str, list[str]]) -> str:
    lines = [f"| {head} | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])


def of_kernels() -> str:
    """Slower kernels in a step that waits for nothing."""
    rows = {
        f"{100 * spread:g} %": [
            smallest(Kind(0.02, busy_spread=spread), 1, steps, lambda share: (share, 0)) for steps in STEPS
        ]
        for spread in (0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
    }
    return table("steps spread by", [f"{n} steps" for n in STEPS], rows)


def of_the_host() -> str:
    """A slower host in a step that waits for it."""
    rows = {
        f"{100 * idle:g} % idle, {100 * spread * idle:g} %": [
            smallest(Kind(idle, idle_spread=spread), *shape, lambda share: (0, share)) for shape in RECORDINGS
        ]
        for idle in (0.1, 0.5)
        for spread in (0.05, 0.2, 0.4)
    }
    return table("step, its spread", [f"{n} x {steps} steps" for n, steps in RECORDINGS], rows)


def unchanged_share(kind: Kind, recordings: int, steps: int, slower: tuple[float, float]) -> float:
    """The share of repeats that are called no change."""
    return sum(said == "no change" for said in verdicts(kind, recordings, steps, slower)) / REPEATS


def unchanged() -> str:
    """How often equal steps are no change: with steps that are alike, and with kernels that idle time hides."""
    kinds = {
        "device-bound, steps spread by 2 %": (Kind(0.02, busy_spread=0.02), (0, 0)),
        "half idle, idle time spreads by 10 %": (Kind(0.5, idle_spread=0.1), (0, 0)),
        "half idle, by 30 %": (Kind(0.5, idle_spread=0.3), (0, 0)),
        "half idle, by 30 %, each step half like the one before": (Kind(0.5, idle_spread=0.3, alike=0.5), (0, 0)),
        "half idle, by 30 %, each step 0.8 like the one before": (Kind(0.5, idle_spread=0.3, alike=0.8), (0, 0)),
        "half idle; kernels 5 % of the step longer, all of it hidden": (Kind(0.5), (0.05, -0.05)),
        "10 % idle; kernels 5 % of the step longer, all of it hidden": (Kind(0.1), (0.05, -0.05)),
    }  # fmt: skip
    shapes = ((1, 3), *RECORDINGS)
    rows = {
        name: [f"{unchanged_share(kind, *shape, slower):.0%}".replace("%", " %") for shape in shapes]
        for name, (kind, slower) in kinds.items()
    }
    return table("equal steps", [f"{n} x {steps}" for n, steps in shapes], rows)


def series() -> list[tuple[float, np.ndarray]]:
    """(Busy ms, ms of equal loops) of the programs of the study of advice that wait for the host."""
    found = []
    data = ROOT / "reports" / "advice" / "data"
    sessions = [json.loads((data / f"{name}.json").read_text())["pairs"] for name in ("before", "after")]
    for name in sessions[0]:
        result = profkit.analyze(data / f"{name}.json.gz").document
        side = Side([result])
        busy = float(np.mean(side.times("busy"))) / 1e6
        for session in sessions:
            loops = np.array(session.get(name, {}).get("before", {}).get("loops_ms", ()))
            if len(loops) and loops.mean() - busy > HOST_BOUND * loops.mean():
                found.append((busy, loops))
    return found


def drift() -> str:
    """How often two equal loops of a real program, one a side, are within the noise between recordings."""
    found, rows = series(), {}
    for expected in (0.08, IDLE_SPREAD, 0.15):
        cells = []
        for apart in (1, 3, 5):
            within = [
                abs(a - b)
                <= Z98 * math.sqrt(2) * math.hypot(DRIFT * busy, expected * max((a + b) / 2 - busy, 0))
                for busy, loops in found
                for a, b in zip(loops, loops[apart:])  # noqa: B905 - the rest has no partner
            ]
            cells.append(f"{sum(within)} of {len(within)}")
        rows[f"{100 * expected:g} %" + (" (taken)" if expected == IDLE_SPREAD else "")] = cells
    spread = [loops.std(ddof=1) / (loops.mean() - busy) for busy, loops in found]
    low, middle, high = (100 * q for q in np.percentile(spread, (25, 50, 75)))
    note = f"{len(found)} series spread by {low:.0f} to {high:.0f} % of their idle time (quartiles; median {middle:.0f} %)."
    return f"{table('expected of idle time', ['next loop', 'third', 'fifth'], rows)}\n\n{note}"


def main() -> None:
    page = "\n\n".join(
        (
            "Kernels became slower, in a step that is busy for 98 % (one recording a side):",
            of_kernels(),
            "The host became slower, in a step that waits for it (recordings a side x steps):",
            of_the_host(),
            "Equal steps that are called `no change`:",
            unchanged(),
            "Real loops that are within the noise between recordings:",
            drift(),
        )
    )
    print(page)
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(f"{before}{START}\n\n{page}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
