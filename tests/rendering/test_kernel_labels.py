"""Kernels that share a name for people are told apart by what differs in their own."""

import pytest

from profkit.rendering.kernel_labels import told_apart

BATCH_NORM = "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, {}, true, 1>(float, float)"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([BATCH_NORM.format(128), BATCH_NORM.format(32), BATCH_NORM.format(512)], ["128", "32", "512"]),
        (["_matmul_16x128x256x1", "_matmul_16x128x256x1_swiglu"], ["", "swiglu"]),
        (["igemm_bwd_nhwc_bt256", "igemm_fwd_nhwc_bt256"], ["bwd", "fwd"]),
        (["k_A1_B1_C", "k_A1_B2_C", "k_A2_B1_C"], ["A1 B1", "B2", "A2"]),
        (["k_LBSPPA1024_x", "k_LBSPPA1280_x"], ["LBSPPA1024", "LBSPPA1280"]),
        (["winogradForwardData4x4<float>", "winogradForwardOutput4x4<float>"], ["Data4x4", "Output4x4"]),
        (["winogradForwardData4x4<float>", "winogradForwardDelta4x4<float>"], ["Data4x4", "Delta4x4"]),
    ],
)  # fmt: skip
def test_what_differs_stands_behind_the_label(names, words):
    told = told_apart(["conv"] * len(names), names)

    assert told == [f"conv · {each}" if each else "conv" for each in words]
    assert len(set(told)) == len(told)


def test_a_label_of_one_kernel_stays_and_a_long_one_leaves_room():
    labels = ["gelu", "x" * 60, "x" * 60]
    told = told_apart(labels, ["gelu_kernel<1>", "f<true>", "f<false>"])

    assert told[0] == "gelu"
    assert told[1].endswith("… · true")
    assert told[2].endswith("… · false")
    assert all(len(each) <= 43 for each in told)
    assert told_apart([], []) == []


def test_names_that_differ_in_no_word_share_their_label():
    assert told_apart(["f", "f"], ["f<1, 2>", "f<2, 1>"]) == ["f", "f"]
