import pytest

from profkit.hardware import Gpu, all_gpus, find_gpu, keep_calibration


@pytest.fixture(autouse=True)
def _no_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("PROFKIT_CALIBRATION", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H200", "H200 SXM 141GB"),
        ("NVIDIA H200 NVL", "H200 NVL 141GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB"),
        ("NVIDIA GH200 480GB", "GH200 (96GB HBM3)"),
        ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA GB200", "GB200 (per GPU)"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX 4080 SUPER"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI250X", "MI250X (one GCD)"),
    ],
)
def test_a_device_name_finds_its_card(name, card):
    assert find_gpu(name).name == card


@pytest.mark.parametrize(
    "name",
    ["", "x" * 100_000, "NVIDIA GeForce RTX 3060 Ti", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU",
     "NVIDIA GeForce RTX 4070 SUPER", "AMD Radeon Graphics", "CPU"],
)  # fmt: skip
def test_a_card_that_is_not_in_the_table_is_not_guessed(name):
    assert find_gpu(name) is None


def test_memory_decides_between_cards_of_one_name():
    assert find_gpu("NVIDIA A100", memory_bytes=40 * 10**9).name == "A100-SXM4-40GB"
    assert find_gpu("NVIDIA A100", memory_bytes=80 * 10**9).name == "A100-SXM4-80GB"


def test_a_mig_slice_has_its_part_of_the_rates():
    whole = find_gpu("NVIDIA A100-SXM4-40GB")
    part = find_gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb", sm_count=14, memory_bytes=4_980_736_000)
    assert part.peak("bf16", "tensor") == pytest.approx(whole.peak("bf16", "tensor") * 14 / 108)
    assert part.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s / 8)
    assert part.l2_bytes == pytest.approx(whole.l2_bytes / 8)
    named = find_gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb")
    assert named.peak("bf16", "tensor") == pytest.approx(whole.peak("bf16", "tensor") * 3 / 8)
    assert named.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s / 2)


def test_a_variant_with_more_cores_is_scaled():
    assert find_gpu("NVIDIA GeForce RTX 3080", sm_count=70).peak("fp32", "vector") == pytest.approx(
        29.8e12 * 70 / 68
    )


def test_what_the_recording_states_wins_over_the_table():
    gpu = find_gpu("NVIDIA H200", bandwidth_bytes_per_s=4.814e12, l2_bytes=60 * 2**20)
    assert (gpu.bandwidth_bytes_per_s, gpu.l2_bytes) == (4.814e12, 60 * 2**20)


def test_rates_are_dense_and_by_accumulator():
    h100, consumer = find_gpu("NVIDIA H100 80GB HBM3"), find_gpu("NVIDIA GeForce RTX 3090")
    assert h100.peak("bf16", "tensor") == pytest.approx(989.4e12)
    assert h100.peak("fp32", "vector") == pytest.approx(66.9e12)
    assert consumer.peak("fp16", "tensor") == pytest.approx(71.2e12)
    assert consumer.peak("fp16", "tensor_fp16acc") == pytest.approx(142.3e12)
    assert find_gpu("Tesla V100-SXM2-16GB").peak("bf16", "tensor") is None


def test_every_card_can_bound_a_kernel():
    for gpu in all_gpus():
        assert gpu.bandwidth_bytes_per_s > 1e11, gpu.name
        assert gpu.peak("fp32", "vector") > 1e12, gpu.name
        assert all((gpu.sm_count, gpu.l2_bytes, gpu.source)), gpu.name
        tensor = gpu.peak("fp16", "tensor")
        assert tensor is None or tensor > gpu.peak("fp32", "vector"), gpu.name


def test_what_was_measured_gives_the_fixed_times_of_a_known_card():
    keep_calibration(
        Gpu(name="NVIDIA H200", peaks={("bf16", "tensor"): 7e14}, overhead_ns=800.0, queue_ns=1500.0)
    )
    gpu = find_gpu("NVIDIA H200")
    assert (gpu.overhead_ns, gpu.queue_ns) == (800.0, 1500.0)
    assert gpu.peak("bf16", "tensor") == pytest.approx(989.4e12)


def test_an_unknown_card_that_was_measured_is_known():
    measured = Gpu(
        name="Card 9000", bandwidth_bytes_per_s=1e12, peaks={("bf16", "tensor"): 1e14}, overhead_ns=900.0
    )
    keep_calibration(measured)
    assert find_gpu("Card 9000").peak("bf16", "tensor") == pytest.approx(1e14)
    assert find_gpu("Card 9001") is None


def test_a_broken_calibration_is_passed_over(tmp_path):
    (tmp_path / "nvidia-h200.json").write_text("{")
    assert find_gpu("NVIDIA H200").name == "H200 SXM 141GB"
