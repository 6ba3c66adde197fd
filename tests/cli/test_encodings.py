"""Whatever the names in a recording and the encoding of the terminal: no traceback, nothing that obeys a file."""

import gzip
import json
import os
import pickle
import re
import subprocess
import sys

import pytest

from tests.fuzz.grown import numerics_file
from tests.shared import DATA

HOSTILE = "=\x1b[31m\x9b2J\u202eé×\u2066\u4e2d\x07\r\n"
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
ENCODINGS = [
    "utf-8", "cp1252", "latin-1", "cp437", "cp850", "cp1251", "koi8-r", "shift_jis", "gbk", "euc-kr", "utf-16", "cp037",
]  # fmt: skip
COMMANDS = [
    ["analyze", "trace.json"], ["analyze", "trace.json", "--json"], ["analyze", "trace.json", "--format", "md"],
    ["analyze", "trace.json", "--format", "csv"], ["compare", "trace.json", "trace.json"],
    ["gate", "trace.json", "--baseline", "trace.json"], ["whatif", "trace.json"], ["show", "kept.db#1"],
    ["history", "--db", "kept.db"], ["export", "trace.json", "-o", "é\u202e.json.gz"], ["doctor"], ["hardware"],
    ["analyze", "\u202e\x1b[2J.json"], ["analyze", "memory.pickle"], ["fit", "memory.pickle"],
    ["analyze", "numerics.json"], ["compare", "numerics.json", "other.json"], ["scrub", "memory.pickle", "-o", "\u202e"],
    ["mcp", "\u202e\x1b[2J"], ["try", "--", "\u202e\x1b[2J"],
]  # fmt: skip
SCRIPT = """
import contextlib, io, json, sys
from profkit.cli import main

for encoding, line in json.loads(sys.argv[1]):
    buffers = io.BytesIO(), io.BytesIO()
    sys.stdout, sys.stderr = (io.TextIOWrapper(buffer, encoding) for buffer in buffers)
    try:
        main(line, standalone_mode=True)
    except SystemExit as done:
        code = done.code
    sys.stdout.flush(), sys.stderr.flush()
    told = [buffer.getvalue().decode(encoding) for buffer in buffers]
    print(json.dumps([encoding, line, code, *told]), file=sys.__stdout__)
"""


def _renamed(value):
    """The same with each name of code, file or tensor made hostile."""
    if isinstance(value, dict):
        named = ("name", "filename", "model", "dtype")
        return {
            k: v + HOSTILE if k in named and isinstance(v, str) else _renamed(v) for k, v in value.items()
        }
    return [_renamed(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What each command prints in each encoding: encoding, command, exit code, output, errors."""
    folder = tmp_path_factory.mktemp("hostile")
    trace = json.loads(gzip.decompress((DATA / "kineto/elementwise_chain.json.gz").read_bytes()))
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and not event["name"].startswith("ProfilerStep"):
            event["name"] += HOSTILE
    (folder / "trace.json").write_text(json.dumps(trace))
    snapshot = pickle.loads(gzip.decompress((DATA / "run_gpt/memory.pickle.gz").read_bytes()))
    (folder / "memory.pickle").write_bytes(pickle.dumps(_renamed(snapshot), 4))
    numerics = json.loads(json.dumps(numerics_file()))  # no part of it twice
    (folder / "other.json").write_text(json.dumps(numerics))
    (folder / "numerics.json").write_text(json.dumps(_renamed(numerics)))
    lines = [["utf-8", ["analyze", "trace.json", "-q", "--db", "kept.db", "--tag", f"name={HOSTILE}"]]]
    lines += [[encoding, command] for command in COMMANDS for encoding in ENCODINGS]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(lines)],
        cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert not done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(lines)
    return told[1:]


@pytest.mark.slow
def test_no_encoding_ends_in_a_traceback(runs):
    expected = {tuple(command): code for _, command, code, *_ in runs if _ is not None}
    assert {code for _, _, code, *_ in runs} <= {0, 1}
    for encoding, command, code, output, errors in runs:
        assert code == expected[tuple(command)], (encoding, command)
        assert output or errors


@pytest.mark.slow
def test_nothing_that_controls_a_terminal_is_printed(runs):
    for encoding, command, _, *told in runs:
        for text in told:
            assert not (found := CONTROLS.search(text)), (
                encoding,
                command,
                text[max(found.start() - 40, 0) :][:80],
            )


@pytest.mark.slow
def test_json_is_the_same_in_every_encoding(runs):
    reports = {output for _, command, _, output, _ in runs if command[-1] == "--json"}
    (report,) = map(json.loads, reports)
    assert any("é×" in row["name"] for row in report["kernels"])


@pytest.mark.slow
def test_what_an_encoding_lacks_is_replaced(runs):
    latin = next(
        output for encoding, command, _, output, _ in runs if (encoding, command) == ("latin-1", COMMANDS[0])
    )
    whole = next(
        output for encoding, command, _, output, _ in runs if (encoding, command) == ("utf-8", COMMANDS[0])
    )
    assert "é×" in latin
    assert "\u4e2d" in whole
    assert "\u4e2d" not in latin
