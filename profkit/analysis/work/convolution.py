"""FLOP and bytes of convolutions and of both their gradients.

Forward: 2 · (elements of the output) · (input channels of a group) · (elements of the kernel); transposed ones
take the input's elements. Each gradient costs as much, grouped ones too (torch.utils.flop_counter counts a
grouped weight gradient ``groups`` times). Bias is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from profkit.analysis.work.names import Family, KernelClass
from profkit.analysis.work.shapes import Call, Tensor, element_bytes
from profkit.analysis.work.work import Work

__all__ = ["CONVOLUTION_MODELS"]

_TILE_CHANNELS = 64


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
        if (
            kernel.family not in (Family.CONVOLUTION, Family.GEMM)
            or not x
            or not weight
            or len(x.shape) != len(weight.shape)
        ):
            return None
        transposed = (
            bool(arguments.transposed)
            if isinstance(arguments.transposed, bool)
            else bool(call.flag(arguments.transposed))
        )
        out = _output_elements(call, arguments, x, weight, transposed)
        if out is None:
            return None
        spread = x.numel if transposed else out
        per_element = weight.shape[1] * math.prod(weight.shape[2:])
        known = math.nan if kernel.family is Family.GEMM else 1.0  # transforms' data is not known
        return Work(
            flop=2.0 * spread * per_element,
            read_bytes=known * (x.nbytes(kernel.dtype) + weight.nbytes(kernel.dtype)),
            write_bytes=known * out * element_bytes(x.dtype or kernel.out_dtype),
            dtype=x.dtype,
            executed=_padding(kernel, weight, (call.integers(arguments.groups) or (1,))[0]),
        )

    return model


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
        if (
            kernel.family not in (Family.CONVOLUTION, Family.GEMM)
            or not g
            or not i
            or not w
            or len(w.shape) < 3
        ):
            return None
        turned = bool(call.flag(transposed)) if transposed is not None else False
        flop = 2.0 * (i.numel if turned else g.numel) * w.shape[1] * math.prod(w.shape[2:])
        gb, ib, wb = g.nbytes(kernel.dtype), i.nbytes(kernel.dtype), w.nbytes(kernel.dtype)
        direction = _direction(kernel.function)
        executed = _padding(kernel, w, max(1, i.shape[1] // max(w.shape[1], 1)))
        if direction == "dgrad":
            return Work(flop, gb + wb, ib, role="dgrad", dtype=g.dtype, executed=executed)
        if direction == "wgrad":
            return Work(flop, gb + ib, wb, role="wgrad", dtype=g.dtype, executed=executed)
        if kernel.family is Family.GEMM:
            gb = ib = wb = math.nan  # an algorithm by transforms (FFT, im2col): what they write is not known
        both = "True, True" in call.scalar(len(call.inputs) - 1) or not call.scalars
        scale = 2 if both else 1
        return Work(
            scale * flop, scale * (gb + (ib + wb) / 2), scale * (ib + wb) / 2, role="either", dtype=g.dtype
        )

    return model


def _padding(kernel: KernelClass, weight: Tensor, groups: int) -> float:
    """Matrix units multiply tiles of channels: small groups share a tile, whose other blocks are zeros."""
    if groups <= 1 or kernel.tensor_core is not True:
        return 1.0
    return float(max(1, min(groups, _TILE_CHANNELS // max(weight.shape[0] // groups, 1))))


def _direction(function: str) -> str | None:
    if (
        "wgrad" in function
        or "wrw" in function
        or "grad_weight" in function
        or "bwdweight" in function.replace("_", "")
    ):
        return "wgrad"
    if (
        "dgrad" in function
        or "depthwise2d_backward" in function
        or "bwddata" in function.replace("_", "")
        or "igemm_bwd" in function
    ):
        return "dgrad"
    return None


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
    "convolution_backward": _backward(0, 1, 2, transposed=7),
    "convolution_backward_overrideable": _backward(0, 1, 2, transposed=6),
}
"""By operator name without ``aten::``."""
