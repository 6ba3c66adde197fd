"""``profkit mcp``, as the package's own client sees it."""

import asyncio
import json
import os
import shutil
import sys

import pytest

from tests.shared import DATA

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters, stdio_client

from profkit.api.serving import Desk, server
from profkit.errors import ReadError

TOOLS = ["analyze", "kernels", "phases", "what_if", "fit", "compare"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder that is served, with a link out of it, and a file beside it."""
    place = tmp_path_factory.mktemp("mcp")
    folder = place / "runs"
    folder.mkdir()
    shutil.copy(DATA / "kineto/sync_item_stack.json.gz", folder / "trace.json.gz")
    shutil.copy(DATA / "snapshot/leak.pickle.gz", folder / "memory.pickle.gz")
    shutil.copy(DATA / "kineto/tiny_mlp.json.gz", place / "secret.json.gz")
    (folder / "link.json.gz").symlink_to(place / "secret.json.gz")
    (folder / "leaky").mkdir()
    (folder / "leaky" / "out.json.gz").symlink_to(place / "secret.json.gz")
    (folder / "told").mkdir()
    shutil.copy(DATA / "kineto/sync_item.json.gz", folder / "told" / "trace.json.gz")
    shutil.copy(DATA / "run_gpt/run.json", place / "run.json")
    (folder / "told" / "run.json").symlink_to(place / "run.json")
    return folder


def asked(source, *questions):
    """The results of some calls, made by the client one after the other."""

    async def ask():
        async with Client(source) as client:
            return [await client.call_tool(name, arguments) for name, arguments in questions]

    return asyncio.run(ask())


def told(result):
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


def test_the_server_answers_over_standard_input_and_output(runs):
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "profkit", "mcp", str(runs)], env={**os.environ}
    )
    found, failed = asked(
        stdio_client(command),
        ("analyze", {"path": "trace.json.gz"}),
        ("analyze", {"path": "../secret.json.gz"}),
    )
    assert told(found)["bound"] == "launch"
    assert failed.is_error
    assert "no such file in the folders that are served" in failed.content[0].text


def test_every_tool_is_listed_as_read_only_with_its_arguments(runs):
    async def listed():
        async with Client(server([runs])) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(listed())
    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(tool.description for tool in tools)


def test_every_tool_answers_small(runs):
    trace = "trace.json.gz"
    before = sorted(path.stat().st_mtime_ns for path in runs.rglob("*"))
    questions = [
        ("analyze", {"path": trace}), ("kernels", {"path": trace, "limit": 3}), ("phases", {"path": trace}),
        ("what_if", {"path": trace, "changes": ["no-sync"]}), ("fit", {"path": "memory.pickle.gz", "batch": 2, "memory": "24GB"}),
        ("compare", {"before": trace, "after": str(runs / trace)}),
    ]  # fmt: skip
    results = asked(server([runs]), *questions)
    answers = dict(zip(TOOLS, map(told, results), strict=True))
    assert all(len(result.content[0].text) < 20_000 for result in results)
    assert answers["analyze"]["advice"]
    assert sum(answers["analyze"]["shares"].values()) == pytest.approx(1, abs=0.01)
    assert answers["phases"]["rows"][0]["path"]
    assert answers["what_if"]["changes"] or answers["what_if"]["refused"]
    assert answers["fit"]["fits"] is None  # what grows from step to step never surely fits
    assert answers["compare"]["verdict"] == "no change"
    assert sorted(path.stat().st_mtime_ns for path in runs.rglob("*")) == before


def test_pages_follow_one_another_until_the_last(runs):
    desk, rows, offset = Desk([runs]), [], 0
    while offset is not None:
        page = desk.kernels("trace.json.gz", offset=offset, limit=4)
        assert len(page["rows"]) <= 4
        rows += page["rows"]
        offset = page["next_offset"]
    assert len(rows) == page["total"]
    assert rows == desk.kernels("trace.json.gz", limit=1000)["rows"][: len(rows)]
    assert desk.kernels("trace.json.gz", offset=10**6)["rows"] == []


@pytest.mark.parametrize(
    "path", ["trace.json.gz\0", "a" * 300, "a/" * 3000, "loop", "~", "//host/share/x", "C:\\x"]
)
def test_what_cannot_be_a_path_is_a_file_that_is_not_there(path, runs):
    if path == "loop":
        (runs / path).symlink_to(runs / path)
    with pytest.raises(ReadError, match="no such file"):
        Desk([runs]).kernels(path)
    (runs / "loop").unlink(missing_ok=True)


def test_a_refusal_is_small_whatever_was_asked(runs):
    long, kept = "x" * 100_000, {"path": "trace.json.gz"}
    questions = [("analyze", {"path": long}), ("analyze", {**kept, "step": long}), ("what_if", {**kept, "changes": [long]})]  # fmt: skip
    for result in asked(server([runs]), *questions):
        assert result.is_error
        assert len(result.content[0].text) < 1000


def test_calls_at_once_read_a_file_once(runs, monkeypatch):
    read, asked_for = Desk._read, []
    counted = staticmethod(lambda files, step: asked_for.append(files) or read(files, step))
    monkeypatch.setattr(Desk, "_read", counted)

    async def ask():
        async with Client(server([runs])) as client:
            calls = (client.call_tool("kernels", {"path": "trace.json.gz", "offset": n}) for n in range(8))
            return await asyncio.gather(*calls)

    answers = asyncio.run(ask())
    assert {told(answer)["total"] for answer in answers} == {told(answers[0])["total"]}
    assert len(asked_for) == 1


@pytest.mark.parametrize(
    "path",
    ["../secret.json.gz", "link.json.gz", "leaky", "leaky/out.json.gz", "told", "told/trace.json.gz", "/etc/passwd", "nothing.json", "-", "s3://bucket/x.json",
     "file:///etc/passwd", "*.json.gz/../../secret.json.gz", "leaky/../../secret.json.gz"],
)  # fmt: skip
def test_nothing_outside_of_the_folders_is_read(path, runs):
    desk = Desk([runs])
    for tool in (desk.analyze, desk.kernels, desk.phases, desk.what_if, desk.fit):
        with pytest.raises(ReadError):
            tool(path)
    with pytest.raises(ReadError):
        desk.compare("trace.json.gz", path)


def test_an_absolute_path_outside_sounds_like_one_that_does_not_exist(runs):
    told = []
    for path in (runs.parent / "secret.json.gz", runs.parent / "nothing.json.gz"):
        with pytest.raises(ReadError) as caught:
            Desk([runs]).analyze(str(path))
        told.append(str(caught.value).replace(path.name, ""))
    assert told[0] == told[1]


def test_a_file_that_changed_is_read_again(runs, tmp_path):
    shutil.copy(DATA / "kineto/sync_item.json.gz", tmp_path / "x.json.gz")
    desk = Desk([tmp_path])
    first = desk.kernels("x.json.gz")
    shutil.copy(DATA / "kineto/elementwise_chain.json.gz", tmp_path / "x.json.gz")
    assert desk.kernels("x.json.gz") != first
