"""Pickles of plain data to Python objects, without running anything and without trusting a length.

A snapshot is dicts, lists, tuples, text and numbers. The C unpickler builds them as fast as ``pickle.load``
does, with `find_class` refusing every global. But it allocates what an opcode asks for before it looks
whether the file holds that much: a memo index of 2**32 costs it 64 GiB. So a regular expression first walks
the opcodes (1 s for a million trace entries) and stops at any index or length that the file cannot back.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from typing import Any

from profkit.errors import ReadError

__all__ = ["load"]

_AGAIN = "Dump it again with torch.cuda.memory._dump_snapshot(path)."
_UNTRUSTED = "A memory snapshot holds plain data only: do not load this file with pickle.load."

_SHORT_TEXT = b"|".join(b"\\x%02x.{%d}" % (length, length) for length in range(256))
_PLAIN = re.compile(
    rb"(?s)(?:[hKq].|[\x94sue}\])(\x85\x86\x87tNal0\x88\x89]|j.{4}|M..|J.{4}|\x8a\x06.{6}|\x95.{8}"
    rb"|\x8a\x05.{5}|\x8a\x07.{7}|\x8a\x08.{8}|\x8a\x09.{8}[\x00\xff]|G.{8}|\x8c(?:" + _SHORT_TEXT + rb"))*+"
)
"""A run of the opcodes that snapshots consist of, with their arguments."""

_LENGTH_BYTES = {
    b"X": 4,
    b"T": 4,
    b"B": 4,
    b"\x8d": 8,
    b"\x8e": 8,
    b"\x96": 8,
    b"\x8b": 4,
    b"U": 1,
    b"C": 1,
    b"\x8a": 1,
    b"\x8c": 1,
}
_MEMO_TEXT = b"p"
_MEMO_BINARY = b"r"
_FORBIDDEN = {
    b"P": "a persistent id",
    b"Q": "a persistent id",
    b"\x82": "an extension",
    b"\x83": "an extension",
    b"\x84": "an extension",
    b"\x97": "an out-of-band buffer",
    b"R": "a call",
    b"b": "an object's state",
    b"\x81": "an object",
    b"\x92": "an object",
    b"o": "an object",
}
_WHOLE_NUMBERS = (b"\x8a", b"\x8b", b"I", b"L")
_LONGEST_NUMBER = 9
"""Bytes of a number of 64 bits and its sign. Of longer ones any amount hash alike: a dictionary of such keys hangs."""
_LONGEST_DIGITS = 22
_GLOBALS = (b"c", b"i", b"\x93")
_ARGUMENTS = {opcode.code.encode("latin-1"): opcode.arg for opcode in pickletools.opcodes}


def load(data: bytes | bytearray | memoryview, name: str) -> Any:
    """The plain objects of a pickle, of any protocol.

    Raises:
        ReadError: It holds a global or anything but plain data, a length or an index that the file cannot back,
            it ends early, or it is not a pickle.
    """
    with memoryview(data) as view:
        _vet(view, name)
        unpickler = _PlainUnpickler(io.BufferedReader(_View(view), 1 << 20))
        try:
            return unpickler.load()
        except _ForbiddenError as error:
            raise _forbidden(name, error.args[0]) from None
        except (EOFError, pickle.UnpicklingError) as error:
            if "truncated" in str(error) or isinstance(error, EOFError):
                raise _cut(name) from None
            raise ReadError(name, f"it is a broken pickle ({error})", _AGAIN) from None
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError) as error:
            raise ReadError(name, f"it is a broken pickle ({error})", _AGAIN) from None
        except MemoryError:
            raise ReadError(
                name, "it needs more memory than is available", "Record with a smaller max_entries."
            ) from None


class _ForbiddenError(Exception):
    """A global was asked for."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise _ForbiddenError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise _ForbiddenError("a persistent id")


class _View(io.RawIOBase):
    """A file over a buffer that is not copied."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        part = self._view[self._at : self._at + len(target)]
        target[: len(part)] = part
        self._at += len(part)
        return len(part)


def _vet(view: memoryview, name: str) -> None:
    """Walk all opcodes; refuse what no snapshot holds. Globals are left to `find_class`, which names them."""
    at, end = 0, len(view)
    while True:
        run = _PLAIN.match(view, at)
        at = run.end() if run else at
        opcode = bytes(view[at : at + 1])
        if opcode in (b".", *_GLOBALS):
            return
        if opcode in _FORBIDDEN:
            raise _forbidden(name, _FORBIDDEN[opcode])
        at = _after(view, at, opcode, name)
        if at > end:
            raise _cut(name)


def _after(view: memoryview, at: int, opcode: bytes, name: str) -> int:
    """Where the opcode at ``at`` ends."""
    if not opcode:
        raise _cut(name)
    if width := _LENGTH_BYTES.get(opcode):
        end = at + 1 + width + int.from_bytes(view[at + 1 : at + 1 + width], "little")
        if opcode in _WHOLE_NUMBERS:
            _vet_number(bytes(view[at + 1 + width : min(end, len(view), at + 100)]), name)
        return end
    if opcode == _MEMO_BINARY:
        _vet_memo(int.from_bytes(view[at + 1 : at + 5], "little"), len(view), name)
        return at + 5
    try:
        argument = _ARGUMENTS[opcode]
    except KeyError:
        raise ReadError(name, f"it is not a pickle (byte {opcode[0]:#04x} at {at})", _AGAIN) from None
    if argument is None:
        return at + 1
    if argument.n >= 0:
        return at + 1 + argument.n
    return _after_line(view, at, opcode, name)


def _after_line(view: memoryview, at: int, opcode: bytes, name: str) -> int:
    line = bytes(view[at + 1 : at + (1 << 16)]).partition(b"\n")
    if not line[1]:
        raise _cut(name)
    if opcode in _WHOLE_NUMBERS and len(line[0]) > _LONGEST_DIGITS:
        raise _too_long(name)
    if opcode == _MEMO_TEXT:
        _vet_memo(int(line[0]) if line[0].isdigit() and len(line[0]) < 20 else -1, len(view), name)
    return at + 2 + len(line[0])


def _vet_number(number: bytes, name: str) -> None:
    if number[_LONGEST_NUMBER - 1 :] not in (b"", b"\x00", b"\xff"):
        raise _too_long(name)


def _too_long(name: str) -> ReadError:
    return ReadError(name, "it holds a whole number of more than 64 bits, as no snapshot does", _UNTRUSTED)


def _vet_memo(index: int, size: int, name: str) -> None:
    if not 0 <= index <= size:
        raise ReadError(
            name, f"it is a hostile or broken pickle: memo index {index} of {size} bytes", _UNTRUSTED
        )


def _forbidden(name: str, what: str) -> ReadError:
    kind = "a forbidden global " if "." in what else ""
    return ReadError(name, f"it contains {kind}{what[:200]}", _UNTRUSTED)


def _cut(name: str) -> ReadError:
    return ReadError(name, "it ends early: the pickle was cut off", _AGAIN)
