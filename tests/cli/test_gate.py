import json

import jsonschema
import pytest
from click.testing import CliRunner

import profkit
from profkit.api import Report
from profkit.api.comparing import gate
from profkit.cli import main
from profkit.errors import AnalysisError
from profkit.rendering.comparisons import gate_schema
from tests.comparison.recordings import of_steps, recorded
from tests.shared import DATA

EAGER, COMPILED, FP32 = (
    DATA / "nsys" / f"{name}.sqlite.gz" for name in ("gpt_bf16", "gpt_bf16_compile", "gpt_fp32")
)


def run(*arguments):
    return CliRunner().invoke(main, ["gate", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_slower_step_fails_with_the_reasons():
    result = run(COMPILED, "--baseline", EAGER)
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "The gate is passed.")
    result = run(
        EAGER, "--baseline", COMPILED, "--max-step", "+3%", "--max-phase", "forward=+5%", "--min-busy", "90%"
    )
    assert result.exit_code == 3
    assert [line.partition(":")[0] for line in result.output.splitlines()[1:-1]] == [
        "max-step",
        "max-phase",
        "min-busy",
    ]


@pytest.mark.parametrize(
    ("limits", "passes"),
    [
        (["--max-step", "42ms"], True), (["--max-step", "40ms"], False), (["--min-busy", "80%"], True),
        (["--min-busy", "90%"], False), (["--max-idle", "20%"], True), (["--max-idle", "10%"], False),
        (["--max-launches", "800"], True), (["--max-launches", "700"], False), (["--max-phase", "forward=12ms"], True),
        (["--max-phase", "forward=5ms"], False), (["--max-phase", "nothing=5ms"], False), (["--max-memory", "40GiB"], False),
    ],
)  # fmt: skip
def test_a_limit_without_plus_needs_no_baseline(limits, passes):
    assert run(EAGER, *limits).exit_code == (0 if passes else 3)


@pytest.mark.parametrize(
    ("limit", "text"),
    [("--max-step", "3"), ("--max-step", "3%"), ("--max-step", "+3kg"), ("--min-busy", "+3%"), ("--min-busy", "80"),
     ("--max-memory", "40"), ("--max-memory", "2%"), ("--max-launches", "many")],
)  # fmt: skip
def test_what_is_no_limit_is_told(limit, text):
    result = run(EAGER, "--baseline", COMPILED, limit, text)
    assert result.exit_code == 2
    assert "Write it like" in result.output


def test_a_limit_over_the_baseline_needs_one():
    result = run(EAGER, "--max-step", "+3%")
    assert result.exit_code == 1
    assert "--baseline" in result.output


def test_a_recording_does_not_differ_from_itself():
    assert run(EAGER, "--baseline", EAGER, "--max-step", "+0%").exit_code == 0


def test_noise_larger_than_the_limit_cannot_be_judged_and_only_opens_when_that_is_allowed(tmp_path):
    steps = [[34_000_000, ms * 1_000_000] for ms in (5, 9, 6, 8, 7, 6, 9, 5, 7, 8)]
    for name, times in (("one", steps), ("other", steps[::-1])):
        Report(of_steps(recorded("gpt_bf16"), times)).save(tmp_path / f"{name}.json")
    arguments = ("one.json", "--baseline", "other.json", "--max-step", "+1%")
    result = run(*arguments)
    assert result.exit_code == 3
    assert "max-step: cannot judge: 41.0 ms → 41.0 ms per step" in result.output
    assert "--allow-unknown" in result.output
    allowed = run(*arguments, "--allow-unknown")
    assert allowed.exit_code == 0
    assert "cannot judge" in allowed.output
    broken = run(EAGER, "--baseline", COMPILED, "--max-step", "+0%", "--allow-unknown")
    assert broken.exit_code == 3


def test_json_holds_every_limit_and_the_comparison():
    arguments = (EAGER, "--baseline", COMPILED, "--max-step", "+3%", "--min-busy", "80%")
    long, short = run(*arguments, "--format", "json"), run(*arguments, "--json")
    assert long.output == short.output
    told = json.loads(long.output)
    assert (told["schema"], told["outcome"], told["passed"]) == ("profkit.gate/1", "broken", False)
    assert [(row["limit"], row["outcome"]) for row in told["limits"]] == [
        ("max-step", "broken"),
        ("min-busy", "kept"),
    ]
    assert told["comparison"]["verdict"] == "slower"
    checked = jsonschema.Draft202012Validator(gate_schema())
    checked.validate(told)
    assert not checked.is_valid(told | {"limits": [told["limits"][0] | {"outcome": "probably"}]})


def test_what_cannot_be_compared_does_not_pass():
    result = run(EAGER, "--baseline", FP32, "--max-step", "+3%")
    assert result.exit_code == 3
    assert "batch size" in result.output
    assert (
        run(EAGER, "--baseline", FP32, "--min-busy", "80%").exit_code == 0
    )  # this limit needs no comparison


def test_memory_is_limited_by_itself_and_over_the_baseline():
    leak, other = (profkit.analyze(DATA / "snapshot" / f"{n}.pickle.gz") for n in ("leak", "sync_item"))
    peaks = [r.document.memory.peak_allocated_bytes for r in (leak, other)]
    small, large = (leak, other) if peaks[0] < peaks[1] else (other, leak)
    assert gate(large, {"max-memory": "+2%"}, baseline=small).failures
    assert gate(small, {"max-memory": "+2%"}, baseline=large).passed
    assert gate(large, {"max-memory": f"{max(peaks)}B"}).passed
    assert not gate(large, {"max-memory": f"{max(peaks) - 1}B"}).passed
    assert not gate(large, {"max-memory": "+2%"}, baseline=EAGER).passed  # no memory to compare with


def test_limits_stand_in_pyproject_and_options_win(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.profkit.gate]\nmin-busy = "90%"\nmax-phase = {forward = "5ms"}\n'
    )
    (tmp_path / "below").mkdir()
    assert run(EAGER).output.count("max-phase") == 1
    assert run(EAGER).exit_code == 3
    assert run(EAGER, "--min-busy", "80%", "--max-phase", "forward=12ms").exit_code == 0
    (tmp_path / "pyproject.toml").write_text('[tool.profkit.gate]\nmax-speed = "3%"\n')
    assert "there is no such limit" in run(EAGER).output
    (tmp_path / "pyproject.toml").write_text("[tool.profkit")
    assert run(EAGER).exit_code == 1


def test_a_baseline_is_a_name_in_the_history():
    runner = CliRunner()
    saved = runner.invoke(
        main, ["analyze", str(COMPILED), "-q", "-o", "r.html", "--save", "--baseline", "main", "--tag", "a=b"]
    )
    assert saved.exit_code == 0
    assert "Saved as profkit.db#1" in saved.output
    assert run(EAGER, "--baseline", "main").exit_code == 3
    same = run("profkit.db#main", "--baseline", "profkit.db#1")
    assert same.exit_code == 0


@pytest.mark.parametrize("name", ["main", "elsewhere.db#main", "12"])
def test_a_baseline_that_is_missing_says_how_to_make_one(name):
    for _ in range(2):  # without a history, and with one of other runs
        result = run(EAGER, "--baseline", name)
        assert result.exit_code == 1
        assert "there is no such baseline. Make one: profkit analyze FILE" in result.output
        assert "--baseline NAME" in result.output
        CliRunner().invoke(main, ["analyze", str(EAGER), "-q", "-o", "r.html", "--save"])


def test_neither_a_baseline_nor_a_limit_is_told():
    result = run(EAGER)
    assert result.exit_code == 1
    assert "neither a baseline nor a limit" in result.output


def test_the_comparison_can_be_kept(tmp_path):
    assert run(EAGER, "--baseline", COMPILED, "-o", "comment.md").exit_code == 3
    assert (tmp_path / "comment.md").read_text().startswith("## 🔴 Slower")


def test_names_of_limits_are_checked():
    with pytest.raises(AnalysisError, match="there is no such limit"):
        gate(Report(recorded("gpt_bf16")), {"max_step": "+3%"})
    assert json.dumps(gate(EAGER, {"max-idle": "50%"}).failures) == "[]"


def test_a_change_beyond_the_limit_but_inside_the_noise_cannot_be_judged():
    def step(*milliseconds):
        return Report(of_steps(recorded("gpt_fp32"), [[round(ms * 1e6), 0] for ms in milliseconds]))

    restless = gate(step(62, 66, 58, 64), {"max-step": "+5%"}, baseline=step(58, 62, 55, 60))
    assert restless.comparison.step.change > 0.05
    assert not restless.passed
    assert restless.document.outcome == "unknown"
    assert "on each side would be enough" in restless.failures[0]
    steady = gate(step(60.5, 60.5, 60.5, 60.5), {"max-step": "+2%"}, baseline=step(58, 58, 58, 58))
    assert steady.document.outcome == "broken"
    assert gate(step(60.5, 60.5, 60.5, 60.5), {"max-step": "+5%"}, baseline=step(58, 58, 58, 58)).passed


@pytest.mark.parametrize(
    "name", ["cases/12_metadata_only.json", "cases/50_mem_baseline.pickle", "ranks/gloo_ddp_rank0.json.gz"]
)
@pytest.mark.parametrize("limits", [["10"], ["+0%", "--baseline", EAGER]], ids=["alone", "baseline"])
def test_a_report_without_kernels_keeps_no_limit_of_launches(name, limits):
    result = run(DATA / name, "--max-launches", *limits)
    assert result.exit_code == 3
    assert "max-launches: cannot judge: the report has no kernels" in result.output


def test_a_baseline_without_kernels_allows_no_launches():
    result = run(EAGER, "--max-launches", "+9999", "--baseline", DATA / "cases" / "12_metadata_only.json")
    assert result.exit_code == 3
    assert "max-launches: cannot judge: the baseline has no kernels" in result.output


def test_a_phase_without_device_times_keeps_no_limit():
    host = profkit.analyze(DATA / "ranks" / "gloo_ddp_rank0.json.gz")
    path = host.document.phases[0].path
    (failure,) = gate(host, {"max-phase": {path: "1s"}}).failures
    assert "has no device times" in failure
