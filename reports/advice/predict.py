"""Predict every pair from the trace of its first side, before the second is timed: writes a new predictions file.

Predictions are frozen. ``predictions.json`` is the first model's; each later model writes the next free
``predictions_N.json`` beside it, and ``score.py`` scores them all. Each prediction carries the SHA-256 of the trace that
it was made from, and from the second file on that of the model's source. Nothing but the trace is read: not
``before.json`` with the plain times. Commit the result before ``record_pairs.py after`` is run: once ``data/after.json``
is there, this script refuses.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from profkit.advice import advise  # noqa: E402
from profkit.readers import read  # noqa: E402
from profkit.report.assembly import timelines  # noqa: E402
from profkit.report.views import Options  # noqa: E402
from profkit.simulation import changes_named, find_step  # noqa: E402

PAIRS: dict[str, tuple[list[str], int | None]] = {
    "attention_2048": (["fused-attention"], None),
    "attention_512": (["fused-attention"], None),
    "bf16_convnet": (["bf16"], None),
    "bf16_gpt_fp32": (["bf16"], None),
    "bf16_gpt_tf32": (["bf16"], None),
    "bf16_small_mlp": (["bf16"], None),
    "bf16_wide_mlp_tf32": (["bf16"], None),
    "channels_last_bf16": (["channels-last"], None),
    "channels_last_fp32": (["channels-last"], None),
    "checkpoint_removed": (["no-checkpointing"], None),
    "compile_chain": (["compile"], None),
    "compile_convnet": (["compile"], None),
    "compile_gpt_bf16": (["compile"], None),
    "compile_gpt_short": (["compile"], None),
    "compile_gpt_tf32": (["compile"], None),
    "compile_norm_chain": (["compile"], None),
    "compile_wide_mlp": (["compile"], None),
    "cudnn_benchmark": ([], None),
    "empty_cache": (["no-allocation"], None),
    "foreach_single_mlp": (["foreach-optimizer"], None),
    "fp64_mlp": (["fp32"], None),
    "fp64_mlp_tf32": (["fp32", "tf32"], None),
    "fused_foreach_gpt": (["fused-optimizer"], None),
    "fused_foreach_heavy_mlp": (["fused-optimizer"], None),
    "fused_foreach_mlp": (["fused-optimizer"], None),
    "fused_single_gpt": (["fused-optimizer"], None),
    "fused_single_mlp": (["fused-optimizer"], None),
    "graph_gpt_long": (["cuda-graphs"], None),
    "graph_gpt_short": (["cuda-graphs"], None),
    "graph_tiny_mlp": (["cuda-graphs"], None),
    "item_gpu_bound": (["no-sync"], None),
    "item_host_bound": (["no-sync"], None),
    "loader_4_workers": ([], 4),
    "loader_8_workers": ([], 8),
    "pinned_prefetch": (["pinned"], None),
    "tf32_gpt": (["tf32"], None),
    "tf32_small_mlp": (["tf32"], None),
    "tf32_wide_mlp": (["tf32"], None),
    "tuned_gpt": ([], None),
    "vocabulary": (["aligned"], None),
    "zero_grad_gpt": (["set-to-none"], None),
}


def predict(name: str) -> dict[str, object]:
    names, workers = PAIRS[name]
    return from_trace(HERE / "data" / f"{name}.json.gz", names, workers)


def from_trace(
    path: Path, names: list[str], workers: int | None, plain_step_ns: int | None = None
) -> dict[str, object]:
    """What the model says of a change, from a trace of the first side and, if given, its plain time."""
    views, _ = timelines([read(path)], Options(plain_step_ns=plain_step_ns))
    step = find_step(views[0], 0)
    if step is None:
        raise SystemExit(f"{path.name}: no step to replay")
    changes = changes_named(names, workers)
    found = step.predict(changes)
    device_saved = step.changed([])[0].device_busy_ns - step.changed(changes)[0].device_busy_ns
    return {
        "trace_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "changes": [*names, *([f"loader-workers {workers}"] if workers else [])],
        "before_ms": round(found.before_ns / 1e6, 4),
        "after_ms": round(found.after_ns / 1e6, 4),
        "speedup": {k: round(getattr(found, k), 4) for k in ("low", "likely", "high")},
        "limit": found.limit,
        # Amdahl: the device's time that the change saves, taken off the step as if nothing else held it up.
        "amdahl_speedup": round(found.before_ns / max(found.before_ns - device_saved, 1.0), 4),
        "advice": {r.id: r.speedup and round(r.speedup.likely, 3) for r in advise(views)},
    }


def model_sha256() -> str:
    """Of the source that a prediction depends on: reading, analysis and the cards."""
    found = hashlib.sha256()
    for folder in ("hardware", "model", "readers", "timeline", "roofline", "ranks", "simulation", "advice"):
        for path in sorted((HERE.parents[1] / "profkit" / folder).rglob("*")):
            if path.suffix in (".py", ".csv"):
                found.update(path.relative_to(HERE.parents[1]).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def prediction_files() -> list[Path]:
    """The frozen predictions, oldest first."""
    return sorted(
        HERE.glob("predictions*.json"), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)]
    )


def main() -> None:
    if (HERE / "data" / "after.json").exists():
        raise SystemExit("data/after.json is there: what is known cannot be predicted")
    before, model = prediction_files(), model_sha256()
    if before and json.loads(before[-1].read_text()).get("model_sha256") == model:
        raise SystemExit(f"{before[-1].name} is of this very model: nothing to add")
    out = HERE / (f"predictions_{len(before) + 1}.json" if before else "predictions.json")
    with out.open("x") as file:
        json.dump({"model_sha256": model, **{name: predict(name) for name in PAIRS}}, file, indent=1)
        file.write("\n")
    print(f"{len(PAIRS)} predictions in {out.name}: commit it before the second sides are timed")


if __name__ == "__main__":
    main()
