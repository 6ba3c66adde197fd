"""Cards: dense peaks by data type, bandwidth, and the fixed costs of a kernel."""

from profkit.hardware.gpu import DTYPE_BYTES, OVERHEAD_NS, QUEUE_NS, TENSOR, TENSOR_HALF, VECTOR, Gpu
from profkit.hardware.peaks_file import load_peaks
from profkit.hardware.table import RATE_COLUMNS, all_gpus, find_gpu

__all__ = [
    "DTYPE_BYTES",
    "OVERHEAD_NS",
    "QUEUE_NS",
    "RATE_COLUMNS",
    "TENSOR",
    "TENSOR_HALF",
    "VECTOR",
    "Gpu",
    "all_gpus",
    "find_gpu",
    "load_peaks",
]
