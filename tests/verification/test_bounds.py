"""What a brute force may cost: it holds the text once, and its events, whatever the length of the recording."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import DATA

BENCH = Path(__file__).parents[2] / "reports" / "bench"
SCRIPT = """
import re, sys
from profkit.verification.inputs import read_input
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak()
recording = read_input(sys.argv[1], None)
print(len(recording.ops), peak() - before)
"""


@pytest.fixture(scope="module")
def long_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        kineto, nsys = (importlib.import_module(name) for name in ("make_kineto", "make_nsys"))
        kineto.make(DATA / "kineto" / "gpt_bf16.json.gz", folder / "long.json", mb=20)
        nsys.make(BENCH / "data" / "emit_gpt_bf16.sqlite.gz", folder / "long.sqlite", replicas=8)
    return folder


@pytest.mark.parametrize("name", ["long.json", pytest.param("long.sqlite", marks=pytest.mark.slow)])
def test_memory_is_a_few_times_the_input(long_files, name):
    file = long_files / name
    size = file.stat().st_size
    assert size > 19e6
    done = subprocess.run([sys.executable, "-c", SCRIPT, file], capture_output=True, text=True, check=True)
    operations, kibibytes = map(int, re.findall(r"\d+", done.stdout))
    assert operations > 5000
    assert kibibytes * 1024 < 3 * size + (16 << 20)
