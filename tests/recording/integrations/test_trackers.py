"""The folder of a recording in MLflow, Weights & Biases and TensorBoard, as docs/recording.md shows it."""

import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from profkit import api  # noqa: E402
from profkit.recording.run_script import recorded  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FILES = ["report.profkit.html", "run.json", "trace.json.gz"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What ``profkit record torch --analyze`` leaves."""
    folder = tmp_path_factory.mktemp("runs") / "today"
    with recorded({"folder": str(folder)}) as recorder:
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(9):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    api.analyze(recorder.files).save(folder / "report.profkit.html")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    return folder


def tracker(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"SKIPPED LOUDLY: {name} is not installed")


def test_mlflow_takes_the_folder(run, tmp_path, monkeypatch):
    mlflow = tracker("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as active:
        mlflow.log_artifacts(str(run), "profkit")
    (kept,) = tmp_path.glob(f"mlruns/*/{active.info.run_id}/artifacts/profkit")
    assert sorted(path.name for path in kept.iterdir()) == FILES
    assert (kept / FILES[0]).read_bytes() == (run / FILES[0]).read_bytes()


def test_weights_and_biases_take_the_folder(run):
    wandb = tracker("wandb")
    artifact = wandb.Artifact("profkit", type="profile")
    artifact.add_dir(str(run))
    assert sorted(artifact.manifest.entries) == FILES


def test_tensorboard_takes_the_text(run, tmp_path):
    tracker("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    command = [sys.executable, "-m", "profkit", "analyze", str(run), "--format", "md", "-o", "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("profkit", text)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (event,) = events.Tensors("profkit/text_summary")
    assert event.tensor_proto.string_val[0].decode() == text
