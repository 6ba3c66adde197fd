"""nsys' own report files, exported to SQLite through an installed nsys."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profkit.errors import ReadError

__all__ = ["exported"]

_LONGEST_EXPORT_S = 1800
_COMMAND = "nsys export --type sqlite --lazy=false -o report.sqlite report.nsys-rep"


@contextmanager
def exported(path: Path, name: str) -> Iterator[Path]:
    """An nsys report as an SQLite export in a temporary folder, which goes when the block ends.

    Args:
        path: The report, a real file.
        name: Its name for people.

    Raises:
        ReadError: There is no nsys on the PATH, or it cannot export the report.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ReadError(
            name, "is an nsys report, but nsys is not on the PATH to export it", f"Run: {_COMMAND}"
        )
    with tempfile.TemporaryDirectory(prefix="profkit-") as folder:
        # a link with the right suffix: nsys looks at suffixes, and may write beside its input
        link, output = Path(folder, "report.nsys-rep"), Path(folder, "report.sqlite")
        link.symlink_to(path.absolute())
        command = [nsys, "export", "--type", "sqlite", "--lazy=false", "--output", str(output), str(link)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_LONGEST_EXPORT_S, check=False, cwd=folder
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReadError(
                name, f"nsys could not export this report ({type(error).__name__})", f"Run: {_COMMAND}"
            ) from error
        if done.returncode or not output.is_file():
            raise ReadError(
                name, f"nsys could not export this report ({_last_line(done)})", f"Run: {_COMMAND}"
            )
        yield output


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").replace("\r", "\n").split("\n")
    spoken = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("Processing")]
    return spoken[-1][:200] if spoken else f"exit code {done.returncode}"
