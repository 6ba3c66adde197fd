"""What the reader makes of NVTX ranges, in small exports that are each about one thing."""

import json

import numpy as np
import pytest

from profkit.model import RangeKind
from tests.readers.nsys_by_hand import THREAD, Export, codes, names, read


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "report.sqlite")


# --- ranges


@pytest.mark.parametrize(
    ("text", "name", "sequence", "shapes"),
    [
        ("aten::mm, seq = 12", "aten::mm", 12, None),
        ("aten::mm, op_id = 5", "aten::mm", -1, None),
        ("aten::mm, seq = 3, sizes = [[2, 3], [], [-1]]", "aten::mm", 3, [[2, 3], [], [-1]]),
        ("aten::mm, seq = 3, op_id = 9, sizes = [[2]], input_op_ids = [(0,-1), (4,0)]", "aten::mm", 3, [[2]]),
        ("aten::mm, op_id = 9, input_op_ids = [(0,-1)]", "aten::mm", -1, None),
        ("block, part 2, seq = 7, op_id = 1", "block, part 2", 7, None),
        ("aten::mm", "aten::mm", -1, None),
        (
            "autograd::engine::evaluate_function: MmBackward0",
            "autograd::engine::evaluate_function: MmBackward0",
            -1,
            None,
        ),
    ],
)
def test_operators_of_emit_nvtx_are_taken_apart(export, text, name, sequence, shapes):
    # twice, and once more of the same operator: the second and third go the short way
    trace = read(
        export.nvtx(text, 10, 20).nvtx(text, 30, 40).nvtx(text.replace("seq = 3", "seq = 4"), 50, 60)
    )
    assert names(trace, trace.ranges) == [name] * 3
    assert trace.ranges.kind.tolist() == [RangeKind.OPERATOR] * 3
    assert trace.ranges.sequence.tolist()[:2] == [sequence] * 2
    assert [json.loads(text) if text else None for text in trace.names(trace.ranges.shapes)] == [shapes] * 3


@pytest.mark.parametrize(
    "text",
    [
        "my_range, seq of things = maybe",
        "x, seq = twelve",
        "x, op_id = 3, sizes = [[1, 2], oh]",
        "x, op_id = 3, sizes = [[1]",
        "x, op_id = 3 and more",
        ", seq = 4",
        "x, seq = 99999999999999999999",
    ],
)
def test_texts_that_only_look_like_operators_stay_whole(export, text):
    export.nvtx("x, op_id = 3, sizes = [[1]]", 1, 2).nvtx(text, 10, 20)
    trace = read(export)
    assert names(trace, trace.ranges)[1] == text
    assert trace.ranges.kind[1] == RangeKind.ANNOTATION


def test_names_of_other_domains_are_not_understood(export):
    export.nvtx("profkit", 0, None, kind=75, domainId=4)
    export.nvtx("loss, seq = 3", 10, 20, domainId=4).nvtx("aten::mm", 30, 40, domainId=7)
    trace = read(export)
    assert names(trace, trace.ranges) == ["loss, seq = 3", "aten::mm"]
    assert trace.names(trace.ranges.domain).tolist() == ["profkit", "domain 7"]
    assert set(trace.ranges.kind.tolist()) == {RangeKind.ANNOTATION}
    assert trace.ranges.sequence.tolist() == [-1, -1]


def test_domains_of_two_processes_keep_their_own_names(export):
    other = THREAD + (1 << 24)
    export.nvtx("NCCL", 0, None, kind=75, domainId=1).nvtx(
        "CCCL", 0, None, kind=75, domainId=1, globalTid=other
    )
    export.nvtx("a", 10, 20, domainId=1).nvtx("b", 30, 40, domainId=1, globalTid=other)
    trace = read(export)
    assert trace.names(trace.ranges.domain).tolist() == ["NCCL", "CCCL"]


def test_what_says_a_phase_s_work_is_no_phase(export):
    export.nvtx("profkit", 0, None, kind=75, domainId=1).nvtx("weighted_sum", 9, 30, domainId=1)
    trace = read(export.nvtx("profkit.work flop=8 bytes=64", 10, 11, domainId=1))
    assert names(trace, trace.ranges) == ["weighted_sum", "profkit.work flop=8 bytes=64"]
    assert trace.names(trace.ranges.domain).tolist() == ["profkit", ""]


def test_marked_phases_are_recognised_in_the_default_domain(export):
    trace = read(export.nvtx("profkit::forward, op_id = 3", 10, 20).nvtx("other", 30, 40))
    assert names(trace, trace.ranges) == ["forward", "other"]
    assert trace.names(trace.ranges.domain).tolist() == ["profkit", ""]
    assert trace.ranges.kind.tolist() == [RangeKind.ANNOTATION] * 2


def test_a_phase_that_left_two_ranges_counts_once(export):
    export.nvtx("profkit", 0, None, kind=75, domainId=1).nvtx("forward", 9, 21, domainId=1)
    trace = read(export.nvtx("profkit::forward, op_id = 3", 10, 20))
    phases = (trace.names(trace.ranges.domain) == "profkit") & (trace.ranges.kind == RangeKind.ANNOTATION)
    assert np.count_nonzero(phases) == 1


def test_open_ranges_end_with_the_last_event(export):
    trace = read(export.nvtx("open", 10, None).kernel("k", 50, 90))
    assert trace.ranges.end_ns.tolist() == [90]
    assert "ranges-open" in codes(trace)


def test_marks_are_no_ranges(export):
    trace = read(export.nvtx("mark", 10, None, kind=34).nvtx("range", 10, 20))
    assert names(trace, trace.ranges) == ["range"]


def test_imported_ranges_and_start_end_ranges(export):
    trace = read(export.nvtx("a", 10, 20, kind=70).nvtx("b", 10, 20, kind=71).nvtx("c", 10, 20, kind=60))
    assert trace.ranges.kind.tolist() == [RangeKind.ANNOTATION, RangeKind.START_END, RangeKind.START_END]


@pytest.mark.parametrize("odd", ["new\nline", "unit\x1fseparator", "nul\x00inside", "emoji 🙂", "a,b"])
def test_odd_texts_stay_with_their_rows(export, odd):
    trace = read(export.nvtx("first", 10, 20).nvtx(odd, 30, 40).nvtx(None, 50, 60).nvtx("last", 70, 80))
    assert names(trace, trace.ranges) == ["first", odd, "<unnamed>", "last"]


def test_texts_that_are_not_unicode_are_kept_readable(export):
    export.kernel(b"kern\xff\xfeel", 10, 20)
    export.nvtx("x", 10, 20)
    export.connection.execute("UPDATE NVTX_EVENTS SET text = CAST(X'61ff62' AS TEXT)")
    trace = read(export)
    assert names(trace, trace.operations) == ["kern\ufffd\ufffdel"]
    assert names(trace, trace.ranges) == ["a\ufffdb"]
