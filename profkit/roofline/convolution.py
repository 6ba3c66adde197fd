"""FLOP and bytes of convolutions and of both their gradients.

Forward: 2 · (elements of the output) · (input channels of a group) · (elements of the kernel); transposed ones
take the input's elements. Each gradient costs as much, grouped ones too (torch.utils.flop_counter counts a
grouped weight gradient ``groups`` times). Bias is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes
from profkit.roofline.tensor_layout import image_of, layout_work, padded
from profkit.roofline.thresholds import INSTRUCTIONS, SECTOR_BYTES

__all__ = ["CONVOLUTION_MODELS", "GRADIENTS", "convolution_results"]

_TILE_CHANNELS, _FEWEST_CHANNELS = 64, 8
_BAND_TILES = 4
_NATIVE = re.compile(r"first_layer|align[abc]?[124](?!\d)")
"""Names of matrix kernels that take a few channels as they are; the others want them padded to 16 bytes."""
_HELPERS = ("helper", "offsets", "workspace")


@dataclass(frozen=True)
class _Arguments:
    """Where an operator's schema has its lists."""

    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int | bool
    output_padding: int | None = None


def _forward(arguments: _Arguments) -> Callable[[Call, KernelClass], Work | None]:
    def model(call: Call, kernel: KernelClass) -> Work | None:
        x, weight = call.tensor(0), call.tensor(1)
        if not x or not weight or len(x.shape) != len(weight.shape) or len(x.shape) < 3:
            return None
        transposed = (
            arguments.transposed
            if isinstance(arguments.transposed, bool)
            else call.flag(arguments.transposed)
        )
        out = _output_elements(call, arguments, x, weight, bool(transposed))
        if out is None and call.result:
            out = float(math.prod(call.result))
        if out is None:
            return None
        stored = _stored(kernel)
        out_bytes = out * element_bytes(x.dtype or kernel.out_dtype or stored)
        groups = (call.integers(arguments.groups) or (1 if transposed else _groups(x, weight),))[0]
        if kernel.family is Family.LAYOUT:
            outputs = weight.shape[1] * groups if transposed else weight.shape[0]
            result = (x.shape[0], outputs, round(out / max(x.shape[0] * outputs, 1)))
            return layout_work(kernel, x, [image_of(x.shape), image_of(weight.shape)], [result])
        if not _multiplies(kernel):
            return None
        spread = x.numel if transposed else out
        known = _known(kernel, weight)
        image_bytes = x.nbytes(stored) * _padding(kernel, x, groups)
        return Work(
            flop=2.0 * spread * weight.shape[1] * math.prod(weight.shape[2:]),
            read_bytes=known * (image_bytes + weight.nbytes(stored)),
            write_bytes=known * out_bytes,
            dtype=x.dtype,
            executed=_executed(kernel, weight, groups, "fprop"),
            repeated=(image_bytes, _bands(kernel, weight.shape[0]) - 1.0),
            instructions=_instructions(kernel, weight, out),
        )

    return model


def _stored(kernel: KernelClass) -> str | None:
    """The type of tensors whose type nobody wrote.

    PyTorch gives depthwise convolutions to cuDNN in 16 bits only (use_cudnn_depthwise in Convolution.cpp), whose
    kernels do not name their type; its own name theirs.
    """
    return kernel.dtype or ("bf16" if kernel.is_depthwise else None)


def _groups(x: Tensor, weight: Tensor) -> int:
    return max(1, x.shape[1] // max(weight.shape[1], 1))


def _multiplies(kernel: KernelClass) -> bool:
    """Kernels that do the convolution's products; sums of partial results and offsets tables are small."""
    helper = (
        kernel.is_winograd_pass
        or kernel.adds_partial_sums
        or any(word in kernel.function for word in _HELPERS)
    )
    return kernel.family in (Family.CONVOLUTION, Family.GEMM) and not helper


def _known(kernel: KernelClass, weight: Tensor) -> float:
    """NaN for a product that works on transformed data (FFT, im2col), whose size is not known; else 1."""
    return math.nan if kernel.family is Family.GEMM and math.prod(weight.shape[2:]) > 1 else 1.0


def _instructions(kernel: KernelClass, weight: Tensor, elements: float) -> float:
    """A depthwise kernel checks borders and computes offsets for every tap of every element."""
    return 0.0 if kernel.is_matrix else elements * math.prod(weight.shape[2:]) * INSTRUCTIONS["tap"]


def _padding(kernel: KernelClass, x: Tensor, groups: int) -> float:
    """How much larger a matrix kernel finds an image than it is: few channels come padded."""
    if not kernel.tensor_core or groups > 1 or _NATIVE.search(kernel.function):
        return 1.0
    return padded(x.shape[1], element_bytes(x.dtype or kernel.dtype))


def _bands(kernel: KernelClass, channels: int) -> float:
    """Times that CUTLASS goes over the image: its blocks take the result's channels in bands of four tiles.

    GemmIdentityThreadblockSwizzle<4> in cutlass/gemm/threadblock/threadblock_swizzle.h numbers them so.
    """
    if kernel.vendor != "cutlass" or not kernel.tile:
        return 1.0
    return float(math.ceil(math.ceil(channels / kernel.tile[1]) / _BAND_TILES))


def _output_elements(
    call: Call, arguments: _Arguments, x: Tensor, weight: Tensor, transposed: bool
) -> float | None:
    rank = len(x.shape) - 2
    stride, padding, dilation = (
        _spread(call.integers(position), rank)
        for position in (arguments.stride, arguments.padding, arguments.dilation)
    )
    if stride is None or padding is None or dilation is None or min(stride) < 1:
        return None
    groups = (call.integers(arguments.groups) or (1,))[0]
    sides = []
    for axis in range(rank):
        reach = dilation[axis] * (weight.shape[2 + axis] - 1)
        if transposed:
            more = (
                _spread(call.integers(arguments.output_padding), rank)
                if arguments.output_padding is not None
                else None
            )
            side = (
                (x.shape[2 + axis] - 1) * stride[axis]
                - 2 * padding[axis]
                + reach
                + 1
                + (more[axis] if more else 0)
            )
        else:
            side = (x.shape[2 + axis] + 2 * padding[axis] - reach - 1) // stride[axis] + 1
        sides.append(max(side, 0))
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return float(x.shape[0] * channels * math.prod(sides))


def _spread(values: tuple[int, ...] | None, rank: int) -> tuple[int, ...] | None:
    """One value stands for every axis."""
    if values is None or len(values) not in (1, rank):
        return None
    return values * rank if len(values) == 1 else values


def _backward(
    grad: int, x: int, weight: int, transposed: int | None
) -> Callable[[Call, KernelClass], Work | None]:
    """Both gradients; a kernel's name says which it computes, else it shares what no named kernel has."""

    def model(call: Call, kernel: KernelClass) -> Work | None:
        g, i, w = call.tensor(grad), call.tensor(x), call.tensor(weight)
        if not g or not i or not w or not len(g.shape) == len(i.shape) == len(w.shape) >= 3:
            return None
        gb, ib, wb = (tensor.nbytes(_stored(kernel)) for tensor in (g, i, w))
        if kernel.family is Family.LAYOUT:
            images = [image_of(tensor.shape) for tensor in (g, i, w)]
            return layout_work(kernel, i, images[:2], images[1:])
        if not _multiplies(kernel):
            return None
        groups, stride = _groups(i, w), call.integers(4) or _steps(i, g)
        ib *= _padding(kernel, i, groups)
        turned = bool(call.flag(transposed)) if transposed is not None else False
        flop = 2.0 * (i.numel if turned else g.numel) * w.shape[1] * math.prod(w.shape[2:])
        direction, known = kernel.gradient, _known(kernel, w)
        phases = _phases(stride) if direction == "dgrad" and "strided" in kernel.function else 1.0
        read, written, scale = gb + wb, ib, 1.0
        if direction == "wgrad":
            read, written = gb + ib, wb
        elif direction is None:
            scale = 2.0 if "True, True" in call.scalar(len(call.inputs) - 1) or not call.scalars else 1.0
            read, written = scale * (gb + (ib + wb) / 2), scale * (ib + wb) / 2
        elif phases > 1:
            again = _half_sectors(stride, ib / max(i.numel // max(i.shape[1], 1), 1))
            read, written = read + again * written, max(again, 1.0) * written
        return Work(
            scale * flop, known * read, known * written, role=direction or "either", dtype=g.dtype,
            executed=_executed(kernel, w, groups, direction or ""), repeated=(gb, phases - 1.0), instructions=_instructions(kernel, w, g.numel),
        )  # fmt: skip

    return model


def _steps(x: Tensor, result: Tensor) -> tuple[int, ...]:
    """The stride by the sizes of input and result, where it is not written."""
    sides = zip(x.shape[2:], result.shape[2:], strict=False)
    return tuple(max(1, round(side / max(stepped, 1))) for side, stepped in sides)


def _phases(stride: tuple[int, ...]) -> float:
    """A strided gradient of the input is computed phase by phase, and each phase reads the result's gradient."""
    return float(math.prod(stride)) if stride and min(stride) >= 1 else 1.0


def _half_sectors(stride: tuple[int, ...], pixel_bytes: float) -> float:
    """How often the phases write, and so first read, a sector that holds several narrow pixels; 0 where none is shared."""
    shared = min(float(stride[-1]), SECTOR_BYTES / max(pixel_bytes, 1.0))
    return shared if shared > 1 else 0.0


def _executed(kernel: KernelClass, weight: Tensor, groups: int, direction: str) -> float:
    """Arithmetic that Tensor Cores execute for each useful operation.

    They multiply tiles. Small groups share a tile of channels, whose other blocks are zeros; few channels are
    padded to the tile's depth for every tap (forward), or to its narrow side (gradient of the input).
    """
    if kernel.tensor_core is None or (kernel.tensor_core is False and groups > 1):
        return 1.0
    inputs, outputs = weight.shape[1], weight.shape[0] // max(groups, 1)
    if groups > 1:
        return float(max(1, min(groups, _TILE_CHANNELS // max(outputs, 1))))
    narrow, deep = (min(kernel.tile[:2]), kernel.tile[2]) if kernel.tile else (_FEWEST_CHANNELS, 0)
    padded = narrow if direction == "dgrad" else deep or (_FEWEST_CHANNELS if kernel.tensor_core else inputs)
    return padded / inputs if 0 < inputs < _FEWEST_CHANNELS else 1.0


GRADIENTS = ("convolution_backward", "convolution_backward_overrideable")
"""Operators that compute them, without ``aten::``; the result's gradient, the input and the weight come first."""


def convolution_results(gradients: Iterable[Call]) -> dict[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The results' shapes by those of input and weight, as the gradients tell them.

    A recording without stride and padding (emit_nvtx's) has them there only. Input and weight that meet with two
    strides are left out.
    """
    found: dict[tuple[tuple[int, ...], ...], set[tuple[int, ...]]] = {}
    for call in gradients:
        result, x, weight = (call.tensor(position) for position in range(3))
        if result and x and weight:
            found.setdefault((x.shape, weight.shape), set()).add(result.shape)
    return {key: next(iter(shapes)) for key, shapes in found.items() if len(shapes) == 1}


_PLAIN = _Arguments(stride=3, padding=4, dilation=5, groups=8, transposed=6, output_padding=7)
_CUDNN = _Arguments(stride=3, padding=2, dilation=4, groups=5, transposed=False)
_CUDNN_TRANSPOSED = _Arguments(stride=4, padding=2, dilation=5, groups=6, transposed=True, output_padding=3)
_MIOPEN = _Arguments(stride=4, padding=3, dilation=5, groups=6, transposed=False)

CONVOLUTION_MODELS: dict[str, Callable[[Call, KernelClass], Work | None]] = {
    "convolution": _forward(_PLAIN),
    "_convolution": _forward(_PLAIN),
    "convolution_overrideable": _forward(_PLAIN),
    "cudnn_convolution": _forward(_CUDNN),
    "cudnn_convolution_transpose": _forward(_CUDNN_TRANSPOSED),
    "miopen_convolution": _forward(_MIOPEN),
    "miopen_depthwise_convolution": _forward(_MIOPEN),
    "_conv_depthwise2d": _forward(_Arguments(stride=4, padding=5, dilation=6, groups=-1, transposed=False)),
    "conv_depthwise3d": _forward(_Arguments(stride=4, padding=5, dilation=6, groups=-1, transposed=False)),
    "_slow_conv2d_forward": _forward(
        _Arguments(stride=4, padding=5, dilation=-1, groups=-1, transposed=False)
    ),
    GRADIENTS[0]: _backward(0, 1, 2, transposed=7),
    GRADIENTS[1]: _backward(0, 1, 2, transposed=6),
}
"""By operator name without ``aten::``."""
