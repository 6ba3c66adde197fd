"""A program that uses all of profkit's API, which a strict type checker accepts and which runs."""

import sys
from pathlib import Path

import pandas as pd

import profkit


@profkit.phase("forward")
def forward(x: int) -> int:
    return x + 1


def training(steps: int) -> str:
    """The recorders and the trial, which need torch: a type checker reads it, and nothing runs it."""
    import torch

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with (
        profkit.record("runs/today", warmup=1, steps=2, memory=True) as recorder,
        profkit.instrument(model, optimizer, depth=1),
        profkit.numerics(model, every=10) as numbers,
    ):
        for _ in range(steps):
            step()
            recorder.step()
    problems: list[str] = [*recorder.problems, *numbers.problems]
    tried = profkit.try_(step, budget="1m", only=["tf32"])
    kept: list[str] = list(tried.document.final.changes)
    tried.save("tried.html")
    return ", ".join(problems + kept)


def tables(report: profkit.Report) -> list[pd.DataFrame]:
    return [
        report.kernels, report.phases, report.steps, report.devices, report.operators, report.precision,
        report.operator_types, report.ranges, report.syncs, report.idle, report.gaps, report.memory,
        report.communication, report.ranks, report.advice, report.health, report.launches,
        report.table("kernels"), report.table("kernels", per="window"),
    ]  # fmt: skip


def main(trace: str, snapshot: str, folder: Path) -> None:
    report = profkit.analyze([trace, snapshot], peaks="H100", plain_step="38.3ms", step=None, device=None)
    sentence: str = report.verdict.sentence
    step_ns: int = report.document.window.device_ns
    sizes: list[int] = [len(table) for table in tables(report)]
    page: Path = report.save(folder / "report.html")
    saved: profkit.Report = profkit.load(report.save(folder / "report.json"))

    priced = profkit.what_if(trace, ["tf32"], plain_step="38.3ms")
    gains: list[float] = [row.speedup.likely for row in priced.changes]
    room = profkit.fit([snapshot], memory="24GB")
    fits: bool | None = room.fits
    compared = profkit.compare(trace, saved, plain_step=("38.3ms", "38ms"))
    changed: str = compared.verdict
    judged = profkit.gate(saved, {"max-step": "1s", "max-phase": {"forward": "1s"}}, plain_step="38.3ms")
    passed: bool = judged.passed
    timeline: Path = profkit.export(trace, folder / "step.json.gz")
    with profkit.saved_runs.History(folder / "profkit.db", create=True) as history:
        run: int = history.save(report.document, tags={"branch": "main"})
        runs: pd.DataFrame = history.table(tags={"branch": "main"})
    again = profkit.load(f"{folder / 'profkit.db'}#{run}")
    try:
        profkit.analyze("missing.json")
    except profkit.ReadError as error:
        problem: str = error.problem
    try:
        profkit.gate(saved, {})
    except (profkit.AnalysisError, profkit.OutputError, profkit.RecordingError) as refused:
        also: profkit.ProfkitError = refused
    timed = profkit.benchmark(lambda: None, warmup=0, repeat=2)
    print(profkit.__version__, sentence, step_ns, sizes, page, gains, fits, changed, passed, timeline)
    print(priced, room, compared, judged, also)
    print(len(runs), again, problem, timed.json_line(), forward(1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
