"""The precision map against counted tensor pipes: every product of the counted programs agrees."""

import gzip
import json
import runpy
import shutil
from pathlib import Path

from tests.shared import DATA

SCRIPT = Path(__file__).parents[2] / "reports" / "precision" / "tensor_cores.py"


def test_the_map_agrees_with_the_tensor_pipe_of_every_counted_product(tmp_path):
    for name in ("convnet", "mixed"):
        shutil.copy(DATA / "ncu" / f"{name}.json.gz", tmp_path)
        (tmp_path / f"{name}.csv").write_bytes(
            gzip.decompress((DATA / "ncu" / f"{name}.csv.gz").read_bytes())
        )

    runpy.run_path(str(SCRIPT))["score"](tmp_path)

    found = json.loads((tmp_path / "scores.json").read_text())
    assert found["agree"] == found["kernels"] > 50
    assert {row["map"] for row in found["rows"]} == {True}
