import multiprocessing
import sqlite3
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import OutputError, ProfkitError, ReadError
from profkit.rendering import render_json
from profkit.saved_runs import SUBJECTS, History, metric_of
from profkit.saved_runs.schema import MIGRATIONS, VERSION
from tests.comparison.recordings import recorded
from tests.rendering.sample_reports import SAMPLES, compute_bound


@pytest.fixture
def place(tmp_path):
    return tmp_path / "profkit.db"


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "hostile"])
def test_a_saved_run_becomes_the_same_report_again(place, name):
    result = SAMPLES[name]()
    with History(place, create=True) as history:
        run = history.save(result, tags={"branch": "main"})
        assert render_json(history.load(run)) == render_json(result)


def test_a_recording_is_kept_in_plain_tables_per_step(place):
    result = recorded("gpt_bf16")
    with History(place, create=True) as history:
        history.save(result, environment={"torch": "2.11", "git_revision": "abc", "git_dirty": "True"})
    with sqlite3.connect(place) as database:
        ask = lambda query: database.execute(query).fetchall()  # noqa: E731
        assert ask("SELECT step_ns, git_revision, git_dirty, kernel_count FROM runs") == [
            (40231886, "abc", 1, 759.0)
        ]
        assert ask("SELECT key, value FROM environment") == [("torch", "2.11")]
        forward = next(row for row in result.phases if row.path == "forward")
        assert ask("SELECT gpu_ns FROM phases WHERE path = 'forward'") == [
            (round(forward.gpu_inclusive_ns / 3),)
        ]
        assert ask("SELECT count(*) FROM kernel_list") == [(len(result.kernels),)]
        (gemm,) = ask("SELECT ns FROM family_list WHERE family = 'gemm'")
        expected = sum(row.total_ns for row in result.kernels if row.family == "gemm") / 3
        assert gemm[0] == pytest.approx(expected, abs=100)
        assert sum(ns for (ns,) in ask("SELECT ns FROM shares")) == pytest.approx(40231886, rel=0.01)
    database.close()


def test_a_failed_save_leaves_nothing_behind(place, monkeypatch):
    with History(place, create=True) as history:
        history.save(compute_bound())
        monkeypatch.setattr("profkit.saved_runs.store._pairs", lambda run, values: [{"no_such_column": 1}])
        with pytest.raises(ProfkitError):
            history.save(compute_bound())
        assert [row["id"] for row in history.runs()] == [1]
        assert history._database.execute("SELECT count(DISTINCT run) FROM kernels").fetchone() == (1,)


def _save_many(place, count):
    for number in range(count):
        with History(place, create=True) as history:
            history.save(compute_bound(), tags={"number": str(number)})


def test_processes_that_save_at_once_lose_nothing(place):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_save_many, args=(place, 8)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with History(place) as history:
        assert [row["id"] for row in history.runs()] == list(range(1, 25))
        kernels = history._database.execute("SELECT run, count(*) FROM kernels GROUP BY run").fetchall()
        assert len({count for _, count in kernels}) == 1
        assert len(kernels) == 24
        assert history._database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_database_of_an_older_schema_is_migrated_and_keeps_its_runs(place, version):
    with sqlite3.connect(place) as database:
        database.execute(
            "CREATE TABLE profkit_schema (version INTEGER PRIMARY KEY, migrated_at TEXT NOT NULL)"
        )
        for number, script in enumerate(MIGRATIONS[:version], 1):
            database.executescript(script)
            database.execute("INSERT INTO profkit_schema VALUES (?, 'then')", [number])
        packed = zlib.compress(render_json(compute_bound()).encode())
        database.execute(
            "INSERT INTO runs (saved_at, inputs, devices, steps, verdict, sentence, step_ns) VALUES ('2026', 'a', 1, 3, 'compute', 's', 5)"
        )
        database.execute("INSERT INTO reports VALUES (1, ?)", [packed])
    database.close()
    with History(place) as history:
        history.set_baseline("main", 1)
        assert history.load("main") == history.load(1)
        assert history.runs()[0]["baselines"] == "main"
        assert history.save(compute_bound()) == 2
        versions = history._database.execute("SELECT version FROM profkit_schema ORDER BY version").fetchall()
    assert versions == [(number,) for number in range(1, VERSION + 1)]


def test_a_foreign_database_is_refused_and_not_touched(place):
    with sqlite3.connect(place) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)")
    database.close()
    content = place.read_bytes()
    for create in (False, True):
        with pytest.raises(ReadError, match="not a profkit history"):
            History(place, create=create)
    assert place.read_bytes() == content


def test_what_is_no_database_is_refused(place):
    place.write_text("this is a text and no database, and it is long enough to have a header" * 20)
    with pytest.raises(ReadError, match="not a history database"):
        History(place)


def test_a_newer_history_is_refused(place):
    History(place, create=True).close()
    with sqlite3.connect(place) as database:
        database.execute("INSERT INTO profkit_schema VALUES (?, 'later')", [VERSION + 1])
    database.close()
    with pytest.raises(ReadError, match="newer than this profkit"):
        History(place)


def test_a_missing_history_is_not_made_by_reading(place):
    with pytest.raises(ReadError, match="no such history"):
        History(place)
    assert not place.exists()


def test_baselines_are_names_that_move(place):
    with History(place, create=True) as history:
        first, second = history.save(compute_bound()), history.save(compute_bound())
        history.set_baseline("main", first)
        history.set_baseline("main", "latest")
        assert history.run_id("main") == second
        for name in ("", "12", "a#b", "latest"):
            with pytest.raises(OutputError):
                history.set_baseline(name, first)
        for name in ("nothing", "3", "99999999999999999999"):
            with pytest.raises(ReadError, match="no such run or baseline"):
                history.run_id(name)


def test_a_damaged_report_is_one_line(place):
    with History(place, create=True) as history:
        run = history.save(compute_bound())
        for content in (b"nothing", zlib.compress(b"{}"), zlib.compress(b"x" * 100)[:-3], "text"):
            history._database.execute("UPDATE reports SET document = ?", [content])
            with pytest.raises(ReadError, match=r"profkit.db#1"):
                history.load(run)


def test_tags_choose_runs(place):
    with History(place, create=True) as history:
        for branch in ("main", "topic", "main"):
            history.save(compute_bound(), tags={"branch": branch, "card": "H100"})
        assert [r["id"] for r in history.runs(tags={"branch": "main", "card": "H100"})] == [1, 3]
        assert [point.run for point in history.series(metric_of(), tags={"branch": "main"}, last=1)] == [3]


@pytest.mark.parametrize("subject", [None, *SUBJECTS])
def test_every_metric_has_a_value_for_a_real_recording(place, subject):
    from profkit.saved_runs import metrics

    of = {
        "phase": "forward",
        "family": "gemm",
        "kernel": recorded("gpt_bf16").kernels[0].short_name,
        "idle": "host",
        None: "",
    }
    names = SUBJECTS[subject][0] if subject else metrics._RUN
    with History(place, create=True) as history:
        history.save(recorded("gpt_bf16"))
        for name in names:
            points = history.series(metric_of(name, subject=subject, of=of[subject]))
            assert len(points) == ("peak" not in name)
    with pytest.raises(ProfkitError, match="Choose one of"):
        metric_of("speed", subject=subject)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_names_are_never_sql(tmp_path_factory, tag, phase):
    place = tmp_path_factory.mktemp("db") / "x.db"
    with History(place, create=True) as history:
        history.save(compute_bound(), tags={"t": tag.encode("utf-8", "replace").decode()})
        rows = history.series(
            metric_of("gpu_ms", subject="phase", of=phase.encode("utf-8", "replace").decode())
        )
        assert len(rows) == (phase in {row.path for row in compute_bound().phases})


@pytest.mark.slow
def test_a_million_rows_stay_quick(place):
    with History(place, create=True) as history:
        history.save(recorded("gpt_bf16"), tags={"branch": "main"})
        database = history._database.conn
        database.execute("BEGIN")
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 15000) "
            "INSERT INTO runs (id, saved_at, inputs, devices, steps, verdict, sentence, step_ns) "
            "SELECT i, saved_at, inputs, 1, 3, verdict, sentence, step_ns FROM n, runs WHERE runs.id = 1"
        )
        for table in ("kernels", "phases", "idle", "tags"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[1] != "run"]
            names, values = ", ".join(f'"{c}"' for c in columns), ", ".join(f'{table}."{c}"' for c in columns)
            database.execute(
                f"INSERT INTO {table} (run, {names}) SELECT runs.id, {values} FROM runs, {table} WHERE runs.id > 1 AND {table}.run = 1"
            )
        database.execute("COMMIT")
        (count,) = database.execute("SELECT count(*) FROM kernels").fetchone()
        assert count > 1_000_000
        for metric in (
            metric_of("gpu_ms", subject="phase", of="forward"), metric_of(subject="family", of="gemm"),
            metric_of(subject="kernel", of=recorded("gpt_bf16").kernels[0].short_name), metric_of(),
        ):  # fmt: skip
            began = time.perf_counter()
            rows = history.series(metric, tags={"branch": "main"})
            assert time.perf_counter() - began < 1, metric.label
            assert len(rows) == 1000
        began = time.perf_counter()
        history.runs()
        history.save(recorded("gpt_bf16"))
        assert time.perf_counter() - began < 1
