"""The precision map against counted tensor pipes: every product of the counted programs agrees."""

import json
import runpy
import shutil
from collections import Counter
from pathlib import Path

REPORT = Path(__file__).parents[2] / "reports" / "precision"


def test_the_map_agrees_with_the_tensor_pipe_of_every_counted_product(tmp_path):
    shutil.copytree(REPORT / "h200", tmp_path, dirs_exist_ok=True)

    runpy.run_path(str(REPORT / "tensor_cores.py"))["score"](tmp_path)

    found = json.loads((tmp_path / "scores.json").read_text())
    assert found["agree"] == found["kernels"] > 150
    assert not found["unknown"]
    units = Counter((row["group"], row["map"]) for row in found["rows"])
    assert units["bf16", True] > 15
    assert units["conv_fp32", False] > 10
    assert not units["fp32", True]


def test_what_the_pipe_runs_beside_matrix_instructions_is_no_product(tmp_path):
    """Kernels of CUDA cores have instructions on the tensor pipe: up to 2 % of its peak, one a cycle."""
    shutil.copytree(REPORT / "h200", tmp_path, dirs_exist_ok=True)
    runpy.run_path(str(REPORT / "tensor_cores.py"))["score"](tmp_path)
    rows = json.loads((tmp_path / "scores.json").read_text())["rows"]
    vector = [row["pipe_cycles_percent"] for row in rows if not row["map"]]

    assert 1 < max(vector) < 2
    assert all(
        row["pipe_cycles_percent"] >= 1.9 * row["pipe_instructions_percent"] for row in rows if row["map"]
    )
