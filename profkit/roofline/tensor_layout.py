"""Bytes of the kernels around a convolution that bring images into its layout and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from profkit.model.kernel_class import KernelClass
from profkit.model.work import Image, Work
from profkit.roofline.launch_shape import Launch
from profkit.roofline.operator_shapes import Tensor, element_bytes
from profkit.roofline.thresholds import INSTRUCTIONS, SECTOR_BYTES

__all__ = ["converted", "image_of", "layout_work", "padded"]

_ALIGNED_BYTES = 16
"""What a matrix kernel loads at once, so that an image's channels are padded to it."""
_SIDE = 32
"""Pixels and channels that a block of cuDNN's conversions turns: its grid has a block for each, and each image."""


def padded(channels: int, size: float) -> float:
    """Channels over channels after padding to whole loads."""
    together = max(int(_ALIGNED_BYTES // size), 1)
    return math.ceil(channels / together) * together / max(channels, 1)


def image_of(shape: Sequence[int]) -> Image:
    """A tensor of NCHW, NCL or NCDHW as images, channels and pixels."""
    return shape[0], shape[1], math.prod(shape[2:])


def layout_work(
    kernel: KernelClass, x: Tensor, inputs: Sequence[Image], results: Sequence[Image]
) -> Work | None:
    """What is known without the grid: of a conversion the images that it may be about, of padding all."""
    size = element_bytes(x.dtype or kernel.dtype)
    if "addpadding" in kernel.function:
        wide = x.nbytes(kernel.dtype)
        return Work(0.0, wide, wide * padded(x.shape[1], size), role="pad")
    role = {"nchwtonhwc": "to", "nhwctonchw": "back"}.get(kernel.function.removesuffix("kernel"))
    images = tuple(inputs if role == "to" else results)
    return Work(role=role, whole=True, images=images, size=size) if role else None


def converted(work: Work, launch: Launch) -> Work | None:
    """The same with the bytes of the image whose grid it is; None where no image has this grid, or two unlike ones.

    A pixel narrower than a sector is written in parts, so that the sector is read first. Blocks turn their places also
    where there are no channels for them.
    """
    alike = {image for image in work.images if launch.grid == _grid_of(image)}
    if len(alike) != 1:
        return None
    count, channels, pixels = alike.pop()
    work = replace(work, instructions=launch.blocks * _SIDE**2 * INSTRUCTIONS["turned"])
    plain = count * channels * pixels * work.size
    wide = plain * padded(channels, work.size)
    if work.role == "back":
        return replace(work, read_bytes=wide, write_bytes=plain)
    filled = wide if wide < SECTOR_BYTES * count * pixels else 0.0
    return replace(work, read_bytes=plain + filled, write_bytes=wide)


def _grid_of(image: Image) -> tuple[int, int, int]:
    count, channels, pixels = image
    return math.ceil(pixels / _SIDE), math.ceil(channels / _SIDE), count
