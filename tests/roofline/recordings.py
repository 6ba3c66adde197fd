"""Our recordings, read and bounded as the analyzer does it."""

import gzip
import shutil
import tempfile
from functools import cache
from pathlib import Path

from profkit.hardware import find_gpu
from profkit.readers.kineto import read_kineto
from profkit.readers.nsys import read_nsys
from profkit.roofline.bounds import bound_operations
from profkit.timeline.launches import find_launches
from tests.shared import DATA


@cache
def read(kind, name, folder=DATA):
    if kind == "kineto":
        return read_kineto(gzip.decompress((folder / "kineto" / f"{name}.json.gz").read_bytes()), name)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{name}.sqlite"
        with gzip.open(folder / kind / f"{name}.sqlite.gz") as packed, path.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        return read_nsys(path, path.name)


def cards(trace):
    return [
        find_gpu(
            device.name or "",
            memory_bytes=device.memory_bytes,
            sm_count=device.sm_count,
            bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
            l2_bytes=device.l2_bytes,
        )
        for device in trace.devices
    ]


def bound(trace, gpus=None):
    launches = find_launches(trace)
    return bound_operations(trace, launches.operator, launches.operators.parent, gpus or cards(trace))


@cache
def bounded(kind, name):
    trace = read(kind, name)
    return trace, bound(trace)
