"""Inputs: a path or standard input, plain or compressed, to bytes or to a real file, within limits.

What an input is, is told from its first bytes, after any compression is taken off. Memory stays bounded: a large
plain file is mapped and not copied, a database goes to a temporary file, and everything else that has to be
held is counted against a limit while it grows.
"""

from __future__ import annotations

import bz2
import lzma
import mmap
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from profkit.errors import ReadError
from profkit.model import Finding, Severity
from profkit.readers.encodings import as_utf8, is_mixed
from profkit.readers.registry import Format, format_beginning
from profkit.readers.remote import is_remote, open_remote
from profkit.units import bytes_text

__all__ = ["Input", "open_input"]

_BLOCK = 1 << 20
_HEAD = 1 << 12
_SMALLEST_LIMIT = 64 << 20
_READ_AT_ONCE = 64 << 20
"""Bytes up to which a plain file is read and not mapped: one that is cut short meanwhile would end the process."""
_LARGEST_RATIO = 100
"""Traces compress 10 to 30 times, replicated ones up to 100 times; a bomb 1000 times. 2 MB stay within 1 GB of memory."""


@dataclass(frozen=True)
class Input:
    """An opened input."""

    format: Format
    content: Any
    """Its bytes, or a real file where the format's reader needs one."""
    findings: tuple[Finding, ...] = ()


class _Gzip:
    """zlib's machine with the interface of those of bz2 and lzma."""

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(wbits=31)
        self._full = False

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._machine.decompress(self._machine.unconsumed_tail + data, max_length)
        self._full = len(out) >= max_length
        return out

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._machine.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._machine.eof

    @property
    def unused_data(self) -> bytes:
        return self._machine.unused_data


def _zstd() -> Any:
    from compression import zstd  # type: ignore[import-not-found, unused-ignore]

    return zstd.ZstdDecompressor()


@dataclass(frozen=True)
class Compression:
    """A compression: what it starts with, and what takes it off."""

    name: str
    magic: bytes
    machine: Callable[[], Any]


_COMPRESSIONS = (
    Compression("gzip", b"\x1f\x8b", _Gzip),
    Compression("bzip2", b"BZh", bz2.BZ2Decompressor),
    Compression("xz", b"\xfd7zXZ\x00", lzma.LZMADecompressor),
    Compression("zstd", b"\x28\xb5\x2f\xfd", _zstd),
)
_LONGEST_MAGIC = 6

_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "Unpack it and give the files in it."),
    (b"\x04\x22\x4d\x18", "lz4-compressed", "Unpack it first: lz4 -d FILE."),
    (b"\x89HDF", "an HDF5 file", "Give an nsys SQLite export, a profiler trace or a memory snapshot."),
    (b"PAR1", "a Parquet file", "Export with: nsys export --type sqlite REPORT.nsys-rep."),
    (b"ARROW1", "an Arrow file", "Export with: nsys export --type sqlite REPORT.nsys-rep."),
    (
        b"NVPR",
        "an Nsight Compute report",
        "Export its counters: ncu --import REPORT --csv --page raw > counters.csv.",
    ),
    (b"\x7fELF", "a program", "Give an nsys SQLite export, a profiler trace or a memory snapshot."),
    (b"%PDF", "a PDF file", "Give an nsys SQLite export, a profiler trace or a memory snapshot."),
)
_WANTED = "Give an nsys SQLite export, a torch.profiler trace (JSON) or a CUDA memory snapshot."


@contextmanager
def open_input(path: str, expand_limit: int | None = None) -> Iterator[Input]:
    """Open ``path`` (``-`` is standard input), whatever its compression, and say what it is.

    Args:
        path: The input as the user gave it.
        expand_limit: The most bytes that may be held for it once expanded. By default half of the machine's
            memory, and for compressed inputs no more than 100 times what was read (but 64 MiB always may be).

    Raises:
        ReadError: No such file, a folder, no permission, empty, over the limit, or no known content.
    """
    with ExitStack() as stack:
        try:
            stream, plain = _open(path, stack)
            opened = _input(path, stream, plain, _Meter(path, expand_limit), stack)
        except OSError as error:
            raise ReadError(path, f"it cannot be read: {error.strerror or error}") from None
        except MemoryError:
            raise ReadError(path, "it is larger than the free memory", "Record fewer steps.") from None
        yield opened


def _format_of(head: bytes, path: str) -> Format:
    text: bytes = as_utf8(head).lstrip(b" \t\r\n")
    found = format_beginning(text)
    if found is not None:
        return found
    for magic, what, hint in _FOREIGN:
        if head.startswith(magic):
            raise ReadError(path, f"it is {what}", hint)
    raise ReadError(path, _looks_like(text), _WANTED)


def _looks_like(text: bytes) -> str:
    if not text:
        return "it contains only white space"
    lowered = text[:256].lower()
    if lowered.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page, not a recording"
    if lowered.startswith(b"<"):
        return "it is XML or HTML, not a recording"
    if b"\x00" in text or sum(byte < 9 for byte in text) * 20 > len(text):
        return "it is binary data of an unknown format"
    return "it is plain text, not a recording"


def _open(path: str, stack: ExitStack) -> tuple[IO[bytes], bool]:
    """The input as a buffered stream, and whether it is an ordinary file."""
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise ReadError(path, "nothing is piped into standard input", "Use: profkit analyze - < FILE.")
        return sys.stdin.buffer, False
    if is_remote(path):
        return stack.enter_context(open_remote(path)), False
    file = Path(path)
    if file.is_dir():
        raise ReadError(path, "it is a folder, not a file", "Give a file in it.")
    try:
        stream = stack.enter_context(file.open("rb"))
    except FileNotFoundError:
        raise ReadError(path, "there is no such file", "Check the name and the folder") from None
    except PermissionError:
        raise ReadError(
            path, "you have no permission to read it", "Change its permissions: chmod u+r FILE."
        ) from None
    except ValueError as error:  # a NUL in the name
        raise ReadError(path, f"it is not a file name: {error}") from None
    return stream, file.is_file()


class _Meter:
    """Counts what an input expands to, and stops it at the limit."""

    def __init__(self, path: str, limit: int | None) -> None:
        self._path = path
        self._limit = limit
        self._memory = _half_of_memory()
        self.read = 0
        self.made = 0

    def check(self, compressed: bool) -> None:
        """Raise `ReadError` once more was made than may be."""
        limit = self._limit
        if limit is None:
            ratio = _LARGEST_RATIO * self.read if compressed else self._memory
            limit = max(_SMALLEST_LIMIT, min(self._memory, ratio))
        if self.made > limit:
            what = "expands to more than" if compressed else "is larger than"
            raise ReadError(
                self._path,
                f"it {what} {bytes_text(limit)} (of {bytes_text(self.read)} read so far)",
                "If you trust the file, unpack it first, or raise the limit.",
            )


def _half_of_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 8 << 30


def _input(path: str, stream: IO[bytes], plain: bool, meter: _Meter, stack: ExitStack) -> Input:
    head = stream.read(_HEAD)
    if not head:
        raise ReadError(path, "the file is empty", "The program that wrote it may have died; record again.")
    compression = next((c for c in _COMPRESSIONS if head.startswith(c.magic)), None)
    if compression is None:
        format_ = _format_of(head, path)
        if plain:
            return _plain_input(path, stream, format_, stack)
        return _held(format_, _counted(head, stream, meter), stack)
    try:
        compression.machine()
    except ImportError:  # zstd before Python 3.14
        hint = f"Unpack it first: {compression.name} -d FILE."
        raise ReadError(
            path, f"it is {compression.name}-compressed, which this Python cannot decompress", hint
        ) from None
    findings: list[Finding] = []
    blocks = _expanded(compression, _chain(head, stream), meter, findings)
    first = b""
    for block in blocks:
        first += block
        if len(first) >= _HEAD:
            break
    if not first:
        problem = "this {} file is damaged at its start" if findings else "nothing is in this {} file"
        raise ReadError(path, problem.format(compression.name), "Copy or record it again.")
    if any(first.startswith(c.magic) for c in _COMPRESSIONS):
        raise ReadError(path, "it was compressed twice", "Unpack it once and give the result.")
    made = _held(_format_of(first[:_HEAD], path), _joined(first, blocks), stack)
    return replace(made, findings=(*findings, *made.findings))


def _plain_input(path: str, stream: IO[bytes], format_: Format, stack: ExitStack) -> Input:
    if format_.on_disk:
        return Input(format_, Path(path))
    if os.fstat(stream.fileno()).st_size <= _READ_AT_ONCE:
        stream.seek(0)
        return _text(format_, stream.read())
    mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(mapped)
    stack.callback(_release, mapped, view)
    return _text(format_, view)


def _text(format_: Format, data: Any) -> Input:
    mixed = (Finding("mixed-encodings", Severity.WARNING),) if is_mixed(data) else ()
    return Input(format_, as_utf8(data), mixed)


def _release(mapped: mmap.mmap, view: memoryview) -> None:
    try:
        view.release()
        mapped.close()
    except BufferError:  # a caller kept a part of it; it goes with that part
        pass


def _held(format_: Format, blocks: Iterator[bytes], stack: ExitStack) -> Input:
    if format_.on_disk:
        return Input(format_, _spilled(blocks, format_, stack))
    data = bytearray()
    for block in blocks:
        data += block
    return _text(format_, data)


def _spilled(blocks: Iterator[bytes], format_: Format, stack: ExitStack) -> Path:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="profkit-"))
    file = Path(folder) / f"input{format_.suffixes[0]}"
    with file.open("xb") as target:
        for block in blocks:
            target.write(block)
    return file


def _chain(head: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    yield head
    while block := stream.read(_BLOCK):
        yield block


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _counted(head: bytes, stream: IO[bytes], meter: _Meter) -> Iterator[bytes]:
    for block in _chain(head, stream):
        meter.made += len(block)
        meter.read = meter.made
        meter.check(compressed=False)
        yield block


def _expanded(
    compression: Compression, blocks: Iterator[bytes], meter: _Meter, findings: list[Finding]
) -> Iterator[bytes]:
    """The blocks of a compressed stream, expanded; what is whole of a damaged one, with a finding."""
    machine: Any = None
    pending = b""
    try:
        for block in blocks:
            meter.read += len(block)
            pending += block
            while True:
                if machine is None:
                    pending = pending.lstrip(b"\x00")
                    if len(pending) < _LONGEST_MAGIC:
                        break
                    if not pending.startswith(compression.magic):
                        return  # bytes after the end are nobody's
                    machine = compression.machine()
                out, pending = machine.decompress(pending, _BLOCK), b""
                meter.made += len(out)
                meter.check(compressed=True)
                yield out
                if machine.eof:
                    machine, pending = None, machine.unused_data
                elif machine.needs_input:
                    break
    except (zlib.error, OSError, lzma.LZMAError, EOFError) as error:
        findings.append(_damage(compression, meter, error))
        return
    if machine is not None:
        findings.append(_damage(compression, meter, None))


def _damage(compression: Compression, meter: _Meter, error: Exception | None) -> Finding:
    params = {
        "compression": compression.name,
        "error": str(error) if error else None,
        "expanded_bytes": meter.made,
    }
    return Finding("truncated", Severity.WARNING, params=params)
