"""Where the tests find recordings that are not part of the project."""

import os
import runpy
from functools import cache
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("PROFKIT_SHARED", Path(__file__).parents[2] / "shared"))
"""Recordings, cases and other people's files; absent for most people."""

DATA = Path(__file__).parent / "data"
"""Our own recordings and cases, part of the project."""

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"SKIPPED LOUDLY: no shared recordings at {SHARED}"
)


@cache
def studied_recordings() -> Path:
    """The calibration study's recordings, out of their archive: a folder for each recorder."""
    packed = Path(__file__).parents[1] / "reports" / "calibration" / "packed.py"
    return Path(runpy.run_path(str(packed))["unpacked"]())
