"""The shape of a kernel's launch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Launch"]

_REGISTERS, _THREADS, _SHARED_BYTES, _MOST_BLOCKS = 65536, 2048, 227 * 1024, 32


@dataclass(frozen=True)
class Launch:
    """The shape of a launch, and how long its kernels take."""

    grid: tuple[int, int, int]
    threads: int
    """Threads a block."""
    mean_ns: float
    registers: int = -1
    """Registers a thread; -1 when unknown."""
    shared_bytes: int = -1
    """Shared memory a block; -1 when unknown."""

    @property
    def blocks(self) -> int:
        """Blocks of the grid; 0 when unknown."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def blocks_per_sm(self) -> int:
        """How many blocks fit on a multiprocessor of 64 Ki registers, 2048 threads and 227 KiB shared memory."""
        threads = max(self.threads, 1)
        by_registers = _REGISTERS // (self.registers * threads) if self.registers > 0 else _MOST_BLOCKS
        by_memory = _SHARED_BYTES // self.shared_bytes if self.shared_bytes > 0 else _MOST_BLOCKS
        return max(1, min(by_registers, by_memory, _THREADS // threads, _MOST_BLOCKS))
