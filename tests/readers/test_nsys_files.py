"""Whole files: our recordings against sums that SQL finds by itself, the trap cases, other people's exports."""

import gzip
import json
import shutil
import sqlite3
import stat

import numpy as np
import pytest

from profkit.model import OperationKind, RangeKind, Trace
from profkit.readers.nsys import read_nsys
from tests.shared import DATA, SHARED, needs_shared

OURS = {path.name.split(".")[0]: path for path in (DATA / "nsys").glob("*.sqlite.gz")}
MORE = {path.stem: path for path in (SHARED / "recordings/nsys").glob("*.sqlite") if path.stem not in OURS}
OTHERS = {path.stem: path for path in (SHARED / "corpus/nsys").glob("*.sqlite")}
RECORDINGS = [
    *(pytest.param(path, id=name) for name, path in sorted(OURS.items())),
    *(pytest.param(path, id=name, marks=pytest.mark.shared) for name, path in sorted(MORE.items())),
]
ALL = [
    *RECORDINGS,
    *(pytest.param(path, id=name, marks=pytest.mark.shared) for name, path in sorted(OTHERS.items())),
]
CASES = DATA / "cases"
GLOBAL_PROCESS = ~0xFFFFFF


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """A folder with our own recordings, which the project keeps compressed."""
    folder = tmp_path_factory.mktemp("recordings")
    for name, path in OURS.items():
        (folder / f"{name}.sqlite").write_bytes(gzip.decompress(path.read_bytes()))
    return folder


@pytest.fixture
def path(request, unpacked):
    """The recording that a test is asked to read, as a real SQLite file."""
    given = request.param
    return unpacked / given.name.removesuffix(".gz") if given.suffix == ".gz" else given


def sql(path, statement):
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        connection.text_factory = lambda content: content.decode("utf-8", "replace")
        rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def has(path, table):
    return bool(sql(path, f"SELECT 1 FROM sqlite_master WHERE name = '{table}' AND type = 'table'"))


def counted(path, table, what='count(*), coalesce(sum("end" - start), 0)', where="1"):
    return sql(path, f"SELECT {what} FROM {table} WHERE {where}")[0] if has(path, table) else (0, 0)


def sums(trace: Trace, kind: OperationKind):
    rows = trace.operations.take(trace.operations.kind == kind)
    return len(rows), int((rows.end_ns - rows.start_ns).sum())


@pytest.mark.parametrize("path", ALL, indirect=True)
def test_counts_and_sums_equal_those_of_sql(path):
    trace = read_nsys(path, path.name)
    activity = "CUPTI_ACTIVITY_KIND_"
    assert trace.dropped == {}
    assert sums(trace, OperationKind.KERNEL) == counted(path, activity + "KERNEL")
    assert sums(trace, OperationKind.MEMSET) == counted(path, activity + "MEMSET")
    assert sums(trace, OperationKind.GRAPH) == counted(path, activity + "GRAPH_TRACE")
    assert sums(trace, OperationKind.COPY) == counted(path, activity + "MEMCPY", where="copyKind != 9")
    assert trace.operations.bytes[trace.operations.bytes > 0].sum() == sum(
        counted(path, activity + table, "sum(bytes)")[0] or 0 for table in ("MEMCPY", "MEMSET")
    )
    calls = (
        len(trace.calls),
        int((trace.calls.end_ns - trace.calls.start_ns).sum()),
        int(trace.calls.correlation.sum()),
    )
    assert calls == counted(path, activity + "RUNTIME", 'count(*), sum("end" - start), sum(correlationId)')
    ranges = trace.ranges.take(np.isin(trace.ranges.kind, (RangeKind.ANNOTATION, RangeKind.OPERATOR)))
    written = counted(path, "NVTX_EVENTS", where="eventType = 59")
    assert (len(ranges), int((ranges.end_ns - ranges.start_ns).sum())) == written


@pytest.mark.parametrize("path", ALL, indirect=True)
def test_kernels_have_their_own_names_shapes_and_places(path):
    trace = read_nsys(path, path.name)
    rows = trace.operations.take(trace.operations.kind == OperationKind.KERNEL)
    devices = [device.ordinal for device in trace.devices]
    found = sorted(
        zip(
            trace.names(rows.name).tolist(),
            *(
                getattr(rows, name).tolist()
                for name in ("start_ns", "end_ns", "grid_x", "block_x", "stream", "correlation")
            ),
            [devices[device] for device in rows.device],
            strict=True,
        )
    )
    written = sql(
        path,
        'SELECT value, start, "end", gridX, blockX, streamId, correlationId, deviceId'
        " FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName",
    )
    assert found == sorted(written)


@pytest.mark.parametrize("path", ALL, indirect=True)
def test_each_kernel_finds_the_calls_that_sql_finds(path):
    trace = read_nsys(path, path.name)
    if "globalPid" not in {row[1] for row in sql(path, "PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}:
        pytest.skip("says of no kernel whose it is")
    owner = [thread.process for thread in trace.threads]
    calls = {
        (owner[thread], int(c)) for thread, c in zip(trace.calls.thread, trace.calls.correlation, strict=True)
    }
    rows = trace.operations.take(trace.operations.kind == OperationKind.KERNEL)
    found = sum(
        (p, c) in calls for p, c in zip(rows.process.tolist(), rows.correlation.tolist(), strict=True)
    )
    written = sql(
        path,
        f"WITH calls AS (SELECT DISTINCT globalTid & {GLOBAL_PROCESS} AS p, correlationId AS c FROM CUPTI_ACTIVITY_KIND_RUNTIME)"
        " SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN calls ON p = globalPid AND c = correlationId",
    )
    assert [(found,)] == written


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    "path", [MORE[name] for name in sorted(MORE) if name.startswith("emit_")], indirect=True
)
def test_operators_have_the_names_that_sql_cuts_out(path):
    trace = read_nsys(path, path.name)
    rows = trace.ranges.take(trace.ranges.kind == RangeKind.OPERATOR)
    names, counts = np.unique(trace.names(rows.name).astype(str), return_counts=True)
    cut = "CASE WHEN instr(text, ', seq = ') THEN instr(text, ', seq = ') ELSE instr(text, ', op_id = ') END"
    written = sql(
        path,
        f"SELECT substr(text, 1, {cut} - 1) AS n, count(*) FROM NVTX_EVENTS WHERE text LIKE '%, op_id = %' GROUP BY n",
    )
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == dict(written)
    sequences = sql(path, "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE '%, seq = %'")[0][0]
    assert np.count_nonzero(rows.sequence >= 0) == sequences
    assert (
        np.count_nonzero(rows.shapes >= 0)
        == sql(path, "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE '%, sizes = %'")[0][0]
    )
    for shapes in set(trace.names(rows.shapes).tolist()) - {""}:
        assert isinstance(json.loads(shapes), list)


@needs_shared
@pytest.mark.shared
def test_metric_samples_are_complete():
    path = MORE["metrics_gpt_bf16"]
    trace = read_nsys(path, path.name)
    names, counts = np.unique(trace.names(trace.samples.metric).astype(str), return_counts=True)
    total = {
        name: int(trace.samples.value[trace.names(trace.samples.metric) == name].sum()) for name in names
    }
    written = sql(
        path,
        "SELECT metricName, count(*), sum(value) FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId) GROUP BY 1",
    )
    assert {name: (count, value) for name, count, value in written} == {
        name: (count, total[name]) for name, count in zip(names.tolist(), counts.tolist(), strict=True)
    }


def test_ranks_of_one_export_are_processes_in_device_order(unpacked):
    path = unpacked / "ddp.sqlite"
    trace = read_nsys(path, path.name)
    assert [process.rank for process in trace.processes[:2]] == [0, 1]
    assert [device.uuid[-1] for device in trace.devices] == ["0", "1"]
    assert set(zip(trace.operations.process.tolist(), trace.operations.device.tolist(), strict=True)) == {
        (0, 0),
        (1, 1),
    }
    domains = set(trace.names(trace.ranges.domain).tolist())
    assert domains == {"", "NCCL", "CCCL"}


# --- the input stays as it is


def test_nothing_is_written_beside_an_export_in_wal_mode(tmp_path):
    path = tmp_path / "odd name?#%.sqlite"
    shutil.copyfile(CASES / "39_negative_timestamps.sqlite", path)
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    before = path.read_bytes()
    assert len(read_nsys(path, "x").operations) == 2
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("path", RECORDINGS, indirect=True)
def test_no_private_text_of_an_export_is_kept(path):
    trace = read_nsys(path, path.name)
    private = [
        value
        for (value,) in sql(
            path,
            "SELECT value FROM META_DATA_EXPORT WHERE name IN ('EXPORT_HOST', 'EXPORT_PARAM_INPUT_FILE')",
        )
        if len(value) > 3
    ]
    private += [
        value
        for (value,) in sql(
            path,
            "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%:ARGUMENT%' OR name LIKE '%ENVIRONMENT%'",
        )
        if len(value) > 3
    ]
    shown = repr(
        (trace.source, list(trace.strings), trace.findings, trace.processes, trace.threads, trace.devices)
    )
    assert private
    assert [value for value in private if value in shown] == []
