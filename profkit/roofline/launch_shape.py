"""The shape of a kernel's launch, and how much of the GPU it can fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from profkit.hardware import Gpu
from profkit.hardware.multiprocessor import MULTIPROCESSORS, Multiprocessor, OccupancyLimit
from profkit.model import LAUNCH_SHAPE, Device, Operations

__all__ = ["Launch", "Residency"]

_USUAL: Final = "9.0"
"""The compute capability that is taken where a model needs one and the file has none that is known."""


class Residency(NamedTuple):
    """How a kernel's blocks fill the multiprocessors; None is unknown. Fields are those of `KernelRow`."""

    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    occupancy_limit: OccupancyLimit | None = None
    waves: float | None = None


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

    @classmethod
    def of(cls, operations: Operations, row: int, mean_ns: float) -> Launch:
        """That of a kernel.

        Args:
            operations: The operations of a trace.
            row: The kernel.
            mean_ns: How long such kernels take.
        """
        sides = [int(getattr(operations, column)[row]) for column in LAUNCH_SHAPE]
        grid = (max(sides[0], 0), max(sides[1], 1), max(sides[2], 1))
        threads = max(sides[3], 0) * max(sides[4], 1) * max(sides[5], 1)
        return cls(grid, threads, mean_ns, int(operations.registers[row]), int(operations.shared_bytes[row]))

    @property
    def blocks(self) -> int:
        """Blocks of the grid; 0 when unknown."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def blocks_per_sm(self, gpu: Gpu | None) -> int:
        """How many blocks fit on a multiprocessor, of a GPU that is not known on Hopper's."""
        sizes = MULTIPROCESSORS.get(gpu.compute_capability if gpu else _USUAL, MULTIPROCESSORS[_USUAL])
        return sizes.resident(self.threads, self.registers, self.shared_bytes)[0]

    def residency(self, device: Device, gpu: Gpu | None) -> Residency:
        """Its occupancy and waves, as far as its sizes and those of the device are known.

        Args:
            device: As the file describes it.
            gpu: As the table has it, or the one whose rates a person chose.
        """
        known = Residency(
            self.registers if self.registers >= 0 else None,
            self.shared_bytes if self.shared_bytes >= 0 else None,
        )
        sizes, count = _multiprocessors(device, gpu)
        if sizes is None or not count or None in known[:2] or not self.blocks or not self.threads:
            return known
        fit, limit = sizes.resident(self.threads, self.registers, self.shared_bytes)
        waves = self.blocks / (fit * count)
        return known._replace(
            occupancy=min(fit * min(waves, 1.0) * self.threads / sizes.threads, 1.0),
            occupancy_limit="grid" if waves < 1 else limit,
            waves=waves,
        )


def _multiprocessors(device: Device, gpu: Gpu | None) -> tuple[Multiprocessor | None, int | None]:
    """Those of a device and their number; AMD's have compute capabilities in files too, and other sizes."""
    if gpu is None or gpu.compute_capability.startswith("gfx"):
        return None, None
    stated = device.compute_capability
    capability = f"{stated[0]}.{stated[1]}" if stated else gpu.compute_capability
    return MULTIPROCESSORS.get(capability), device.sm_count or gpu.sm_count
