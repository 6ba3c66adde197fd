"""profkit benchmark: one line of JSON a function."""

import json

from click.testing import CliRunner

from profkit.cli import main


def test_functions_of_a_script_are_timed(tmp_path):
    script = tmp_path / "work.py"
    script.write_text("def one(): return 1\ndef two(): return sum(range(100))\n")
    done = CliRunner().invoke(
        main, ["benchmark", f"{script}:one", f"{script}:two", "--warmup", "2", "--repeat", "5"]
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["one", "two"]
    assert all(len(row["times_ns"]) == row["repeat"] == 5 for row in rows)


def test_a_missing_function_is_one_line(tmp_path):
    (tmp_path / "work.py").touch()
    done = CliRunner().invoke(main, ["benchmark", f"{tmp_path / 'work.py'}:gone"])
    assert done.exit_code == 1
    assert "has no function gone" in done.output


def test_a_sweep_times_every_combination_and_what_the_function_makes_of_it(tmp_path):
    script = tmp_path / "work.py"
    script.write_text("def work(n, word, half=1): return lambda: sum(range(n)) + len(word)\n")
    done = CliRunner().invoke(
        main,
        [
            "benchmark",
            f"{script}:work",
            "--set",
            "n=10,20",
            "--set",
            "word=a,b",
            "--warmup",
            "0",
            "--repeat",
            "2",
        ],
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["parameters"] for row in rows] == [
        {"n": n, "word": word} for n in (10, 20) for word in ("a", "b")
    ]
    assert {row["name"] for row in rows} == {"work"}
    assert all({"device", "torch", "revision"} <= row.keys() for row in rows)


def test_a_sweep_without_values_is_refused(tmp_path):
    (tmp_path / "work.py").write_text("def work(n): pass\n")
    done = CliRunner().invoke(main, ["benchmark", f"{tmp_path / 'work.py'}:work", "--set", "n="])
    assert done.exit_code == 2
    assert "NAME=VALUE" in done.output
