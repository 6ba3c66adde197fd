"""What lies beside recordings: ``run.json``, which `profkit.record` writes, and the debug folder of a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from profkit.errors import ProfkitError
from profkit.readers.compiled_code import DEBUG_FOLDER, lines_of_kernels
from profkit.readers.remote import is_remote
from profkit.saved_runs.run_file import RunFile, read_run_file
from profkit.units import parse_duration_ns

__all__ = ["compiled_lines", "run_steps", "stated_step_ns"]

_LONGEST_NS: Final = 1e15
"""Eleven days: a longer step is a damaged file."""


def run_steps(files: Sequence[str]) -> dict[str, int]:
    """The unprofiled step time of each file that a ``run.json`` beside it lists, in ns, by the file's base name.

    Of several that list files of one name, each in its own folder, the median counts.
    """
    told: dict[str, list[int]] = {}
    for folder in _folders(files):
        mine = [Path(f).name for f in files if f != "-" and Path(f).parent == folder]
        for description in map(read_run_file, sorted(folder.glob("run*.json"))):
            step = (description or {}).get("plain_step_median_ns")
            if description is None or not isinstance(step, int | float) or not 0 < step < _LONGEST_NS:
                continue
            listed = _stems(description)
            for name in mine:
                if name.partition(".")[0] in listed:
                    told.setdefault(name, []).append(round(step))
    return {name: round(median(steps)) for name, steps in told.items()}


def compiled_lines(files: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The program's lines that each compiled kernel comes from, as the debug folders beside some files tell them."""
    told: dict[str, tuple[str, ...]] = {}
    for folder in _folders(files):
        for kernel, frames in lines_of_kernels(folder / DEBUG_FOLDER).items():
            told[kernel] = tuple(dict.fromkeys((*told.get(kernel, ()), *frames)))
    return told


def _folders(files: Sequence[str]) -> list[Path]:
    return sorted({Path(f).parent for f in files if f != "-" and not is_remote(f)})


def _stems(run: RunFile) -> set[str]:
    """The files that a run lists, without suffixes: an export stands for its report."""
    files = run.get("files")
    listed = files if isinstance(files, list) else []
    return {name.partition(".")[0] for name in listed if isinstance(name, str)}


def stated_step_ns(text: str | None, ns: int | None) -> int | None:
    """The step's time without a profiler as a person states it: ``38.3ms``, or in ns; None where neither is given.

    Raises:
        ProfkitError: It is no duration, or given twice.
    """
    stated: object = ns
    if text is None and stated is not None and not (isinstance(stated, int) and stated > 0):
        raise ProfkitError(
            f'plain_step_ns={ns!r} is no whole number over 0. Write one, or plain_step="38.3ms"'
        )
    if text is None:
        return ns
    if ns is not None:
        raise ProfkitError("the unprofiled step time is given twice: give plain_step or plain_step_ns")
    return parse_duration_ns(text)
