"""Each `profkit ...` of a page that bundled recordings can stand in for is run, in the order of the page."""

import gzip
import json
import shutil

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from profkit.saved_runs import History
from tests.fuzz.grown import numerics_file
from tests.packaging.conftest import ROOT
from tests.packaging.test_docs import QUOTED
from tests.packaging.test_documented_commands import COMMANDS, arguments
from tests.shared import DATA

PROGRAMS = ("record", "try", "benchmark")
"""Commands that run someone's program, with torch: tests/recording and tests/trial run them."""
ELSEWHERE = {command for command, _ in (each.values for each in QUOTED)}
EXIT_CODES = {"profkit gate trace.json.gz --min-busy 80%": 3}
"""The trace that stands in is of a step that waits for the host. All else ends with 0."""


def is_run(page, line):
    return (
        page.endswith(".md")
        and arguments(line)[0] not in PROGRAMS
        and "s3://" not in line
        and line not in ELSEWHERE
    )


PAGES = {}
for command, page in {line: page for page, line in reversed(COMMANDS)}.items():
    if is_run(page, command):
        PAGES.setdefault(page, []).insert(0, command)  # where it comes first; docs/commands.md has the help


def unpack(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.decompress((DATA / source).read_bytes()))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Recordings, reports and a history under the names that the pages use."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("report", "runs/profkit/report"):
        unpack("nsys/sync_item.sqlite.gz", folder / f"{name}.sqlite")
    for name in ("before", "after", "new", "branch", "branch2", "step/report"):
        unpack("nsys/elementwise_chain.sqlite.gz", folder / f"{name}.sqlite")
    for place in (folder, folder / "runs/today"):
        unpack("snapshot/sync_item.pickle.gz", place / "snapshot.pickle")
        shutil.copy(DATA / "kineto/sync_item.json.gz", place / "trace.json.gz")
    unpack("kineto/sync_item.json.gz", folder / "trace.json")
    for name in ("counters.csv", "counters.ncu.csv"):
        unpack("ncu/mixed.csv.gz", folder / name)
    (folder / "runs/profkit/numerics.json").write_text(json.dumps(numerics_file()))
    (folder / "tests").symlink_to(ROOT / "tests")

    kept = profkit.analyze([folder / "before.sqlite", folder / "snapshot.pickle"])
    for name in ("report.json", "main.json"):
        kept.save(folder / name)
    earlier = profkit.analyze(folder / "report.sqlite").document
    with History(folder / "profkit.db", create=True) as history:
        for document in [earlier] * 11 + [kept.document]:
            last = history.save(document, tags={"branch": "main"})
        history.set_baseline("main", last)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_its_order(page, desk, tmp_path, monkeypatch):
    shutil.copytree(desk, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    for line in PAGES[page]:
        done = CliRunner().invoke(main, arguments(line), input="")
        assert done.exit_code == EXIT_CODES.get(line, 0), f"{line}\n{done.output}{done.exception!r}"
        _, piped, path = line.partition("| jq ")
        if piped:
            value = json.loads(done.stdout)
            for key in path.removeprefix("-r ").strip(" .").split("."):
                value = value[key]
            assert value


def test_most_commands_are_run():
    assert sum(map(len, PAGES.values())) > 50
