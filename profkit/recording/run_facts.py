"""What ``run.json`` says of a recording before it begins, and of the machine and program around it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from profkit.recording import environment
from profkit.recording.nvtx_domain import under_nsys

__all__ = ["RUN_SCHEMA", "describe_environment", "first_facts"]

RUN_SCHEMA: Final = "profkit.run/1"
"""The schema of ``run.json``, described in docs/recording.md."""

_OPTIONS = (
    "wait",
    "warmup",
    "steps",
    "repeat",
    "memory",
    "trace",
    "stacks",
    "shapes",
    "every",
    "on",
    "slower_than",
)


def first_facts(options: Any, rank: int | None, world: int | None) -> dict[str, Any]:
    """What is known when the recording starts.

    Args:
        options: Those of `profkit.record`.
        rank: This process' rank, or None.
        world: How many ranks there are, or None.
    """
    chosen = {name: getattr(options, name) for name in _OPTIONS}
    chosen["on"] = chosen["on"] if chosen["on"] in (None, "signal") else "file"  # a path may name a person
    return {
        "schema": RUN_SCHEMA,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "rank": rank,
        "world_size": world,
        "tool": "nsys" if under_nsys() else "torch.profiler",
        "options": chosen,
    }


def describe_environment(tell: Callable[[str], None]) -> dict[str, Any]:
    """The machine and the program; empty, with a word, where something of them is too odd to describe."""
    try:
        return environment.describe()
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        tell(f"the environment is not described: {error}")
        return {}
