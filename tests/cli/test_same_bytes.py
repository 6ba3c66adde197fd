"""The same input makes the same bytes, in every format.

Whatever the hash seed, the folder, the time zone, the locale, the terminal's width, and what the process did before.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.shared import DATA

pytestmark = pytest.mark.xdist_group("same bytes")  # made once, which takes longest

INPUTS = {
    **{
        f"kineto {name}": [f"kineto/{name}.json.gz"] for name in ("sync_item", "tiny_mlp", "dataloader_stall")
    },
    **{f"nsys {name}": [f"nsys/{name}.sqlite.gz"] for name in ("sync_item", "ddp", "elementwise_chain")},
    **{f"snapshot {name}": [f"snapshot/{name}.pickle.gz"] for name in ("sync_item", "leak", "fragmentation")},
    "ranks": ["kineto/ddp_rank0.json.gz", "kineto/ddp_rank1.json.gz"],
    "trace and snapshot": ["kineto/sync_item.json.gz", "snapshot/sync_item.pickle.gz"],
}
SCRIPT = """
import json, pathlib, sys
import profkit
from click.testing import CliRunner
from profkit.cli import main

def write(name, content):
    pathlib.Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())

def printed(*line):
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes

inputs = json.loads(sys.argv[1])
reports = {}
for name, files in inputs.items():
    report = reports[name] = profkit.analyze(files)
    for format in ("html", "json", "md", "text", "csv"):
        write(f"{name}.{format}", report.render(format))
    if not name.startswith("snapshot"):
        printed("export", *files, "-o", f"{name}.timeline.json.gz")
    if name.startswith("kineto"):
        write(f"{name}.whatif", printed("whatif", *files, "--json"))
compared = profkit.compare(reports["nsys sync_item"], reports["nsys elementwise_chain"])
for format in ("html", "json", "md", "text"):
    write(f"compared.{format}", compared.render(format))
write("ddp.printed", printed("analyze", *inputs["nsys ddp"]))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two folders with the same files, made in as different circumstances as there may be."""
    places = {name: [str(DATA / file) for file in files] for name, files in INPUTS.items()}
    backwards = dict(reversed(places.items()))
    folders = []
    for inputs, circumstances in (
        (places, {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "80"}),
        (
            backwards,
            {"PYTHONHASHSEED": "77", "TZ": "Asia/Kolkata", "LC_ALL": "C", "COLUMNS": "47", "HOME": "/"},
        ),
    ):
        folder = tmp_path_factory.mktemp("made")
        subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(inputs)],
            cwd=folder,
            env=os.environ | circumstances,
            check=True,
        )
        folders.append({file.name: file.read_bytes() for file in folder.iterdir()})
    return folders


@pytest.mark.slow
def test_as_many_files_are_made(made):
    first, second = made
    assert first.keys() == second.keys()
    assert len(first) >= 5 * len(INPUTS) + 8 + 3 + 4 + 2


@pytest.mark.parametrize(
    "suffix", ["html", "json", "md", "text", "csv", "timeline.json.gz", "whatif", "printed"]
)
def test_the_bytes_are_the_same(made, suffix):
    first, second = ({k: v for k, v in files.items() if k.endswith(suffix)} for files in made)
    assert first
    assert [name for name in first if first[name] != second[name]] == []
    assert all(first.values())
