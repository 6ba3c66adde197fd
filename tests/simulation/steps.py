"""Steps made by hand, ready to be changed."""

from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import find_step
from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from tests.advice.made_steps import ADD, loop

MS = 1_000_000
ROWS = [[8192, 4096], [8192, 4096]]
NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_kernel_cudnn"
)


def step_of(body, **options):
    views, _ = timelines([loop(body, **options)], Options())
    return find_step(views[0], 0)


def draft_of(body, constants=LIKELY):
    step = step_of(body)
    return EditedStep(step.facts, step.program, constants)


def two_adds(step, number):
    step.launch(ADD, 100, shapes=ROWS)
    step.launch(ADD, 100, shapes=ROWS)
