"""Names of parallelism, small buckets, and what streams do not overlap."""

from dataclasses import replace

import numpy as np
import pytest

from profkit.model import Collectives, CopyKind, RangeKind
from profkit.model.report_ranks import Parallelism, StreamRow
from profkit.ranks.parallelism import merge_parallelism
from profkit.ranks.streams import stream_findings
from profkit.readers import read
from profkit.rendering.sentences.ranks import FINDINGS as RANKS
from profkit.rendering.sentences.wording import say
from tests.builders import BACKWARD, GEMM, MAIN, NCCL, TraceBuilder
from tests.ranks.jobs import COMM_STREAM, MS, US, Rank, job
from tests.ranks.reports import summarise
from tests.shared import DATA, SHARED, needs_shared

ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"


def kinds(trace):
    return {row.kind: row.basis for row in summarise([trace]).method.ranks.parallelism}


def findings(trace):
    return {f.code: f for f in summarise([trace]).health.findings}


def program(*names, range_name=None, thread=BACKWARD, kind=RangeKind.ANNOTATION, devices=1):
    """One step that launches each kernel four times, on its own stream."""
    builder = TraceBuilder(format="kineto", devices=devices)
    at = 1000
    for _ in range(4):
        for place, name in enumerate(names):
            for device in range(devices):
                launch = (at, at + 10)
                who = thread if "nccl" in name else MAIN
                builder.kernel(
                    at + 100, at + 200, launch=launch, name=name, thread=who, stream=7 + place, device=device
                )
                at += 300
    builder.range(0, at + 1000, "ProfilerStep#1")
    if range_name:
        builder.range(500, at, range_name, kind=kind)
    return builder.trace()


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("DistributedDataParallel.forward", RangeKind.ANNOTATION, "DDP"),
        ("DataParallel.forward", RangeKind.ANNOTATION, "DataParallel"),
        ("FSDP::pre_forward (blocks.0)", RangeKind.ANNOTATION, "FSDP2"),
        ("fsdp::all_gather_copy_in", RangeKind.OPERATOR, "FSDP2"),
        ("FullyShardedDataParallel._pre_backward_hook", RangeKind.ANNOTATION, "FSDP"),
        ("FSDP::backward_prefetch for 1", RangeKind.ANNOTATION, "FSDP2"),
        ("FSDP::root_post_backward_callback", RangeKind.ANNOTATION, "FSDP2"),
        ("RedistributeBackward", RangeKind.OPERATOR, "tensor parallel"),
        ("PP:1B2", RangeKind.ANNOTATION, "pipeline parallel"),
        ("PP:0SEND_F3", RangeKind.ANNOTATION, "pipeline parallel"),
    ],
)
def test_a_kind_is_named_by_the_ranges_that_torch_opens(name, kind, expected):
    assert kinds(program(GEMM, range_name=name, kind=kind)) == {expected: "named"}


def test_a_name_that_only_contains_another_is_not_taken_for_it():
    assert kinds(program(GEMM, range_name="MyDataParallel.forward")) == {}
    assert kinds(program(GEMM, range_name="notFSDP::pre_forward")) == {}
    assert kinds(program(GEMM, range_name="PP: my phase")) == {}
    # FSDP2 redistributes norms of gradients, without autograd.
    assert kinds(program(GEMM, range_name="Redistribute", kind=RangeKind.OPERATOR)) == {}


@pytest.mark.parametrize(
    ("group", "expected"), [("mesh_cp (2)", {"context parallel": "named"}), (None, None)]
)
def test_a_ring_of_context_parallelism_is_no_pipeline(group, expected):
    made = job([Rank(0, compute_ns=(MS,) * 4)], name=SEND_RECV)[0]
    trace = _said(made, {"name": "send", "group": group or "0"})
    assert kinds(trace) == (expected or {"pipeline parallel": "inferred"})


@pytest.mark.parametrize(
    ("kernels", "thread", "expected"),
    [
        ((GEMM, NCCL), BACKWARD, "data parallel"),
        ((GEMM, NCCL), MAIN, "tensor parallel"),
        ((GEMM, ALL_GATHER, REDUCE_SCATTER), BACKWARD, "sharded data parallel"),
        ((GEMM, SEND_RECV), MAIN, "pipeline parallel"),
    ],
)
def test_without_names_the_mix_of_collectives_tells(kernels, thread, expected):
    assert kinds(program(*kernels, thread=thread)) == {expected: "inferred"}


def test_one_process_that_broadcasts_to_its_devices_is_data_parallel_of_the_old_kind():
    assert kinds(program(GEMM, BROADCAST, thread=MAIN, devices=2)) == {"DataParallel": "inferred"}


def test_a_single_device_is_not_parallel():
    assert kinds(program(GEMM)) == {}


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("mesh_tp (3)", "tensor parallel"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor parallel"),
        ("mesh_pp (2)", "pipeline parallel"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert parallel"),
        ("default_pg (0)", None),
        ("https_group", None),
    ],
)
def test_a_group_tells_what_it_is_for(group, expected):
    trace = job([Rank(0)], name=ALL_GATHER, group=group)[0]
    assert kinds(trace) == ({expected: "named"} if expected else {})


def test_a_name_wins_over_a_guess_of_another_rank():
    guess = [Parallelism(kind="data parallel", basis="inferred")]
    name = [Parallelism(kind="DDP", basis="named")]
    assert [row.kind for row in merge_parallelism([guess, name])] == ["DDP"]


def test_many_small_all_reduces_are_told_from_few_large_ones():
    small = job([Rank(0, compute_ns=(50 * US,) * 40)], transfer_ns=20 * US)[0]
    assert "small-buckets" in findings(small)
    long = job([Rank(0, compute_ns=(1 * MS,) * 40)], transfer_ns=500 * US)[0]
    assert "small-buckets" not in findings(long)
    few = job([Rank(0, compute_ns=(50 * US,) * 4)], transfer_ns=20 * US)[0]
    assert "small-buckets" not in findings(few)


@pytest.mark.parametrize(("elements", "told"), [(100_000, True), (6_000_000, False)])
def test_known_bytes_decide_about_buckets(elements, told):
    said = dict(name="allreduce", dtype="Float", group="0", group_size=2)
    sizes = dict(in_elements=elements, out_elements=elements)
    trace = _said(job([Rank(0, compute_ns=(1 * MS,) * 40)])[0], said | sizes)
    assert ("small-buckets" in findings(trace)) is told


def _said(trace, columns):
    """A trace of a job whose file says this of every collective."""
    rows = np.flatnonzero(trace.operations.stream == COMM_STREAM)
    strings, values = [*trace.strings], {}
    for key, value in columns.items():
        if isinstance(value, str):
            strings.append(value)
        values[key] = np.full(len(rows), len(strings) - 1 if isinstance(value, str) else value)
    return replace(trace, strings=strings, collectives=Collectives.of(len(rows), operation=rows, **values))


def test_the_buckets_of_ddp_are_large():
    assert "small-buckets" not in findings(read(DATA / "kineto" / "ddp_rank0.json.gz"))


def streams(copy_stream, copy_beside_compute=False):
    builder = TraceBuilder(format="kineto")
    at = 0
    for _ in range(10):
        builder.kernel(at + 100, at + 1100, launch=(at, at + 10), stream=7)
        start = at + (200 if copy_beside_compute else 1200)
        builder.copy(start, start + 500, launch=(at + 20, at + 30), stream=copy_stream, kind=CopyKind.HTOD)
        at += 2000
    return builder.range(0, at, "ProfilerStep#1").trace()


def test_copies_on_the_compute_stream_are_told_with_their_time():
    finding = findings(streams(7))["copies-on-compute-stream"]
    assert finding.count == 10
    (row,) = summarise([streams(7)]).method.ranks.streams
    assert row.ns == 10 * 500


def test_the_time_of_several_devices_says_how_many_they_are():
    one, both = (
        stream_findings(
            [
                StreamRow(device=at, kind="copies", stream=7, ns=40_000, count=1, window_ns=10**6)
                for at in devices
            ]
        )
        for devices in ([0], [0, 1])
    )
    assert "Up to 40.0 µs (4.0 % of the window)" in say(RANKS[one[0].code], one[0].params)
    assert "Up to 80.0 µs on 2 devices (4.0 % of the window)" in say(RANKS[both[0].code], both[0].params)


@pytest.mark.parametrize("beside", [True, False])
def test_copies_on_a_stream_of_their_own_are_no_finding(beside):
    assert "copies-on-compute-stream" not in findings(streams(13, beside))


@pytest.mark.parametrize(("shift", "told"), [(1000, True), (300, False)])
def test_two_streams_that_take_turns_are_told(shift, told):
    builder = TraceBuilder(format="kineto")
    for number in range(10):
        at = number * 3000
        builder.kernel(at + 100, at + 1100, launch=(at, at + 10), stream=7)
        builder.kernel(at + 100 + shift, at + 1000 + shift, launch=(at + 20, at + 30), stream=20)
    trace = builder.range(0, 30000, "ProfilerStep#1").trace()
    assert ("streams-take-turns" in findings(trace)) is told


def test_a_collective_on_the_compute_stream_cannot_overlap():
    trace = job([Rank(0)], transfer_ns=5 * MS)[0]
    operations = replace(trace.operations, stream=trace.operations.stream * 0 + 7)
    assert "collectives-on-compute-stream" in findings(replace(trace, operations=operations))
    assert "collectives-on-compute-stream" not in findings(trace)


@needs_shared
@pytest.mark.shared
def test_fsdp2_is_recognised_in_somebody_elses_export():
    path = SHARED / "corpus" / "nsys" / "gindachen__fixtures__h100_2gpu_1s.sqlite"
    assert kinds(read(path)) == {"FSDP2": "named"}


@pytest.mark.parametrize(
    ("name", "kind", "basis"),
    [
        ("ddp", "DDP", "named"),
        ("fsdp", "FSDP", "named"),
        ("fsdp2", "FSDP2", "named"),
        ("tensor", "tensor parallel", "named"),
        ("dataparallel", "DataParallel", "named"),
        ("pipeline", "pipeline parallel", "inferred"),
    ],
)
def test_traces_of_torch_itself_are_named(name, kind, basis):
    """Recorded with reports/ranks/record.py on two CPUs over gloo: the names are those of the GPU's."""
    assert kinds(read(DATA / "ranks" / f"gloo_{name}_rank0.json.gz")) == {kind: basis}
