"""What a multiprocessor holds at one time, and so how many blocks of a kernel it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["MULTIPROCESSORS", "Multiprocessor", "OccupancyLimit"]

OccupancyLimit = Literal["registers", "shared_memory", "threads", "blocks", "grid"]
"""What keeps more blocks from a multiprocessor: one of its sizes, or that the grid has no more."""

_KIB: Final = 1024
_WARP: Final = 32
_REGISTERS: Final = 64 * _KIB
_PARTITIONS: Final = 4
"""Warps live in one of four parts of a multiprocessor, each with a quarter of its registers."""
_REGISTER_UNIT: Final = 256
"""Registers of a warp are given out in units of so many."""


@dataclass(frozen=True)
class Multiprocessor:
    """The sizes of a streaming multiprocessor (CUDA Programming Guide, technical specifications per compute capability).

    How blocks take them up follows NVIDIA's occupancy calculator (``cuda_occupancy.h``).
    """

    threads: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = _KIB
    """Shared memory that the system keeps of every block, from Ampere on."""
    shared_unit: int = 128
    """Shared memory is given out in units of so many bytes."""

    def resident(self, threads: int, registers: int, shared_bytes: int) -> tuple[int, OccupancyLimit]:
        """How many blocks fit at one time, and what keeps out one more.

        Args:
            threads: Threads of a block.
            registers: Registers of a thread; unknown ones (-1) limit nothing.
            shared_bytes: Shared memory of a block; unknown (-1) limits nothing.
        """
        warps = max(-(-threads // _WARP), 1)
        fits: dict[OccupancyLimit, int] = {"threads": self.threads // _WARP // warps, "blocks": self.blocks}
        if registers > 0:
            of_warp = _up(registers * _WARP, _REGISTER_UNIT)
            fits["registers"] = _REGISTERS // _PARTITIONS // of_warp * _PARTITIONS // warps
        if shared_bytes >= 0:
            of_block = _up(shared_bytes + self.reserved_bytes, self.shared_unit)
            fits["shared_memory"] = self.shared_bytes // max(of_block, 1)
        limit = min(fits, key=lambda name: fits[name])
        return max(fits[limit], 1), limit


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


_HOPPER: Final = Multiprocessor(2048, 32, 228 * _KIB)

MULTIPROCESSORS: Final[Mapping[str, Multiprocessor]] = MappingProxyType(
    {
        "7.0": Multiprocessor(2048, 32, 96 * _KIB, 0, 256),
        "7.5": Multiprocessor(1024, 16, 64 * _KIB, 0, 256),
        "8.0": Multiprocessor(2048, 32, 164 * _KIB),
        "8.6": Multiprocessor(1536, 16, 100 * _KIB),
        "8.7": Multiprocessor(1536, 16, 164 * _KIB),
        "8.9": Multiprocessor(1536, 24, 100 * _KIB),
        "9.0": _HOPPER,
        "10.0": _HOPPER,
        "10.3": _HOPPER,
        "12.0": Multiprocessor(1536, 24, 100 * _KIB),
    }
)
"""By compute capability."""
