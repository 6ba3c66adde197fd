"""Files elsewhere: a file system may raise anything, anywhere, and it is one clear line."""

import io
import time
from typing import ClassVar

import fsspec
import pytest
from click.testing import CliRunner
from fsspec import AbstractFileSystem

import profkit
from profkit.cli import main
from profkit.cli.analyze import _stem
from profkit.errors import ReadError
from profkit.readers import read
from profkit.readers.remote import is_remote, list_remote, shown_name, without_secrets
from profkit.report.views import Options
from profkit.report.workers import Failure, Task, work_on
from tests.shared import DATA

NAMES = ("run/rank0.json.gz", "run/rank1.json.gz")
RANK = (DATA / "kineto" / "ddp_rank0.json.gz").read_bytes()


class ClientError(Exception):
    """As botocore's: a root of its own."""


class SilentError(Exception):
    """Says nothing."""


class OddFiles(AbstractFileSystem):
    """Two ranks in a folder, on a file system that raises what it is told to, where it is told to."""

    protocol = "odd"
    cachable = False
    at: ClassVar[str | None] = None
    error: ClassVar[Exception | None] = None
    broken: ClassVar[str] = ""
    """Which files it concerns."""

    def check(self, where, path=""):
        if self.at == where and self.broken in path:
            raise self.error

    def isdir(self, path):
        self.check("isdir")
        return path.rstrip("/") == "run"

    def ls(self, path, detail=True, **kwargs):
        self.check("ls")
        return list(NAMES)

    def glob(self, path, **kwargs):
        self.check("glob")
        return list(NAMES)

    def open(self, path, mode="rb", **kwargs):
        self.check("open", path)
        return Opened(self, path)


class Opened:
    """A file that may break as it is read, further on, or as it is closed; it comes in pieces of 10 kB."""

    def __init__(self, fs, path):
        self._fs, self._path, self._file, self._reads = fs, path, io.BytesIO(RANK), 0

    def read(self, size=-1):
        self._reads += 1
        self._fs.check("read" if self._reads == 1 else "read on", self._path)
        return self._file.read(min(size, 10_000))

    def close(self):
        self._fs.check("close", self._path)


@pytest.fixture
def odd(monkeypatch):
    """Sets what the file system does: ``odd("read", error)``."""
    fsspec.register_implementation("odd", OddFiles, clobber=True)

    def set_to(at, error, broken=""):
        for name, value in (("at", at), ("error", error), ("broken", broken)):
            monkeypatch.setattr(OddFiles, name, value)

    return set_to


ERRORS = [
    (ClientError("An error occurred (403) when calling GetObject: Forbidden\nRequest id 12"), "ClientError: An error"),
    (SilentError(), "SilentError"),
    (ImportError("Install s3fs to access S3"), "Install s3fs"),
    (PermissionError("Access Denied"), "Access Denied"),
    (TimeoutError(), "TimeoutError"),
    (ConnectionResetError(104, "Connection reset by peer"), "Connection reset"),
    (RuntimeError("Session is closed"), "RuntimeError: Session is closed"),
    (KeyError("Contents"), "KeyError: 'Contents'"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "invalid start byte"),
    (RecursionError("maximum recursion depth exceeded"), "RecursionError"),
    (ClientError("x" * 100_000), "xxx"),
    (ClientError("\x1b[31mred\x07"), "ClientError"),
]  # fmt: skip


@pytest.mark.parametrize("where", ["open", "read", "read on"])
@pytest.mark.parametrize(
    ("error", "words"), ERRORS, ids=[type(e).__name__ + str(n) for n, (e, _) in enumerate(ERRORS)]
)
def test_whatever_a_file_system_raises_about_a_file_is_one_line(odd, where, error, words):
    odd(where, error)
    with pytest.raises(ReadError) as raised:
        read("odd://run/rank0.json.gz")
    text = str(raised.value)
    assert text.startswith("odd://run/rank0.json.gz: it cannot be read: ")
    assert words in text
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 600


@pytest.mark.parametrize(
    ("path", "where"), [("odd://run", "isdir"), ("odd://run", "ls"), ("odd://run/*.gz", "glob")]
)
@pytest.mark.parametrize(("error", "words"), ERRORS[:4], ids=["client", "silent", "import", "permission"])
def test_whatever_a_file_system_raises_about_a_folder_is_one_line(odd, path, where, error, words):
    odd(where, error)
    with pytest.raises(ReadError, match="it cannot be read") as raised:
        profkit.analyze(path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("where", ["open", "read on", "isdir"])
def test_the_command_line_ends_with_one_line_and_no_traceback(odd, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd(where, ClientError("An error occurred (403)"))
    path = "odd://run" if where == "isdir" else "odd://run/rank0.json.gz"
    result = CliRunner().invoke(main, ["analyze", path])
    assert result.exit_code == 1
    assert "ClientError: An error occurred (403)" in result.output
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_breaks_is_no_damaged_file(odd):
    """Half of a trace is not analysed as if its writer had died."""
    odd("read on", ConnectionResetError(104, "Connection reset by peer"))
    with pytest.raises(ReadError, match="Connection reset"):
        read("odd://run/rank0.json.gz")


def test_one_file_that_breaks_is_a_finding_and_the_others_are_reported(odd):
    odd("open", ClientError("gone"), broken="rank1")
    report = profkit.analyze("odd://run")
    failed = [f.message for f in report.document.health.findings if f.code == "file-failed"]
    assert len(failed) == 1
    assert failed[0].startswith("rank1.json.gz: it cannot be read: ClientError: gone")
    assert [row.path for row in report.document.inputs] == ["rank0.json.gz"]


def test_an_error_as_a_file_is_closed_costs_nothing(odd):
    odd("close", ClientError("too late"))
    assert len(read("odd://run/rank0.json.gz").operations)


def test_a_worker_returns_the_failure_and_not_the_error(odd):
    odd("read", ClientError("An error occurred (403)"))
    found = work_on(Task(path="odd://run/rank0.json.gz", options=Options()))
    assert isinstance(found, Failure)
    assert found.message.startswith("rank0.json.gz: it cannot be read: ClientError: An error occurred (403)")


def test_out_of_memory_keeps_its_own_line(odd):
    odd("read on", MemoryError())
    with pytest.raises(ReadError, match="memory"):
        read("odd://run/rank0.json.gz")


SIGNED = "https://user:word@host.example/run/rank0.json.gz?X-Amz-Signature=abc123&X-Amz-Credential=me"


def test_signatures_and_passwords_are_never_shown():
    assert shown_name(SIGNED) == "rank0.json.gz"
    assert shown_name("/runs/what?is=this.json") == "what?is=this.json"
    assert without_secrets(f"403, url='{SIGNED}'") == "403, url='https://host.example/run/rank0.json.gz'"
    assert without_secrets("s3://bucket/run/*.json") == "s3://bucket/run/*.json"


def test_a_report_is_not_named_after_a_signature():
    signed = "https://host.example/run/rank0.json.gz?Credential=AK/2026/request&Signature=abc123"
    assert _stem(signed) == "rank0"
    assert _stem("s3://bucket/run/*.json") == "run"


def test_an_error_that_quotes_a_signed_address_does_not_give_it_away(odd):
    odd("open", ClientError(f"403, message='Forbidden', url={SIGNED}"))
    with pytest.raises(ReadError) as raised:
        read("odd://run/rank0.json.gz?X-Amz-Signature=abc123")
    assert "abc123" not in str(raised.value)
    found = work_on(Task(path="odd://run/rank0.json.gz?X-Amz-Signature=abc123", options=Options()))
    assert "abc123" not in found.name + found.message
    assert "word" not in found.message


def test_the_question_mark_of_a_web_address_is_no_pattern():
    assert list_remote(SIGNED, (".json.gz",)) == [SIGNED]


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "s3://" * 40_000, "a://b@" * 30_000, "http://" + "@" * 200_000]
)
def test_long_texts_of_errors_take_no_time(text):
    started = time.process_time()
    without_secrets(text)
    assert time.process_time() - started < 2


def test_a_file_is_not_asked_whether_it_is_a_folder(odd):
    """A page of the web would be read as a whole to tell."""
    odd("isdir", ClientError("must not be asked"))
    assert list_remote("odd://run/rank0.json.gz", (".json.gz",)) == ["odd://run/rank0.json.gz"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/x", True), ("filecache::s3://bucket/x", True), ("C:/runs/x.json", False),
        ("C:\\runs\\x.json", False), ("/runs/a:b.json", False), ("memory://x", True), ("abfs+ssl://x/y", True),
    ],
)  # fmt: skip
def test_what_counts_as_remote(path, expected):
    assert is_remote(path) is expected


def test_a_trace_that_comes_in_pieces_is_whole(odd):
    """The file system gives 10 kB at a time."""
    assert read("odd://run/rank0.json.gz").operations.start_ns.tolist() == (
        read(DATA / "kineto" / "ddp_rank0.json.gz").operations.start_ns.tolist()
    )
