"""Make the sample reports of this folder from the project's own recordings: ``make reports``.

The pages hold plotly.js, 2 MB each, so only one of them is kept in the project; the others are made here too, and
told as Markdown for those who only look.
"""

from __future__ import annotations

from pathlib import Path

import profkit
from profkit.units import parse_duration_ns

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "tests" / "data"
KEPT_PAGE = "gpt_bf16"

SAMPLES = {
    "gpt_fp32": (["nsys/gpt_fp32.sqlite.gz"], None, "A 12-layer GPT in fp32: SIMT matrix products."),
    "gpt_bf16": (
        ["nsys/gpt_bf16.sqlite.gz", "kineto/gpt_bf16.json.gz"],
        "38.3ms",
        "The same with four times the batch under autocast: nsys gives the times, torch.profiler gives the shapes.",
    ),
    "tiny_mlp": (["kineto/tiny_mlp.json.gz"], None, "40 tiny layers: the host cannot keep up."),
    "dataloader_stall": (
        ["nsys/dataloader_stall.sqlite.gz"],
        None,
        "The host sleeps 30 ms in a phase named data.",
    ),
    "sync_item": (["kineto/sync_item.json.gz"], None, "An .item() after every layer, which costs little."),
    "memory_leak": (["snapshot/leak.pickle.gz"], None, "20 steps that each keep their graph."),
}


def main() -> None:
    again = "`make reports` makes them again, and the pages that are not kept here."
    rows = ["# Sample reports", "", f"Recorded on an NVIDIA H200. {again}", ""]
    rows += ["| report | what it is | verdict |", "|---|---|---|"]
    for name, (files, plain, what) in SAMPLES.items():
        plain_step_ns = parse_duration_ns(plain) if plain else None
        report = profkit.analyze([DATA / file for file in files], plain_step_ns=plain_step_ns)
        report.save(HERE / f"{name}.html")
        report.save(HERE / f"{name}.md")
        page = f" ([page]({name}.html))" if name == KEPT_PAGE else ""
        rows.append(f"| [{name}]({name}.md){page} | {what} | {report.verdict.sentence} |")
        print(f"{name}: {report.verdict.sentence}")
    (HERE / "README.md").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
