"""The single events of recordings: what a report has no rows for, and what is read again when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit.api.inputs import PathLike, as_list, expand, refuse_input
from profkit.api.output_files import write_whole
from profkit.errors import AnalysisError, OutputError
from profkit.readers import read
from profkit.rendering.table_csv import launches_csv
from profkit.report.assembly import time_offsets, timelines
from profkit.report.views import Options

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Recordings", "export", "export_timeline"]


@dataclass(frozen=True)
class Recordings:
    """The files that a report was made of, and how they were read."""

    files: Sequence[str]
    options: Options

    def launches(self) -> pd.DataFrame:
        """Every device operation, one row each, by device and start."""
        import pandas as pd

        from profkit.roofline.launch_table import LAUNCH_COLUMNS, launch_columns

        if "-" in self.files:
            hint = "Give files instead"
            raise AnalysisError("launches", "standard input cannot be read a second time", hint)
        views, _ = timelines([read(file) for file in self.files], self.options)
        first = accumulate((len(view.trace.devices) for view in views), initial=self.options.device or 0)
        tables = [
            pd.DataFrame(launch_columns(view, at, offset), columns=list(LAUNCH_COLUMNS))
            for view, at, offset in zip(views, first, time_offsets(views), strict=False)
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(LAUNCH_COLUMNS))


def export_timeline(paths: PathLike | Iterable[PathLike], *, step: str | None = None) -> bytes:
    """Recordings as a timeline for Perfetto, gzip-compressed.

    Args:
        paths: As for `analyze`.
        step: The name of the ranges that are steps.

    Raises:
        ReadError: A file cannot be read.
    """
    from profkit.rendering.perfetto import render_perfetto

    recordings = [read(file) for file in expand(paths)]
    views, memory = timelines(recordings, Options(step_name=step))
    return render_perfetto(views, time_offsets(views), memory.curve if memory else ())


def export(paths: PathLike | Iterable[PathLike], target: PathLike, *, step: str | None = None) -> Path:
    """Write the single events of recordings: a timeline, or by the target's suffix a table of all device operations.

    Args:
        paths: As for `analyze`.
        target: The file to write. ``launches.csv`` or ``launches.parquet`` get the rows of `Report.launches`; any other
            a timeline for Perfetto (https://ui.perfetto.dev) with phases, kernels, idle causes and memory.
        step: The name of the ranges that are steps.

    Returns:
        Where it was written.

    Raises:
        ReadError: A file cannot be read.
        OutputError: It cannot be written there, the target is one of the inputs, or Parquet needs pyarrow.
    """
    place = Path(target)
    refuse_input(place, as_list(paths))
    table = _TABLES.get(place.suffix.lower())
    if table is None:
        write_whole(place, export_timeline(paths, step=step))
    else:
        _refuse_without_pyarrow(place)
        write_whole(place, table(Recordings(expand(paths), Options(step_name=step)).launches()))
    return place


def _refuse_without_pyarrow(target: Path) -> None:
    """Before anything is read, which may take minutes."""
    if target.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        hint = "Install it with: pip install 'profkit[parquet]', or write .csv"
        raise OutputError(target, "Parquet is written by pyarrow, which is not installed", hint)


def _parquet(frame: pd.DataFrame) -> bytes:
    written: bytes = frame.to_parquet(None, engine="pyarrow", index=False)
    return written


_TABLES: Final[Mapping[str, Callable[[pd.DataFrame], str | bytes]]] = {
    ".csv": launches_csv,
    ".parquet": _parquet,
}
