"""What `profkit hardware calibrate` measured, kept in the user's configuration for the analyzer."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from profkit.errors import OutputError, ReadError
from profkit.hardware.gpu import Gpu
from profkit.hardware.peaks_file import load_peaks
from profkit.hardware.table import RATE_COLUMNS

__all__ = ["calibration_path", "keep_calibration", "kept_calibration"]

_FOLDER_VARIABLE = "PROFKIT_CALIBRATION"
_LONGEST_NAME = 80


def calibration_path(device_name: str) -> Path:
    """Where the calibration of a device is kept: ``$PROFKIT_CALIBRATION`` or the user's configuration folder."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    base = Path(folder) if folder else _configuration() / "profkit" / "calibration"
    stem = re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-")[:_LONGEST_NAME] or "unnamed"
    return base / f"{stem}.json"


def keep_calibration(gpu: Gpu, path: Path | None = None) -> Path:
    """Write measured figures as a peaks file, by default where the analyzer looks for them.

    Raises:
        OutputError: The file cannot be written.
    """
    path = path or calibration_path(gpu.name)
    row: dict[str, object] = {"name": gpu.name, "overhead_ns": gpu.overhead_ns, "queue_ns": gpu.queue_ns}
    row["compute_capability"], row["sm_count"], row["source"] = (
        gpu.compute_capability,
        gpu.sm_count,
        gpu.source,
    )
    if gpu.bandwidth_bytes_per_s:
        row["bandwidth_gbs"] = round(gpu.bandwidth_bytes_per_s / 1e9, 1)
    for column, key in RATE_COLUMNS.items():
        if key in gpu.peaks:
            row[column] = round(gpu.peaks[key] / 1e12, 2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(
            path, error.strerror or "cannot be written", "Choose another file with -o"
        ) from error
    return path


def kept_calibration(device_name: str) -> Gpu | None:
    """What was measured on a device of this name; None when nothing was, or when it cannot be read."""
    try:
        path = calibration_path(device_name)
        return load_peaks(path) if path.is_file() else None
    except (ReadError, OSError, RuntimeError):
        return None


def _configuration() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return Path(base) if base else Path.home() / ".config"
