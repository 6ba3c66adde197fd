from click.testing import CliRunner

from profkit.cli import main


def test_hardware_lists_the_cards():
    result = CliRunner().invoke(main, ["hardware"])
    assert result.exit_code == 0
    assert "H200 SXM 141GB" in result.output
    assert "989 T" in result.output


def test_hardware_shows_one_card_by_the_name_in_a_recording(tmp_path):
    result = CliRunner(env={"PROFKIT_CALIBRATION": str(tmp_path)}).invoke(
        main, ["hardware", "--name", "NVIDIA H200"]
    )
    assert result.exit_code == 0
    assert "4.80 TB/s" in result.output
    assert "datasheet" in result.output


def test_an_unknown_card_is_one_line_and_exit_code_1():
    result = CliRunner().invoke(main, ["hardware", "--name", "Card 9000"])
    assert result.exit_code == 1
    assert "profkit hardware calibrate" in result.output


def test_calibrating_without_a_gpu_is_one_line():
    import pytest

    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    result = CliRunner().invoke(main, ["hardware", "calibrate"])
    assert result.exit_code == 1
    assert "no CUDA device" in result.output
