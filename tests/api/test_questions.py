"""The tour of questions: every block runs and prints what stands below it, and its numbers are those of the raw file."""

import contextlib
import gzip
import io
import json
import re
import shlex
from collections import Counter, defaultdict

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from tests.shared import DATA

ROOT = DATA.parents[1]
TOUR = (ROOT / "examples" / "questions.md").read_text("utf-8")
COMMANDS = [
    (command, block)
    for block in re.findall(r"```console\n(.*?)```", TOUR, re.DOTALL)
    for command in re.findall(r"^\$ profkit (.*)$", block, re.MULTILINE)
]


def plain(text):
    """Text with its runs of blanks as one."""
    return re.sub(r"\s+", " ", text)


def test_every_python_block_prints_what_stands_below_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TOUR, re.DOTALL)
    names: dict[str, object] = {}
    for code, expected in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "questions.md", "exec"), names)
        assert out.getvalue() == expected, code
    assert len(blocks) == TOUR.count("```python") == 12


@pytest.mark.parametrize(("command", "block"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_every_command_prints_the_lines_below_it(command, block, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(main, shlex.split(command))
    shown = block.split(f"$ profkit {command}\n")[1].split("\n$ ")[0]

    assert done.exit_code == 0, done.output
    for line in shown.strip().splitlines():
        assert plain(line.strip()) in plain(done.output), line


@pytest.fixture(scope="module")
def raw():
    """Kernels of the raw file: name, duration in ns, and the marks that were open when each was launched."""
    events = json.loads(gzip.decompress((DATA / "run_gpt" / "trace.json.gz").read_bytes()))["traceEvents"]
    launches, kernels, marks = {}, [], defaultdict(list)
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            launches[event["args"].get("correlation")] = event
        elif event.get("cat") == "kernel":
            kernels.append(event)
        elif event.get("cat") == "user_annotation" and event["name"].startswith("profkit::"):
            marks[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"][9:]))
    everyone = [mark for each in marks.values() for mark in each]
    found = []
    for kernel in kernels:
        launch = launches[kernel["args"]["correlation"]]
        own = marks.get(launch["tid"]) or everyone  # an autograd thread has no marks of its own
        names = {name for start, end, name in own if start <= launch["ts"] < end}
        found.append((kernel["name"], round(kernel["dur"] * 1000), names))
    return found


@pytest.mark.parametrize("phase", ["forward", "backward", "softmax", "scores", "value", "mlp", "optimizer"])
def test_a_phase_s_kernels_are_those_of_the_raw_file(phase, raw):
    table = profkit.analyze(DATA / "run_gpt" / "trace.json.gz", phase=phase).kernels
    expected_ns, expected_count = Counter(), Counter()
    for name, ns, phases in raw:
        if phase in phases:
            expected_ns[name] += ns
            expected_count[name] += 1

    assert table.groupby("name")["total_ns"].sum().to_dict() == pytest.approx(expected_ns, abs=50)
    assert table.groupby("name")["count"].sum().to_dict() == expected_count


def test_the_first_kernel_and_the_share_of_products_are_those_of_the_raw_file(raw):
    forward = Counter()
    for name, ns, phases in raw:
        if "forward" in phases:
            forward[name] += ns
    (first, ns), *_ = forward.most_common(1)
    launches = sum(name == first and "forward" in phases for name, _, phases in raw)
    products = sum(
        ns for name, ns in forward.items() if "gemm" in name.lower() and "splitk" not in name.lower()
    )

    assert f"{ns / 3 / 1e3:.1f} us in {launches // 3} launches" in TOUR
    assert f"forward {products / sum(forward.values()):.0%}, backward" in TOUR


def test_flop_of_attention_are_those_of_its_sizes():
    batch, heads, context, width, layers = 8, 4, 128, 32, 2
    product = 2 * batch * heads * context * context * width * layers

    assert f"{product / 1e6:6.1f} MFLOP" in TOUR
