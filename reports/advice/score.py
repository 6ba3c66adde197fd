"""Score every file of predictions against the times that were measured: writes scores.json, prints README.md's tables.

    score.py [TRACES]

``data/after.json`` (from ``record_pairs.py after``) has both sides of the first study; ``second/blind.json`` and
``third/blind.json`` (from ``blind.py``) have the others. What the present model says is computed anew, and shown as in
view. Of the third study only four traces are kept here: ``TRACES`` is a folder with all of them; without it, the scores
that were computed last from all are told again, with the model that they are of. Until the first study's times exist, its
pairs are scored whose second side is the first side of another, timed in the same process: `SAME`; these are not blind.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import predict  # noqa: E402
from predict import model_sha256, prediction_files  # noqa: E402

PROMISE = 1.1
CHANGED = 1.2
"""Pairs whose step changes by this factor or more are the ones that the scores are about."""
SAME = {
    "attention_512": "compile_gpt_bf16",
    "bf16_convnet": "cudnn_benchmark",
    "bf16_gpt_fp32": "compile_gpt_bf16",
    "bf16_gpt_tf32": "compile_gpt_bf16",
    "channels_last_bf16": "cudnn_benchmark",
    "channels_last_fp32": "bf16_convnet",
    "checkpoint_removed": "compile_gpt_bf16",
    "foreach_single_mlp": "fused_foreach_mlp",
    "fused_foreach_gpt": "graph_gpt_long",
    "fused_foreach_mlp": "graph_tiny_mlp",
    "fused_single_gpt": "graph_gpt_long",
    "fused_single_mlp": "graph_tiny_mlp",
    "tf32_gpt": "bf16_gpt_tf32",
    "tf32_wide_mlp": "bf16_wide_mlp_tf32",
    "zero_grad_gpt": "compile_gpt_bf16",
}


def measured() -> tuple[dict[str, tuple[float, float]], bool]:
    """Milliseconds before and after, and whether the second sides were timed after the predictions."""
    path = HERE / "data" / "after.json"
    if path.exists():
        pairs = json.loads(path.read_text())["pairs"]
        timed = {n: r for n, r in pairs.items() if "step_ms" in r["before"] and "step_ms" in r["after"]}
        return {n: (r["before"]["step_ms"], r["after"]["step_ms"]) for n, r in timed.items()}, True
    pairs = json.loads((HERE / "data" / "before.json").read_text())["pairs"]
    first = {n: r["before"]["step_ms"] for n, r in pairs.items()}
    return {n: (first[n], first[other]) for n, other in SAME.items()}, False


def row(name: str, predicted: dict[str, Any], before: float, after: float) -> dict[str, Any]:
    """One pair: errors are of the step's time after the change, as a share of the measured one."""
    real, guess = before / after, predicted["speedup"]
    return {
        "pair": name,
        "before_ms": round(before, 3),
        "after_ms": round(after, 3),
        "speedup": round(real, 3),
        **{k: guess[k] for k in ("low", "likely", "high")},
        "error": round(real / guess["likely"] - 1, 3),
        "error_no_change": round(real - 1, 3),
        "error_amdahl": round(real / predicted["amdahl_speedup"] - 1, 3),
        "inside": guess["low"] <= real <= guess["high"],
        "changes": max(real, 1 / real) >= CHANGED,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores over some pairs."""
    if not rows:
        return {"pairs": 0}
    within = {
        key: sum(abs(r[key]) <= 0.25 for r in rows) / len(rows)
        for key in ("error", "error_no_change", "error_amdahl")
    }
    return {
        "pairs": len(rows),
        "within_25_percent": {k: round(v, 3) for k, v in within.items()},
        "inside_low_high": round(sum(r["inside"] for r in rows) / len(rows), 3),
        "median_high_over_low": round(statistics.median(r["high"] / r["low"] for r in rows), 3),
        "geometric_mean_error": round(
            math.exp(statistics.fmean(abs(math.log1p(r["error"])) for r in rows)) - 1, 3
        ),
    }


def scored(path: Path, times: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """One file of predictions; a trace that is no longer the one predicted from is left out, and named."""
    predictions = json.loads(path.read_text())
    stale = [n for n in sorted(times) if n in predictions and digest(n) != predictions[n]["trace_sha256"]]
    rows = [row(n, predictions[n], *times[n]) for n in sorted(times) if n in predictions and n not in stale]
    return {**summaries(rows), "traces_that_changed": stale, "rows": rows}


def summaries(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores over the pairs that change, over the others, and the promises that were false."""
    unchanged = [r for r in rows if not r["changes"]]
    return {
        "changed": summary([r for r in rows if r["changes"]]),
        "unchanged": summary(unchanged),
        "promises_over_10_percent_that_bring_nothing": [
            r["pair"] for r in unchanged if r["likely"] > PROMISE >= r["speedup"]
        ],
    }


def in_view(times: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """What the present model says, with the second sides in view: some of its constants were fitted on them."""
    rows = [row(n, predict.predict(n), *times[n]) for n in sorted(times) if n in predict.PAIRS]
    return {**summaries(rows), "rows": rows}


def later_in_view(
    folder: Path, frozen: list[dict[str, Any]], traces: Path, *, plain: bool = False
) -> dict[str, Any]:
    """What the present model says of a later study's traces, for the changes that were predicted.

    Args:
        folder: The study.
        frozen: Its scored rows, for the times.
        traces: Where its traces are; each must be the one that was predicted from.
        plain: Whether the plain time of the first side is known to the model, as `profkit record` would have it.
    """
    pairs = json.loads((folder / "blind.json").read_text())["pairs"]
    rows = []
    for each in frozen:
        predicted = pairs[each["pair"]]["predicted"]
        path = traces / f"{each['pair']}.json.gz"
        if not same(path, predicted):
            raise SystemExit(f"{path} is not the trace that the prediction was made from")
        loader = [n for n in predicted["changes"] if n.startswith("loader")]
        names = [n for n in predicted["changes"] if n not in loader]
        workers = int(loader[0].split()[1]) if loader else None
        said = predict.from_trace(path, names, workers, round(each["before_ms"] * 1e6) if plain else None)
        rows.append(row(each["pair"], said, each["before_ms"], each["after_ms"]))
    return {**summaries(rows), "rows": rows}


def same(path: Path, predicted: dict[str, Any]) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == predicted["trace_sha256"]


def blind(folder: Path) -> dict[str, Any] | None:
    """A later study: each prediction was written before either side of its pair was timed."""
    if not (folder / "blind.json").exists():
        return None
    found = json.loads((folder / "blind.json").read_text())
    pairs = {n: r for n, r in found["pairs"].items() if "step_ms" in r.get("after", ())}
    kept = {n: folder / f"{n}.json.gz" for n in pairs if (folder / f"{n}.json.gz").exists()}
    stale = [n for n, path in kept.items() if not same(path, pairs[n]["predicted"])]
    rows = [
        row(n, r["predicted"], r["before"]["step_ms"], r["after"]["step_ms"])
        for n, r in pairs.items()
        if n not in stale
    ]
    return {
        **{k: found[k] for k in ("card", "torch", "model_sha256", "pairs_sha256")},
        **summaries(rows),
        "traces_that_changed": stale,
        "failed": {n: r["error"] for n, r in found["pairs"].items() if "error" in r},
        "rows": rows,
    }


def digest(name: str) -> str:
    return hashlib.sha256((HERE / "data" / f"{name}.json.gz").read_bytes()).hexdigest()


def show(rows: list[dict[str, Any]]) -> None:
    print("| pair | before ms | after ms | speed-up | predicted | low to high | error | no change | Amdahl |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        inside = "" if r["inside"] else " (outside)"
        print(
            f"| {r['pair']} | {r['before_ms']:.2f} | {r['after_ms']:.2f} | {r['speedup']:.2f} | {r['likely']:.2f} "
            f"| {r['low']:.2f} to {r['high']:.2f}{inside} | {r['error']:+.0%} | {r['error_no_change']:+.0%} | {r['error_amdahl']:+.0%} |"
        )


def tell(title: str, scores: dict[str, Any]) -> None:
    print(f"\n{title}\n")
    show(scores["rows"])
    print(json.dumps({k: v for k, v in scores.items() if k != "rows"}, indent=1))


def third_in_view(frozen: list[dict[str, Any]], traces: Path | None) -> dict[str, Any]:
    """What the present model says of the third study; without its traces, what was said last."""
    kept = HERE / "third" / "in_view.json"
    if traces is not None:
        found = {
            "model_sha256": model_sha256(),
            "trace_alone": later_in_view(HERE / "third", frozen, traces),
            "plain_time_known": later_in_view(HERE / "third", frozen, traces, plain=True),
        }
        kept.write_text(json.dumps(found, indent=1) + "\n")
    said: dict[str, Any] = json.loads(kept.read_text())
    return said


def main(folder: str = "") -> None:
    traces = Path(folder) if folder else None
    times, known = measured()
    found: dict[str, Any] = {"blind": known}
    for path in prediction_files():
        found[path.name] = each = scored(path, times)
        made_by = json.loads(path.read_text()).get("model_sha256")
        now = "this model" if made_by == model_sha256() else "an earlier model"
        tell(f"{path.name}, by {now}", each)
    found["in_view"] = in_view(times)
    tell("the present model, IN VIEW of the times, not blind", found["in_view"])
    second = blind(HERE / "second")
    if second:
        found["second_study"] = second
        tell("the second study, blind", second)
        found["second_study_in_view"] = later_in_view(HERE / "second", second["rows"], HERE / "second")
        tell("the second study, IN VIEW, not blind", found["second_study_in_view"])
    third = blind(HERE / "third")
    if third:
        found["third_study"] = third
        tell("the third study, blind", third)
        view = third_in_view(third["rows"], traces)
        found["third_study_in_view"] = view
        now = "this model" if view["model_sha256"] == model_sha256() else "an earlier model"
        tell(f"the third study, IN VIEW, not blind, by {now}", view["trace_alone"])
        tell("the same with the plain time known, IN VIEW", view["plain_time_known"])
    (HERE / "scores.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
