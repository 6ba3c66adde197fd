"""Memory from a timeline's own events."""

import msgspec
import pytest

from profkit.memory import summarise_memory, summarise_trace_memory
from profkit.model import Device, MemoryEvents, Source, Trace
from profkit.model.report_memory import Memory, MemoryDevice, PhaseSpan
from profkit.readers.snapshot import history_of


def span(path, start_ns, end_ns):
    return PhaseSpan(path=path, start_ns=start_ns, end_ns=end_ns)


def trace(format_="kineto", **columns):
    count = len(columns["bytes"])
    events = MemoryEvents.of(
        count, **{"device": [0] * count, "time_ns": range(10, 10 * count + 10, 10)} | columns
    )
    return Trace(Source("t", format_, "tool"), [], devices=[Device(3)], memory=events)


def test_totals_of_the_allocator_are_the_curve():
    totals = {"total_allocated": [700, 1200, 200], "total_reserved": [2000, 4000, 4000]}
    section = summarise_trace_memory(
        trace(bytes=[200, 500, -1000], **totals), [span("a", 5, 25), span("a/b", 15, 25), span("c", 28, 99)]
    )

    assert section.devices == [
        MemoryDevice(
            id=3,
            peak_allocated_bytes=1200,
            peak_reserved_bytes=4000,
            peak_time_ns=20,
            fragmentation_bytes=3800,
        )
    ]
    assert section.curve[0].allocated_bytes == [500, 700, 1200, 200]
    assert [(r.path, r.peak_allocated_bytes, r.net_bytes) for r in section.by_phase] == [
        ("a", 1200, 700),
        ("a/b", 1200, 500),
        ("c", 1200, -1000),
    ]


def test_what_nsys_saw_is_memory_taken_from_cuda():
    section = summarise_trace_memory(trace("nsys", bytes=[300, 500, -300]))

    assert section.peak_allocated_bytes is None
    assert section.peak_reserved_bytes == 800


def test_frees_of_what_was_there_before_never_make_memory_negative():
    section = summarise_trace_memory(trace(bytes=[-300, 500, -100]))
    assert section.curve[0].allocated_bytes == [300, 0, 500, 400]


def test_host_memory_is_no_device_memory():
    assert summarise_trace_memory(trace(bytes=[300], device=[-1])) is None


@pytest.mark.parametrize("format_", ["kineto", "nsys"])
def test_the_section_keeps_its_types(format_):
    section = summarise_trace_memory(trace(format_, bytes=[300, -300]), [span("p", 0, 90)])
    written = msgspec.json.encode(section)
    assert msgspec.json.encode(msgspec.json.decode(written, type=Memory)) == written


def test_a_snapshot_without_marks_takes_the_phases_of_a_trace_of_its_process():
    rows = [
        {"action": "alloc", "addr": i * 512, "size": 512, "stream": 0, "time_us": 10 * i} for i in range(1, 5)
    ]
    history = history_of({"segments": [], "device_traces": [rows]}, "x")
    section = summarise_memory(
        history, phases=[span("forward", 15_000, 31_000), span("forward/loss", 30_000, 31_000)]
    )

    assert [(r.path, r.peak_allocated_bytes, r.net_bytes) for r in section.by_phase] == [
        ("forward", 1536, 1024),
        ("forward/loss", 1536, 512),
    ]
