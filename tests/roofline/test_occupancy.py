"""Occupancy and waves against the recorder's own figures, and against what fits by hand."""

import json
from gzip import decompress

import pytest

import profkit
from profkit.hardware.multiprocessor import MULTIPROCESSORS
from profkit.model import Device, RangeKind
from profkit.report.assembly import summarise
from tests.builders import TraceBuilder
from tests.shared import DATA, SHARED, needs_shared

OWN = sorted((DATA / "kineto").glob("*.json.gz"))
OTHERS = ["facebookresear__inputs__resnet_kineto", "facebookresear__nccl_parser_config__nccl_data"]
"""Of an A100 and of an older GPU."""


def kernels_as_recorded(file):
    """Kineto's figures for each kernel, from the text of the file alone."""
    events = json.loads(decompress(file.read_bytes()), strict=False)["traceEvents"]
    for event in events:
        args = event.get("args", {})
        if event.get("cat", "").lower() == "kernel" and "est. achieved occupancy %" in args:
            key = event["name"], tuple(args["grid"]), tuple(args["block"])
            sizes = args["registers per thread"], args["shared memory"]
            yield key, sizes, args["est. achieved occupancy %"], args["blocks per SM"]


def check(file):
    recorded = {}
    for key, sizes, occupancy, blocks in kernels_as_recorded(file):
        recorded.setdefault(key, set()).add((*sizes, occupancy, blocks))
    compared = 0
    for row in profkit.analyze(file).document.kernels:
        for registers, shared_bytes, occupancy, blocks in recorded.get((row.name, row.grid, row.block), ()):
            if (registers, shared_bytes) != (row.registers, row.shared_bytes):
                continue
            # The recorder says 0 where shared memory is over 48 KiB: it knows no kernel that asked for more.
            if occupancy:
                assert row.occupancy * 100 == pytest.approx(occupancy, abs=0.51)
                compared += 1
            # Of persistent products the tiles are counted.
            if row.mnk is None:
                assert row.waves <= blocks * 1.0001
                assert (row.waves < 1) == (row.occupancy_limit == "grid")
    assert compared


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_occupancy_is_what_the_recorder_computed(file):
    check(file)


@needs_shared
@pytest.mark.parametrize("name", OTHERS)
def test_occupancy_is_what_the_recorder_computed_on_other_gpus(name):
    check(SHARED / "corpus" / "kineto" / f"{name}.json.gz")


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared_bytes", "expected"),
    [
        ("9.0", 1024, 32, 0, (2, "threads")),
        ("9.0", 384, 168, 213_188, (1, "registers")),
        ("9.0", 32, 16, 0, (32, "blocks")),
        # 224 KiB of 228, less 1 KiB that the system keeps of every block.
        ("9.0", 128, 32, 56 * 1024, (4, "shared_memory")),
        ("8.9", 256, 32, 0, (6, "threads")),
        # A warp of 40 registers takes 1280: 12 of a partition's 16 Ki, 48 in all, 6 blocks of 8.
        ("8.0", 256, 40, 0, (6, "registers")),
        ("7.5", 256, 32, 32 * 1024, (2, "shared_memory")),
    ],
)
def test_what_fits_by_hand(capability, threads, registers, shared_bytes, expected):
    assert MULTIPROCESSORS[capability].resident(threads, registers, shared_bytes) == expected


def one_kernel(device, **columns):
    made = TraceBuilder()
    sides = {f"{part}_{axis}": 1 for part in ("grid", "block") for axis in "xyz"}
    made.kernel(0, 1000, launch=(0, 1), **sides | columns)
    made._devices = [device]
    (row,) = summarise([made.trace()]).kernels
    return row


def test_waves_count_the_grid_in_fillings_of_the_gpu():
    row = one_kernel(
        Device(0, "NVIDIA H100 80GB HBM3"), grid_x=297, block_x=1024, registers=32, shared_bytes=0
    )
    assert (row.waves, row.occupancy, row.occupancy_limit) == (297 / 264, 1.0, "threads")
    row = one_kernel(
        Device(0, "NVIDIA H100 80GB HBM3"), grid_x=66, block_x=1024, registers=32, shared_bytes=0
    )
    assert (row.waves, row.occupancy, row.occupancy_limit) == (0.25, 0.25, "grid")


def test_waves_of_a_persistent_product_are_those_of_its_tiles():
    made = TraceBuilder()
    texts = [made.text(json.dumps(each)) for each in ([[8192, 1024], [1024, 4000]], ["c10::BFloat16"] * 2)]
    made.range(0, 10, "aten::mm", kind=RangeKind.OPERATOR, shapes=texts[0], dtypes=texts[1])
    sides = {"grid_x": 2, "grid_y": 66, "grid_z": 1, "block_x": 384, "block_y": 1, "block_z": 1}
    name = "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
    made.kernel(20, 10_000, launch=(1, 2), name=name, registers=168, shared_bytes=213_188, **sides)
    (row,) = summarise([made.trace()]).kernels
    assert row.mnk == (8192, 4000, 1024)
    # 32 rows of 32 tiles, the last of each but a part, or 64 of 16: on 132 multiprocessors, a block on each.
    assert row.waves == 1024 / 132


@pytest.mark.parametrize(
    "device",
    [
        Device(0, "A GPU of the future"),
        # Kineto gives AMD's GPUs compute capabilities too.
        Device(0, "AMD Instinct MI250X", compute_capability=(9, 0), sm_count=110),
    ],
)
def test_occupancy_is_unknown_where_the_gpu_is(device):
    row = one_kernel(device, grid_x=264, block_x=1024, registers=32, shared_bytes=0)
    assert (row.registers, row.occupancy, row.occupancy_limit, row.waves) == (32, None, None, None)


def test_occupancy_is_unknown_without_registers():
    row = one_kernel(Device(0, "NVIDIA H100 80GB HBM3"), grid_x=264, block_x=1024, shared_bytes=0)
    assert (row.registers, row.occupancy, row.waves) == (None, None, None)
