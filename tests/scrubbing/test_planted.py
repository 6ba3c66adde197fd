"""Secrets planted in every text of a file of each format: none is left in any byte of its scrubbed copy."""

import csv
import gzip
import io
import json
import pickle
import re
import sqlite3
from contextlib import closing

import pytest

import profkit
from profkit.api.scrubbing import scrub
from profkit.scrubbing import scrub_file
from profkit.scrubbing.texts import Scrubber
from tests.shared import DATA

DRAWN = "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vWx1y2"
KEYS = [
    *(begin + DRAWN for begin in ("hf_", "ghp_", "github_pat_", "npm_", "glpat-", "pypi-", "nvapi-", "dckr_pat_", "gsk_")),
    *(begin + DRAWN for begin in ("sk-proj-", "sk_live_", "r8_", "hvs.", "ya29.", "xoxb-12-", "xapp-1-", "GOCSPX-")),
    "AKIAIOSFODNN7EXAMPL3", "ASIAIOSFODNN7EXAMPL4", f"AIza{DRAWN[:35]}", "dapi0123456789abcdef0123456789abcdef",
    f"SG.{DRAWN[:22]}.{DRAWN}",
]  # fmt: skip
PRIVATE = [
    *KEYS,
    "wernher",
    "moonshot.example.org",
    "rocketbox",
    "10.31.4.17",
    "192.168.7.23",
    "correct-horse-7",
    "aXs-pass9",
    "swordfish",
]
PLANTED = (
    f"{' '.join(KEYS)} wernher.b@moonshot.example.org in /home/wernher/x.py USER=wernher HOSTNAME=rocketbox "
    "10.31.4.17 192.168.7.23 DB_PASSWORD=correct-horse-7 Authorization: Bearer aXs-pass9 "
    '{"password": "swordfish", "USER": "wernher"} --login-password swordfish --password="swordfish" '
    "rocketbox_12.1700000000123456789.pt.trace.json"
)
ENTRIES = {
    "env": [{"name": "DB_PASSWORD", "value": "swordfish"}, {"name": "USER", "value": "wernher"}],
    "argv of launcher": ["--db-password", "swordfish", "--user", "wernher", "--host-name", "x"],
    "environ": {
        "MY_VARIABLE": "swordfish",
        "password": "swordfish",
        "user": "wernher",
        "cmdline": ["swordfish"],
    },
    "pairs": [["DB_PASSWORD", "swordfish"], ["HOSTNAME", "rocketbox"]],
}
"""How launchers and containers write an environment and a command line."""


def planted(value):
    if isinstance(value, str):
        return f"{value} {PLANTED}"
    if isinstance(value, dict) and value is not ENTRIES["environ"]:
        return {key: planted(each) for key, each in value.items()} | {PLANTED: 1}
    if isinstance(value, list | tuple):
        return type(value)(planted(each) for each in value)
    return value


def read(path):
    return gzip.decompress((DATA / path).read_bytes())


def trace(path):
    document = json.loads(read("kineto/sync_item_stack.json.gz"))
    document["traceEvents"] = document["traceEvents"][:200]
    path.write_text(json.dumps(planted(document) | ENTRIES))


def snapshot(path):
    document = pickle.loads(read("snapshot/leak.pickle.gz"))
    document["device_traces"] = [entries[:40] for entries in document["device_traces"]]
    document |= {"note": PLANTED.encode(), "environ": ENTRIES["environ"]}
    path.write_bytes(pickle.dumps(planted(document)))


def run_json(path):
    path.write_text(json.dumps(planted(json.loads((DATA / "run_gpt/run.json").read_text()))))


def saved_report(path):
    path.write_text(json.dumps(planted(profkit.analyze(DATA / "kineto/sync_item.json.gz").as_dict())))


def counters(path):
    made = []
    for line in read("ncu/mixed.csv.gz").decode().splitlines()[:60]:
        if line.startswith('"') and "Kernel Name" not in line:
            cells = [c if re.fullmatch(r"[\d.,]*", c) else f"{c} {PLANTED}" for c in next(csv.reader([line]))]
            row = io.StringIO()
            csv.writer(row, quoting=csv.QUOTE_ALL).writerow(cells)
            line = row.getvalue().strip()
        made.append(f"{line} {PLANTED}" if line.startswith("==") else line)
    path.write_text("\n".join(made))


def export(path):
    path.write_bytes(read("nsys/sync_item.sqlite.gz"))
    with closing(sqlite3.connect(path)) as database, database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                texts = f"WHERE typeof(\"{column}\") = 'text'"
                database.execute(
                    f'UPDATE "{table}" SET "{column}" = "{column}" || ? {texts}', (f" {PLANTED}",)
                )


FORMATS = {
    "t.json": trace, "m.pickle": snapshot, "run.json": run_json, "report.json": saved_report, "c.ncu.csv": counters, "r.sqlite": export,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_that_is_planted_in_any_text_is_left(name, tmp_path):
    FORMATS[name](tmp_path / name)
    before = (tmp_path / name).read_bytes()
    assert [each for each in PRIVATE if each.encode() not in before] == []
    after = scrub_file(str(tmp_path / name)).data
    assert [each for each in PRIVATE if each.encode() in after] == []


def test_a_trace_that_torch_named_after_its_machine_gets_another_name(tmp_path):
    name = "rocketbox_12.1700000000123456789.pt.trace.json"
    (tmp_path / name).write_text(json.dumps({"traceEvents": [], "traceName": f"/tmp/{name}"}))
    (copied,) = scrub(tmp_path / name, f"{tmp_path}/out/")
    assert copied.path.name == "x_12.1700000000123456789.pt.trace.json"
    assert "rocketbox" not in copied.path.read_text()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("to bob.k@lab.example.org now", "to *** now"),
        ("q@k.T and x@y, memcpy@libc.so, f@GLIBC_2.2.5", "q@k.T and x@y, memcpy@libc.so, f@GLIBC_2.2.5"),
        ("tcp 10.1.2.3:29500", "tcp ***:29500"),
        ("172.20.0.1 but 172.40.0.1, nsys 2023.4.4.54, 8.8.8.8", "*** but 172.40.0.1, nsys 2023.4.4.54, 8.8.8.8"),
        ("Authorization: Bearer abcdef", "Authorization: Bearer ***"),
        ("dapim_kernel SG.x r8_load", "dapim_kernel SG.x r8_load"),
    ],
)  # fmt: skip
def test_addresses_of_people_and_machines(text, left):
    assert Scrubber()(text) == left
