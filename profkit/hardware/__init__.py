"""GPUs: dense peaks by data type, bandwidth, and the fixed costs of a kernel."""

from profkit.hardware.gpu import DTYPE_BYTES, OVERHEAD_NS, QUEUE_NS, TENSOR, TENSOR_HALF, VECTOR, Gpu
from profkit.hardware.kept import calibration_path, keep_calibration, kept_calibration
from profkit.hardware.lookup import find_gpu, stated_gpu
from profkit.hardware.peaks_file import load_peaks
from profkit.hardware.table import RATE_COLUMNS, all_gpus

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
    "calibration_path",
    "find_gpu",
    "keep_calibration",
    "kept_calibration",
    "load_peaks",
    "stated_gpu",
]
