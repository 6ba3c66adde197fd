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
