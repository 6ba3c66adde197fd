"""A scrubbed recording holds no secret in any of its bytes, and a report of it has the same numbers."""

import gzip
import json
import pickle
import re
import sqlite3
import time
from contextlib import closing

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from profkit.scrubbing import scrub_file
from profkit.scrubbing.texts import Scrubber
from tests.shared import DATA

TOKEN = "hf_" + "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW"
PASSWORD = "correct-horse-7"
GPU = "3f9c1f2e-7a41-4d4e-9b52-0c8f6a1d2e3f"
ANONYMOUS = "00000000-0000-0000-2ee1-a0e3b70553d6"
SECRETS = (GPU, TOKEN, PASSWORD, "wernher", "rocketbox", "/home/", "moonshot")
"""A key, a password, a user, a machine, a home folder, and the folder of a project in it."""
ENVIRONMENT = {
    "HF_TOKEN": TOKEN, "DB_PASSWORD": PASSWORD, "USER": "wernher", "HOSTNAME": "rocketbox.example.org",
    "HOME": "/home/wernher", "PWD": "/home/wernher/moonshot", "RANK": "3",
}  # fmt: skip
SCRIPT = "/home/wernher/moonshot/train.py"
LIBRARY = "/home/wernher/env/lib/python3.11/site-packages/torch/nn/modules/linear.py"


def export(path):
    path.write_bytes(gzip.decompress((DATA / "nsys/sync_item.sqlite.gz").read_bytes()))
    listed = ";".join(f'{name}="{value}"' for name, value in ENVIRONMENT.items())
    with closing(sqlite3.connect(path)) as database, database:
        (last,) = database.execute("SELECT max(id) FROM StringIds").fetchone()
        for at, text in enumerate(
            [listed, f"python {SCRIPT} --token {TOKEN}", SCRIPT, f"DB_PASSWORD={PASSWORD}"], 1
        ):
            database.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (last + at, text))
        database.execute("DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT%'")
        for name, value in [
            ("PROCESS_0:ENVIRONMENT_VARIABLE", listed),
            ("PROCESS_0:COMMAND", f"python {SCRIPT} {TOKEN}"),
        ]:
            database.execute("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", (name, value))
        database.execute(
            "UPDATE TARGET_INFO_SYSTEM_ENV SET name = 'Hostname', value = 'rocketbox' WHERE name = 'CpuSpeedMhz'"
        )
        database.execute("UPDATE TARGET_INFO_GPU SET uuid = ?", (GPU,))
        database.execute("CREATE TABLE OLD (value TEXT)")
        database.executemany("INSERT INTO OLD VALUES (?)", [(f"{TOKEN} {PASSWORD} wernher" * 9,)] * 500)
        database.execute("DELETE FROM OLD")
    return path


def trace(path):
    made = json.loads(gzip.decompress((DATA / "kineto/sync_item_stack.json.gz").read_bytes()))
    made |= {
        "env": ENVIRONMENT,
        "argv": ["train.py", "--token", TOKEN],
        "hostname": "rocketbox",
        "traceName": f"{SCRIPT}.json",
    }
    for event in made["traceEvents"]:
        if event.get("cat") == "python_function":
            event["name"] = re.sub(r"^torch/", f"{LIBRARY.partition('torch/')[0]}torch/", event["name"])
            event["name"] = re.sub(r"^(\w+\.py)", r"/home/wernher/moonshot/\1", event["name"])
        event.get("args", {}).pop("Trace iteration", None)
    path.write_bytes(gzip.compress(json.dumps(made).encode()))
    return path


def snapshot(path):
    made = pickle.loads(gzip.decompress((DATA / "snapshot/leak.pickle.gz").read_bytes()))
    for entries in made["device_traces"]:
        for entry in entries:
            for frame in entry.get("frames", ()):
                if not frame["filename"].startswith(("/home/wernher", "??")):
                    frame["filename"] = f"/home/wernher/moonshot/{frame['filename'].lstrip('/')}"
    made["note"] = f"{TOKEN} on rocketbox.example.org, HOSTNAME=rocketbox PASSWORD={PASSWORD}"
    path.write_bytes(pickle.dumps(made))
    return path


def table(path):
    text = gzip.decompress((DATA / "ncu/convnet.csv.gz").read_bytes()).decode()
    header = next(line for line in text.splitlines() if '"ID"' in line)
    host = header.split('","').index("Host Name")
    lines = []
    for line in text.splitlines():
        cells = line.split('","')
        if line.startswith('"') and "Kernel Name" not in line and cells[host]:
            cells[host] = "rocketbox"
        lines.append('","'.join(cells))
    lines.insert(
        0, f"==PROF== Connected to process 1 ({SCRIPT}) HOSTNAME=rocketbox KEY={TOKEN} P_PASSWORD={PASSWORD}"
    )
    path.write_text("\n".join(lines) + "\n")
    return path


MADE = {"run.sqlite": export, "trace.json.gz": trace, "memory.pickle": snapshot, "counters.ncu.csv": table}


def scrubbed(source, target, *options):
    done = CliRunner().invoke(main, ["scrub", str(source), "-o", str(target), *options])
    assert done.exit_code == 0, done.output
    return done.output


def raw(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def numbers(report):
    """A report without the texts that were cut."""
    given = {k: v for k, v in report.as_dict().items() if k != "inputs"}
    for section in filter(None, (given["health"], given["memory"])):
        section["findings"] = [row for row in section["findings"] if row["code"] != "secrets"]
    text = json.dumps(given)
    for folder in ("/home/wernher/moonshot/", "/home/wernher/env/"):
        text = text.replace(folder, "")
    return json.loads(text)


@pytest.mark.parametrize("name", MADE)
def test_no_byte_of_a_secret_is_left_and_the_report_is_the_same(name, tmp_path):
    source = MADE[name](tmp_path / name)
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / name
    before = raw(source)
    assert any(secret.encode() in before for secret in SECRETS)
    told = scrubbed(source, target)
    after = raw(target)
    assert [secret for secret in SECRETS if secret.encode() in after] == []
    assert "removed" in told
    assert not [secret for secret in SECRETS if secret in told.replace(str(tmp_path), "")]
    assert raw(source) == before
    assert numbers(profkit.analyze(target)) == numbers(profkit.analyze(source))


@pytest.mark.parametrize(
    "path",
    [
        "nsys/gpt_bf16.sqlite.gz",
        "kineto/ddp_rank1.json.gz",
        "kineto/sync_item_stack.json.gz",
        "snapshot/leak.pickle.gz",
        "ncu/mixed.csv.gz",
    ],
)
def test_what_holds_nothing_private_keeps_its_report(path, tmp_path):
    target = tmp_path / DATA.joinpath(path).name
    scrubbed(DATA / path, target)
    assert profkit.analyze(target).as_dict() == profkit.analyze(DATA / path).as_dict()
    scrubbed(DATA / path, target, "--threads")
    given, left = (profkit.analyze(file).document for file in (DATA / path, target))
    assert (left.verdict, left.phases, left.kernels, left.idle) == (
        given.verdict,
        given.phases,
        given.kernels,
        given.idle,
    )


def test_json_without_secrets_stays_the_same_to_the_byte(tmp_path):
    source = DATA / "kineto/elementwise_chain.json.gz"
    scrubbed(source, tmp_path / "x.json.gz")
    assert raw(tmp_path / "x.json.gz") == raw(source)


def test_the_rank_of_a_launcher_stays(tmp_path):
    source = export(tmp_path / "run.sqlite")
    scrubbed(source, tmp_path / "x.sqlite")
    assert profkit.analyze(tmp_path / "x.sqlite").document.inputs[0].ranks == [3]


def test_threads_and_words_are_hidden_on_request(tmp_path):
    source = trace(tmp_path / "trace.json.gz")
    data = json.loads(raw(source))
    data["traceEvents"].append(
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "worker of project-x"}}
    )
    source.write_bytes(gzip.compress(json.dumps(data).encode()))
    scrubbed(source, tmp_path / "plain.json.gz")
    assert b"worker of project-x" in raw(tmp_path / "plain.json.gz")
    scrubbed(source, tmp_path / "word.json.gz", "--word", "project-x")
    assert b"project-x" not in raw(tmp_path / "word.json.gz")
    scrubbed(source, tmp_path / "threads.json.gz", "--threads")
    assert b"worker" not in raw(tmp_path / "threads.json.gz")


def test_several_files_go_into_a_folder(tmp_path):
    files = [MADE[name](tmp_path / name) for name in MADE]
    done = CliRunner().invoke(main, ["scrub", *map(str, files), "-o", str(tmp_path / "shared")])
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in (tmp_path / "shared").iterdir()) == sorted(MADE)


def test_an_input_is_not_written_over(tmp_path):
    source = export(tmp_path / "run.sqlite")
    done = CliRunner().invoke(main, ["scrub", str(source), "-o", str(source)])
    assert done.exit_code == 1
    assert "it is one of the inputs" in done.output


def test_triggers_of_a_hostile_export_do_not_run(tmp_path):
    source = export(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(source)) as database, database:
        database.execute(
            f"CREATE TRIGGER t AFTER UPDATE ON StringIds BEGIN INSERT INTO OLD VALUES ('{PASSWORD}'); END"
        )
        database.execute(f"CREATE VIEW v AS SELECT '{TOKEN}' AS value")
    scrubbed(source, tmp_path / "x.sqlite")
    assert PASSWORD.encode() not in raw(tmp_path / "x.sqlite")
    assert TOKEN.encode() not in raw(tmp_path / "x.sqlite")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/bob/p/train.py(12): step", "train.py(12): step"),
        ("/usr/lib/python3.11/threading.py(9): run", "lib/python3.11/threading.py(9): run"),
        ("/x/site-packages/torch/nn/linear.py", "site-packages/torch/nn/linear.py"),
        ("/tmp/torchinductor_bob/ab/c.py", "/tmp/torchinductor_user/ab/c.py"),
        (r"C:\Users\bob\p\train.py", "train.py"),
        ("s3://bucket/key?sig=1", "s3://***"),
        ("forward/loss", "forward/loss"),
        (
            "void at::native::k<float, 4>(int, at::Tensor const&)",
            "void at::native::k<float, 4>(int, at::Tensor const&)",
        ),
        ("a // b /* c */ d", "a // b /* c */ d"),
        ("API_KEY=abc; RANK=3", "API_KEY=***; RANK=3"),
        ("step password=abc, 12", "step password=***, 12"),
        ('{"db_secret": "x1"}', '{"db_secret": "***"}'),
        ("{'USER': 'bob', 'rank': '3'}", "{'USER': '***', 'rank': '3'}"),
        ("password='a b', 12", "password='***', 12"),
        (
            "train.py --db-password abc --hf-token ab12cd34 --key value",
            "train.py --db-password *** --hf-token *** --key value",
        ),
        ("--max-tokens 16384 --key 20482048", "--max-tokens 16384 --key 20482048"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- x", "*** x"),
        (r"\\box\share\bob\x.py", "x.py"),
        ("tokens: 4096, key=3", "tokens: 4096, key=3"),
        ("void crypto::secret::open<int>(int)", "void crypto::secret::open<int>(int)"),
        (GPU, ANONYMOUS),
        (f"GPU-{GPU.upper()}", f"GPU-{ANONYMOUS}"),
        (ANONYMOUS, ANONYMOUS),
        (f"x {TOKEN} y", "x *** y"),
        ("hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        ("task-scheduler-v2-with-a-long-name", "task-scheduler-v2-with-a-long-name"),
    ],
)
def test_one_text(text, left):
    assert Scrubber()(text) == left


def test_short_secrets_are_hidden_where_they_stand_as_a_word():
    scrub = Scrubber()
    scrub.learn(["DB_PASSWORD=s3cr3t;MODEL_TOKEN=bf16"])
    assert scrub("login s3cr3t done s3cr3ts bf16") == "login *** done s3cr3ts bf16"


def test_thousands_of_names_and_secrets_are_refused_before_each_is_looked_for(tmp_path):
    names = {f"run{at}": f"/home/user{at}/train.py" for at in range(50_000)}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [], "names": names}))
    started = time.process_time()
    with pytest.raises(profkit.ReadError, match="more than 256 names"):
        scrub_file(str(tmp_path / "t.json"))
    assert time.process_time() - started < 10


def test_a_report_of_nsys_is_to_be_exported_first(tmp_path):
    (tmp_path / "r.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 5000)
    done = CliRunner().invoke(main, ["scrub", str(tmp_path / "r.nsys-rep"), "-o", str(tmp_path / "x")])
    assert done.exit_code == 1
    assert "Export it" in done.output


@pytest.mark.parametrize("name", MADE)
def test_analyze_warns_of_keys_without_showing_them(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = MADE[name](tmp_path / name)
    done = CliRunner().invoke(main, ["analyze", str(source), "-o", "r.html"])
    assert "profkit scrub" in done.stderr
    assert TOKEN not in done.output + (tmp_path / "r.html").read_text()
    (tmp_path / "out").mkdir()
    scrubbed(source, tmp_path / "out" / name)
    assert (
        "profkit scrub"
        not in CliRunner().invoke(main, ["analyze", str(tmp_path / "out" / name), "-o", "r.html"]).stderr
    )


def test_the_direction_of_a_copy_is_nobodys_name():
    scrubber = Scrubber()
    scrubber.learn(["DEVICE_TO_HOST=size FROM_HOST=bytes DB_HOST=rocketbox HOST=launchpad AUTO_USER=wernher"])
    assert scrubber.words == {"rocketbox", "launchpad", "wernher"}
