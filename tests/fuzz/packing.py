"""What lies around a recording: compressions whole, cut and doubled, encodings, and files that are something else."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from random import Random

from tests.fuzz.damage import Made, damaged

_WAYS: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: gzip.compress(data, 1),
    lambda data: bz2.compress(data, 1),
    lambda data: lzma.compress(data, preset=0),
)
_STARTS = (
    b"", b" \n\t", b"PK\x03\x04", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"\x89HDF", b"PAR1", b"ARROW1", b"NVPR", b"\x7fELF",
    b"%PDF-1.7", b"<!DOCTYPE html>", b"<?xml version='1.0'?>", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", b"\xff\xfe", b"\xfe\xff",
    b"\xef\xbb\xbf", b"NVIDIA Tegra Profiler Report", b"SQLite format 3\x00", b"plain text", b"\x00\x01\x02\x03", b"(dp0\n", b"]q\x00",
)  # fmt: skip
"""What files begin with."""


def packed(made: Made, random: Random) -> Made:
    """An input inside something, or cut off and put behind the first bytes of something else."""
    data, pack = made.data, random.choice(_WAYS)
    way = random.random()
    if way < 0.3:
        return Made(pack(data), made.suffix + ".gz", made.kernels_at_most)
    if way < 0.4:  # members, each a part; zeros between them, as tapes have; or the end of another file
        half = random.randint(0, len(data))
        between = random.choice([b"", b"\x00" * 300, b"rest"])
        known = made.kernels_at_most if between != b"rest" else None
        return Made(pack(data[:half]) + between + pack(data[half:]), made.suffix, known)
    if way < 0.55:
        return Made(damaged(pack(data), random), made.suffix)
    if way < 0.6:
        whole = pack(data)
        return Made(whole[: random.randint(1, len(whole))], made.suffix)
    if way < 0.65:
        return Made(random.choice(_WAYS)(pack(data)), made.suffix)
    if way < 0.7:
        return Made(_zipped(data), ".zip")
    if way < 0.8:
        coding = random.choice(["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
        return Made(data[:100_000].decode("utf-8", "replace").encode(coding, "replace"), made.suffix)
    rest = random.choice([b"", data, random.randbytes(random.randrange(9000))])
    return Made(random.choice(_STARTS) + rest, made.suffix)


def _zipped(data: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("trace.json", data)
    return target.getvalue()
