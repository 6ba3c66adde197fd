"""Many files on the workers of a cluster, and files that lie elsewhere."""

import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event

import fsspec
import pytest

import profkit
from profkit.errors import AnalysisError, ReadError
from profkit.report import FileSummary, workers
from profkit.report.many_files import summarise_many
from profkit.report.views import Options
from profkit.report.workers import Failure, Task, work_on
from tests.shared import DATA

RANK_0 = DATA / "kineto" / "ddp_rank0.json.gz"
RANK_1 = DATA / "kineto" / "ddp_rank1.json.gz"
SMALL = DATA / "kineto" / "sync_item.json.gz"

# Dask's own housekeeping: sockets and loops of closed clusters that the collector meets later.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def codes(report):
    return {f.code: f for f in report.document.health.findings}


@pytest.fixture
def folder(tmp_path):
    """Eight ranks of which one is damaged; another is not there."""
    document = json.loads(gzip.decompress(SMALL.read_bytes()))
    for rank in range(8):
        own = {**document, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 9}}
        if rank != 5:
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(own))
    (tmp_path / "rank5.json").write_bytes(b"\x00\x01 no trace at all")
    return tmp_path


def test_a_cluster_reports_the_good_ranks_and_tells_of_the_others(folder):
    files = [folder / f"rank{rank}.json" for rank in range(9)]
    report = profkit.analyze(files, cluster="local")
    assert [row.rank for row in report.document.devices] == [0, 1, 2, 3, 4, 6, 7]
    failed = [f.message for f in report.document.health.findings if f.code == "file-failed"]
    assert len(failed) == 2
    assert failed[0].startswith("rank5.json: ")
    assert "no such file" in failed[1]
    assert report.document.health.ok is False
    alone = profkit.analyze([f for f in files if f.name not in ("rank5.json", "rank8.json")])
    assert report.document.totals == alone.document.totals
    assert report.document.verdict.shares == alone.document.verdict.shares
    assert codes(report)["ranks-missing"].count == 2
    report.as_dict()


def test_where_no_local_worker_starts_this_process_does_the_work(folder, monkeypatch):
    def late(*_):
        raise TimeoutError("Nanny failed to start in 60 seconds")

    monkeypatch.setattr("profkit.report.workers._local_cluster", late)
    report = profkit.analyze(
        [folder / "rank0.json", folder / "rank1.json", folder / "rank5.json"], cluster="local"
    )

    assert [row.rank for row in report.document.devices] == [0, 1]
    assert codes(report)["file-failed"].count == 1


class Deadly(Options):
    """Options that end every process that unpickles them, except the one that made them."""

    def __reduce__(self):
        return _end_elsewhere, (os.getpid(),)


def _end_elsewhere(pid):
    if os.getpid() != pid:
        os._exit(1)
    return Deadly()


def test_a_worker_that_dies_takes_no_other_file_with_it():
    """The files that waited for the same worker are done by another."""
    tasks = [Task(path=str(SMALL), options=Options()) for _ in range(8)]
    tasks[2] = Task(path=str(SMALL.with_name("deadly.json")), options=Deadly())
    with workers._Local(2) as local:
        local._cluster.result()
        found = dict(local.run(tasks))
    assert sorted(found) == list(range(8))
    assert isinstance(found[2], Failure)
    assert found[2].message.startswith("deadly.json: it failed on the cluster: its worker died")
    assert all(isinstance(found[at], FileSummary) for at in range(8) if at != 2)


def test_another_cluster_on_this_machine_is_no_trouble():
    """Dask warns when its usual port is taken, and here warnings are errors."""
    with socket.socket() as other:
        with suppress(OSError):  # taken already
            other.bind(("127.0.0.1", 8787))
            other.listen()
        with workers._local_cluster(0, 10**9) as cluster:
            assert cluster.scheduler.http_server.port != 8787


def test_while_workers_start_this_process_works(folder, monkeypatch):
    """Each file is done once, here or there."""
    started = Event()
    begin = workers._local_cluster

    def slowly(*how):
        started.wait(60)
        return begin(*how)

    monkeypatch.setattr(workers, "_local_cluster", slowly)
    tasks = [Task(path=str(folder / f"rank{rank}.json"), options=Options()) for rank in range(8)]
    with workers._Local(2) as local:
        found = {}
        for at, result in local.run(tasks):
            assert at not in found
            found[at] = result
            if len(found) == 3:
                assert not local._cluster.done()
                started.set()
                local._cluster.result()
    assert sorted(found) == list(range(8))
    assert [at for at, result in found.items() if isinstance(result, Failure)] == [5]


def test_workers_that_start_too_late_are_not_waited_for_before_the_report_is_right(folder, monkeypatch):
    """All files are done before the workers are there."""
    started = Event()
    monkeypatch.setattr(workers, "_local_cluster", lambda *_: started.wait(60) and _cluster())
    tasks = [Task(path=str(folder / f"rank{rank}.json"), options=Options()) for rank in range(4)]
    with workers._Local(2) as local:
        found = dict(local.run(tasks))
        assert not local._cluster.done()
        started.set()
    assert sorted(found) == [0, 1, 2, 3]


def test_neither_this_process_nor_its_workers_import_what_the_files_do_not_need():
    """pandas takes longer to import than a trace to summarise."""
    code = (
        "import sys; from profkit.report import workers\n"
        "if __name__ == '__main__':\n"
        "    with workers._Local(1) as local:\n"
        "        with local._started() as workers:\n"
        "            there = workers._client.run(lambda: 'pandas' in __import__('sys').modules)\n"
        "    print('pandas' in sys.modules, *there.values())\n"
    )
    found = _printed(code)
    if "True" in found and _printed(_VERSIONS_OF_DASK) == ["True"]:
        pytest.skip("this Dask imports pandas to tell its version")
    assert found == ["False", "False"]


_VERSIONS_OF_DASK = "import sys; from distributed.versions import get_versions; get_versions(); print('pandas' in sys.modules)"
"""How workers and scheduler greet each other: until 2023 by importing each package that they name."""


def _printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_cluster_at_an_address_gives_what_one_process_gives():
    with _cluster() as cluster:
        there = profkit.analyze([RANK_0, RANK_1], cluster=cluster.scheduler_address)
    here = profkit.analyze([RANK_0, RANK_1])
    assert there.document.ranks == here.document.ranks
    assert there.verdict == here.verdict


def _cluster():
    from distributed import LocalCluster

    return LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")


def test_a_scheduler_that_is_not_there_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("profkit.report.workers._CONNECT_TIMEOUT", "1s")
    with pytest.raises(AnalysisError, match="no scheduler answers"):
        profkit.analyze([SMALL, SMALL], cluster="tcp://127.0.0.1:1")


def test_only_damaged_files_are_an_error(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\x00\x01\x02")
    with pytest.raises(
        ReadError, match=r"^a\.json: it cannot be analysed, nor can the 1 others: it is binary data"
    ):
        summarise_many([str(tmp_path / "a.json"), str(tmp_path / "b.json")], Options())


def test_a_file_that_is_larger_than_a_worker_may_hold_is_a_failure():
    found = work_on(Task(path=str(RANK_0), options=Options(), expand_limit=100_000))
    assert isinstance(found, Failure)
    assert "expands to more than" in found.message


@pytest.fixture
def memory():
    """A bucket that lives in memory."""
    fs = fsspec.filesystem("memory")
    for path in (RANK_0, RANK_1):
        fs.pipe(f"/run/{path.name}", path.read_bytes())
    fs.pipe("/run/notes.txt", b"nothing to read")
    yield "memory://run"
    fs.rm("/run", recursive=True)


@pytest.mark.parametrize("pattern", ["", "/*.json.gz", "/ddp_rank?.json.gz"])
def test_remote_folders_and_patterns_are_read(memory, pattern):
    report = profkit.analyze(memory + pattern)
    assert [row.rank for row in report.document.ranks] == [0, 1]
    assert report.document.ranks == profkit.analyze([RANK_0, RANK_1]).document.ranks
    assert [row.path for row in report.document.inputs] == [RANK_0.name, RANK_1.name]


def test_a_remote_database_is_read(tmp_path):
    shutil.copy(DATA / "nsys" / "sync_item.sqlite.gz", tmp_path)
    report = profkit.analyze(f"file://{tmp_path}/sync_item.sqlite.gz")
    assert report.document.inputs[0].format == "nsys"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("memory://nowhere/x.json", "no such file"),
        ("memory://nowhere/*.json", "no file matches"),
        ("nosuchprotocol://bucket/x.json", "cannot be read"),
    ],
)
def test_what_is_not_there_is_one_clear_line(path, words):
    with pytest.raises(ReadError, match=words):
        profkit.analyze(path)


def test_a_report_beside_its_export_is_not_read_again(tmp_path):
    shutil.copy(DATA / "nsys" / "sync_item.sqlite.gz", tmp_path / "report.sqlite.gz")
    (tmp_path / "report.nsys-rep").write_bytes(b"the same recording")
    report = profkit.analyze(tmp_path)
    assert [row.path for row in report.document.inputs] == ["report.sqlite.gz"]
    assert repr(report) == f"<Report: {report.verdict.sentence}>"


def test_a_local_pattern_is_expanded(tmp_path):
    for path in (RANK_0, RANK_1):
        shutil.copy(path, tmp_path)
    assert len(profkit.analyze(str(Path(tmp_path) / "*rank*.gz")).document.inputs) == 2
