"""How the process gets its memory from the system."""

from __future__ import annotations

import ctypes
import gc
import sys

__all__ = ["collect_rarely", "reuse_large_blocks"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Options of mallopt(3)."""
_LARGEST_BLOCK = 1 << 30
_NEW_OBJECTS = 100_000


def collect_rarely() -> None:
    """Have the garbage collector look for cycles after so many new objects, not after 700.

    Reading makes millions of short-lived tuples, none of which is in a cycle: looking costs 5 % of a command.
    """
    gc.set_threshold(_NEW_OBJECTS)


def reuse_large_blocks() -> None:
    """Have freed columns used again, not given back: new pages must be filled with zeros first, by the system.

    An analysis makes hundreds of columns that live for one line. With a million kernels this saves a third of
    the system time and a tenth of all. It holds for glibc; elsewhere nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
    mallopt(_M_TRIM_THRESHOLD, _LARGEST_BLOCK)
