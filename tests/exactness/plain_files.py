"""Recordings read the plain way: `profkit.verification`, which shares no line with profkit's readers and analysis."""

import gzip
import tempfile
from pathlib import Path

from profkit.verification.events import Call, Op, Recording, Span
from profkit.verification.exports import COPY_KINDS, read_export
from profkit.verification.traces import read_trace

__all__ = ["COPY_KINDS", "Call", "Op", "Recording", "Span", "read_plainly"]


def read_plainly(path: Path) -> Recording:
    """A recording by its name: nsys (`.sqlite`) or torch.profiler (`.json`), gzipped or not, with all its spans."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".sqlite" not in path.name:
        return read_trace(data, lambda span: True)
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(data)
        file.flush()
        return read_export(Path(file.name), lambda span: True)
