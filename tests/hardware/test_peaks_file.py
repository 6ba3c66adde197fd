import pytest

from profkit.errors import OutputError, ReadError
from profkit.hardware import Gpu, keep_calibration, load_peaks

_TEXTS = {
    "card.toml": 'name = "Mine"\nbandwidth_gbs = 500\nbf16_tensor = 100.5\noverhead_ns = 800\n',
    "card.json": '{"name": "Mine", "bandwidth_gbs": 500, "bf16_tensor": 100.5, "overhead_ns": 800}',
    "card.csv": "name,bandwidth_gbs,bf16_tensor,fp64,overhead_ns\nMine,500,100.5,,800\n",
}


@pytest.mark.parametrize("file", _TEXTS)
def test_peaks_are_read_from_any_of_three_formats(tmp_path, file):
    path = tmp_path / file
    path.write_text(_TEXTS[file])
    gpu = load_peaks(path)
    assert (gpu.name, gpu.bandwidth_bytes_per_s, gpu.overhead_ns) == ("Mine", 500e9, 800.0)
    assert gpu.peak("bf16", "tensor") == pytest.approx(100.5e12)
    assert gpu.peak("fp64", "vector") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"bf16": 100}', "unknown key 'bf16'"),
        ('{"bf16_tensor": -1}', "not a positive number"),
        ('{"bf16_tensor": true}', "not a positive number"),
        ('{"bf16_tensor": "NaN"}', "not a positive number"),
        ('{"name": "x"}', "lists no peak"),
        ("{", "neither TOML, JSON nor CSV"),
        ("[1, 2]", "lists no peak|not one table|unknown key"),
        ("", "neither TOML, JSON nor CSV"),
        ("[" * 100_000, "neither|not one|unknown key|lists no peak"),
    ],
)
def test_a_bad_peaks_file_says_what_is_wrong(tmp_path, text, problem):
    path = tmp_path / "peaks.json"
    path.write_text(text)
    with pytest.raises(ReadError, match=problem):
        load_peaks(path)


def test_a_missing_peaks_file_is_one_line(tmp_path):
    with pytest.raises(ReadError, match="No such file"):
        load_peaks(tmp_path / "none.toml")


def test_a_binary_is_no_peaks_file(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\0\0")
    with pytest.raises(ReadError, match="not a text file"):
        load_peaks(tmp_path / "x.toml")


def test_a_kept_calibration_reads_back(tmp_path):
    gpu = Gpu(
        name="Mine", sm_count=12, bandwidth_bytes_per_s=5e11, peaks={("tf32", "tensor"): 3e13}, overhead_ns=850.0, queue_ns=900.0,
        source="measured",
    )  # fmt: skip
    again = load_peaks(keep_calibration(gpu, tmp_path / "deep" / "mine.json"))
    assert (again.name, again.sm_count, again.peaks) == ("Mine", 12, gpu.peaks)
    assert (again.overhead_ns, again.queue_ns, again.source) == (850.0, 900.0, "measured")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="another file"):
        keep_calibration(Gpu(name="x"), tmp_path / "file" / "y.json")
