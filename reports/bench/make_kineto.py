#!/usr/bin/env python3
"""Build a large Kineto (torch.profiler) trace by replicating a real one.

Every replica keeps the source's bytes (key order, white space, number format)
except for the fields that identify an event, which are shifted so that the
result is one consistent longer recording:

* ``ts``                        + replica * period
* ``correlation``, flow ``id``  + replica * (largest in the source + 1)
* ``External id``, ``Ev Idx``, ``Sequence number``   likewise, each its own step
* ``ProfilerStep#N``            N + replica * (number of steps in the source)

Metadata events (``ph: M``) are written once.  The profiler's own ``Trace``
span and ``Record Window End`` cover the whole result.  Deterministic: the same
source and size give the same bytes.  Memory stays small (one replica).

    make_kineto.py SOURCE.json[.gz] OUT.json[.gz] (--mb 100 | --replicas 10)
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SLOT = re.compile(
    r'"ts": (?P<ts>\d+(?:\.\d{1,3})?)'
    r'|"(?P<key>correlation|id|External id|Ev Idx|Sequence number)": ?(?P<num>\d+)'
    r'|"name": "ProfilerStep#(?P<step>\d+)"'
)
SEPARATOR = "\n  },\n  {\n"


def read_text(path: str) -> str:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as handle:
        return handle.read()


def to_ns(text: str) -> int:
    whole, _, frac = text.partition(".")
    return int(whole) * 1000 + int((frac + "000")[:3])


def from_ns(value: int) -> str:
    return f"{value // 1000}.{value % 1000:03d}"


def split_events(text: str) -> tuple[str, list[str], str]:
    """(header up to the first event's body, event bodies, footer)."""
    start = text.index('"traceEvents": [')
    first = text.index("{\n", start) + 2
    end = text.rindex("\n  }\n  ],")
    return text[:first], text[first:end].split(SEPARATOR), text[end:]


def parse_event(body: str) -> dict:
    return json.loads("{" + body + "}")


def compile_event(body: str, flow: str | None) -> list:
    """[literal, (kind, value), literal, ...] with the slots found in `body`."""
    parts: list = []
    at = 0
    for match in SLOT.finditer(body):
        if match["ts"]:
            group, kind, value = "ts", "ts", to_ns(match["ts"])
        elif match["step"]:
            group, kind, value = "step", "step", int(match["step"])
        else:
            group, kind, value = "num", match["key"], int(match["num"])
            if kind == "id":
                if flow is None:  # an "id" that is no flow id (a device id)
                    continue
                kind = "correlation" if flow == "ac2g" else "fwdbwd id"
        parts.append(body[at : match.start(group)])
        parts.append((kind, value))
        at = match.end(group)
    parts.append(body[at:])
    return parts


@dataclass
class Source:
    """A real trace, taken apart into what is written once and what is repeated."""

    header: str
    footer: str
    once: list[str] = field(default_factory=list)
    """Metadata."""
    tail: list[tuple[str, dict]] = field(default_factory=list)
    """The profiler's own span and markers, which cover the whole result."""
    looped: list[list] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    """By how much each identifier moves on in a replica."""
    looped_bytes: int = 0
    low: int = 1 << 63
    high: int = 0
    profiler_steps: int = 0

    @classmethod
    def of(cls, text: str) -> Source:
        header, bodies, footer = split_events(text)
        source = cls(header, footer)
        for body in bodies:
            event = parse_event(body)
            if event["ph"] == "M":
                source.once.append(body)
            elif event.get("cat") == "Trace" or event["ph"] == "i":
                source.tail.append((body, event))
            else:
                source._repeat(body, event)
        return source

    def _repeat(self, body: str, event: dict) -> None:
        compiled = compile_event(body, event.get("cat") if event["ph"] in "sft" else None)
        self.looped.append(compiled)
        self.looped_bytes += len(body) + len(SEPARATOR)
        for kind, value in compiled[1::2]:
            if kind == "ts":
                self.low = min(self.low, value)
                self.high = max(self.high, value + round(event.get("dur", 0) * 1000))
            elif kind == "step":
                self.profiler_steps += event.get("cat") == "user_annotation"
            else:
                self.steps[kind] = max(self.steps.get(kind, 0), value + 1)

    def replica(self, shift: dict[str, int]) -> str:
        chunk = []
        for parts in self.looped:
            line = parts[:]
            for at in range(1, len(line), 2):
                kind, value = line[at]
                value += shift[kind]
                line[at] = from_ns(value) if kind == "ts" else str(value)
            chunk.append("".join(line))
        return SEPARATOR.join(chunk)

    def ending(self, extra: int) -> Iterator[str]:
        """What is written once, made ``extra`` ns longer."""
        yield from self.once
        for body, event in self.tail:
            if event.get("cat") == "Trace":
                dur = from_ns(round(event["dur"] * 1000) + extra)
                body = re.sub(r'"dur": [\d.]+', f'"dur": {dur}', body, count=1)
            elif event["name"] == "Record Window End":
                ts = from_ns(to_ns(re.search(r'"ts": ([\d.]+)', body)[1]) + extra)
                body = re.sub(r'"ts": [\d.]+', f'"ts": {ts}', body, count=1)
            yield body


def make(
    path: str | Path, out: str | Path, *, mb: float = 0, replicas: int = 0, gap_us: int = 1000
) -> tuple[int, int]:
    """Write the long trace.

    Args:
        path: The real one.
        out: Where the long one goes; ``.gz`` compresses it.
        mb: About how large the raw JSON shall be, in 10^6 bytes.
        replicas: How many replicas, in place of a size.
        gap_us: Idle time between two replicas.

    Returns:
        How many replicas and how many events it has.
    """
    source = Source.of(read_text(str(path)))
    replicas = replicas or max(1, round(mb * 1e6 / source.looped_bytes))
    period = source.high - source.low + gap_us * 1000
    step = {**source.steps, "ts": period, "step": max(source.profiler_steps, 1)}
    opener = gzip.open if str(out).endswith(".gz") else open
    with opener(out, "wt", encoding="utf-8", newline="\n") as file:
        file.write(source.header)
        for number in range(replicas):
            file.write(
                (SEPARATOR if number else "") + source.replica({k: v * number for k, v in step.items()})
            )
        for body in source.ending((replicas - 1) * period):
            file.write(SEPARATOR + body)
        file.write(source.footer)
    return replicas, replicas * len(source.looped) + len(source.once) + len(source.tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("out")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--mb", type=float, default=0, help="approximate size of the raw JSON, 10^6 bytes")
    size.add_argument("--replicas", type=int, default=0)
    parser.add_argument("--gap-us", type=int, default=1000, help="idle time between replicas")
    args = parser.parse_args()
    replicas, events = make(args.source, args.out, mb=args.mb, replicas=args.replicas, gap_us=args.gap_us)
    print(f"{args.out}: {replicas} replicas, {events} events")


if __name__ == "__main__":
    main()
