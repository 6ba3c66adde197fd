"""Advice speaks to the program at hand: PyTorch or not, training or not, on whose GPU."""

import pytest

from profkit.advice import RULES
from profkit.advice.audience import Audience, audience_of, suited
from profkit.model import Device, RangeKind
from profkit.report.assembly import summarise
from profkit.report.views import Options, analysed_views
from tests.builders import TraceBuilder


def audience(made):
    (view,) = analysed_views([made.trace()], Options())
    return audience_of(view)


def by_name(**kind):
    chosen = Audience(**{"torch": True, "trains": True, "vendor": "nvidia", **kind})
    return {rule.id: made for rule in RULES if (made := suited(rule, chosen))}


@pytest.mark.parametrize(
    ("name", "torch", "trains"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>", False, False),
        ("stencil3d(float*, float const*, int)", False, False),
        ("nvkernel_main_F1L21_2", False, False),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            True,
            False,
        ),
        (
            "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>",
            True,
            True,
        ),
        ("void at::native::multi_tensor_apply_kernel<at::native::CopyFunctor<float>>", True, False),
    ],
)
def test_names_tell_what_kind_of_program_it_is(name, torch, trains):
    found = audience(TraceBuilder(threads=((0, ()),)).kernel(10, 1000, launch=(1, 2), name=name))
    assert (found.torch, found.trains) == (torch, trains)


def test_an_engine_of_autograd_trains_and_a_served_model_does_not():
    made = (
        TraceBuilder(threads=((0, ()),))
        .range(0, 9, "execute_context_1(8)")
        .range(1, 8, "aten::mm", kind=RangeKind.OPERATOR)
    )
    assert not audience(made.kernel(10, 1000, launch=(2, 3))).trains
    assert audience(
        TraceBuilder().range(0, 9, "aten::mm", kind=RangeKind.OPERATOR).kernel(10, 20, launch=(2, 3))
    ).trains


@pytest.mark.parametrize(
    ("device", "api", "vendor"),
    [
        ("NVIDIA H100 80GB HBM3", "cudaLaunchKernel", "nvidia"),
        ("AMD Instinct MI300X", "hipLaunchKernel", "amd"),
        (None, "hipExtModuleLaunchKernel", "amd"),
        ("Intel(R) Data Center GPU Max 1550", "urEnqueueKernelLaunch", "intel"),
    ],
)
def test_the_vendor_is_that_of_device_or_calls(device, api, vendor):
    made = TraceBuilder()
    made._devices = [Device(0, device)]
    assert audience(made.kernel(10, 1000, launch=(1, 2), api=api)).vendor == vendor


def test_no_advice_of_torch_for_a_program_without_it():
    assert by_name(torch=False) == {}
    made = TraceBuilder(threads=((0, ()),)).kernel(10, 1000, launch=(1, 2), name="stencil3d(float*, int)")
    report = summarise([made.trace()])
    codes = [finding.code for finding in report.health.findings]
    assert "no-torch" in codes
    assert "no-phases" not in codes
    assert list(report.advice) == []


def test_a_model_that_does_not_train_hears_nothing_of_training():
    for rule in by_name(trains=False).values():
        assert not any(
            word in f"{rule.title} {rule.action} {rule.code}"
            for word in ("backward", "optimizer", "loss", "register_comm_hook", "train", "profkit.record")
        ), rule.id
    assert {"fused-optimizer", "checkpoint-activations"} <= by_name().keys()
    assert "checkpoint-activations" not in by_name(trains=False)
    assert {"cuda-graphs", "torch-compile", "fused-attention"} <= by_name(trains=False).keys()


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("multi_tensor_apply_kernel<at::native::FusedAdam>", "no-phases"),
        ("at::native::copy_kernel", "no-ranges"),
        ("stencil3d(float*, int)", "no-torch"),
    ],
)
def test_only_a_program_that_trains_is_told_to_mark_phases(kernel, said):
    made = TraceBuilder(threads=((0, ()),)).kernel(10, 1000, launch=(1, 2), name=kernel)
    codes = {finding.code for finding in summarise([made.trace()]).health.findings}
    assert codes & {"no-phases", "no-ranges", "no-torch"} == {said}


def test_nothing_of_cuda_alone_on_other_vendors():
    for rule in by_name(vendor="intel").values():
        said = " ".join((rule.code, rule.action))
        assert not any(
            word in said for word in ("torch.cuda", "CUDA graph", "TF32", "PYTORCH_CUDA", '"cuda"')
        ), rule.id
    assert 'torch.autocast("xpu"' in by_name(vendor="intel")["bf16-autocast"].code
    assert "tf32" not in by_name(vendor="amd")
    assert "torch.cuda" in by_name(vendor="amd")["cuda-graphs"].code
