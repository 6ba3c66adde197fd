"""Modules and functions against a search of the recording's own text, and small programs by hand."""

import gzip
import json
from collections import Counter, defaultdict

import pytest

from profkit.model import RangeKind
from profkit.report.assembly import summarise
from tests.builders import BACKWARD, TraceBuilder
from tests.shared import SHARED, needs_shared

STACKS = ["gpt_bf16_stack", "sync_item_stack"]
PYTHON = RangeKind.PYTHON


def events_of(file):
    return [
        e for e in json.loads(gzip.decompress(file.read_bytes()), strict=False)["traceEvents"] if "dur" in e
    ]


def forward_by_module(events):
    """Time and launches of each module's path, of what its own thread launched: by looking at everything around each launch."""
    modules = defaultdict(list)
    for e in events:
        if e["cat"] == "python_function" and e["name"].startswith("nn.Module: "):
            modules[e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"].removeprefix("nn.Module: ")))
    calls = {
        e["args"]["correlation"]: e
        for e in events
        if e["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
    }
    time, count = Counter(), Counter()
    for e in events:
        call = (
            calls.get(e.get("args", {}).get("correlation"))
            if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
            else None
        )
        if call is None:
            continue
        around = sorted(each for each in modules[call["tid"]] if each[0] <= call["ts"] < each[1])
        for depth in range(len(around)):
            path = "/".join(name for *_, name in around[: depth + 1])
            time[path] += e["dur"]
            count[path] += 1
    return time, count


@needs_shared
@pytest.mark.parametrize("name", STACKS)
def test_modules_have_what_was_launched_in_them(name):
    import profkit

    file = SHARED / "recordings" / "kineto" / f"{name}.json.gz"
    report = profkit.analyze(file)
    rows = [row for row in report.document.sources if row.kind == "module"]
    time, _ = forward_by_module(events_of(file))
    kept, steps = sum(s.kept for s in report.document.window.steps), len(report.document.window.steps)
    if kept == steps:
        forward = {row.name: (row.gpu_ns - row.gpu_backward_ns) / 1e3 for row in rows}
        assert forward == pytest.approx(dict(time), abs=0.01)
    assert rows
    inside = defaultdict(int)
    for row in rows:
        inside[row.name.rpartition("/")[0]] += row.gpu_ns
    for row in rows:
        assert row.gpu_ns == row.gpu_self_ns + inside[row.name]


def rows_of(made):
    return {(row.kind, row.name): row for row in summarise([made.trace()]).sources}


def test_a_function_that_calls_itself_counts_once():
    made = TraceBuilder()
    for start, end, name in ((0, 100, "a.py(1): main"), (10, 90, "a.py(5): walk"), (20, 80, "a.py(5): walk")):
        made.range(start, end, name, kind=PYTHON)
    made.kernel(200, 250, launch=(30, 34)).kernel(300, 310, launch=(5, 6))
    rows = rows_of(made)
    main, walk = rows["function", "a.py:1 main"], rows["function", "a.py:5 walk"]
    assert (main.count, main.gpu_ns, main.gpu_self_ns, main.host_ns) == (2, 60, 10, 5)
    assert (walk.count, walk.gpu_ns, walk.gpu_self_ns, walk.host_ns) == (1, 50, 50, 4)


def test_backward_belongs_to_the_module_of_its_forward():
    made = TraceBuilder()
    made.range(0, 100, "nn.Module: Net_0", kind=PYTHON).range(10, 50, "nn.Module: Linear_3", kind=PYTHON)
    made.range(0, 300, "forward")
    made.range(20, 30, "aten::mm", kind=RangeKind.OPERATOR, sequence=7)
    made.range(200, 230, "MmBackward0", thread=BACKWARD, kind=RangeKind.OPERATOR, sequence=7)
    made.kernel(300, 340, launch=(22, 23)).kernel(400, 480, launch=(210, 212), thread=BACKWARD)
    rows = rows_of(made)
    linear, net = rows["module", "Net_0/Linear_3"], rows["module", "Net_0"]
    assert (linear.gpu_ns, linear.gpu_self_ns, linear.gpu_backward_ns) == (120, 120, 80)
    assert (net.gpu_ns, net.gpu_self_ns, net.gpu_backward_ns, net.count) == (120, 0, 80, 2)


def test_nodes_of_a_graph_have_the_module_of_their_capture():
    made = TraceBuilder()
    made.range(0, 100, "nn.Module: Runner_0", kind=PYTHON)
    for at, module in ((200, "layers.0.wq"), (300, "layers.0.wk")):
        made.kernel(
            at, at + 50, launch=(10, 20) if at == 200 else None, graph_node=1, module=made.text(module)
        )
    made._operations[1]["correlation"] = made._operations[0]["correlation"]
    rows = rows_of(made)
    assert {name: row.gpu_ns for (_, name), row in rows.items()} == {
        "layers": 100, "layers/0": 100, "layers/0/wq": 50, "layers/0/wk": 50,
    }  # fmt: skip
    assert rows["module", "layers"].host_ns == 10


def test_without_frames_there_are_none():
    assert not rows_of(TraceBuilder().kernel(200, 250, launch=(30, 34)))
