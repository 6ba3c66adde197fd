"""Steps in which rules about how a model is written fire, and near misses."""

from tests.advice.made_steps import ADD, BF16_GEMM, GELU, GEMM_SHAPES
from tests.advice.steps_of_arithmetic import ROWS, bf16_products

NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
CONV = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"


def transposing(step, number):
    for _ in range(4):
        step.launch(NHWC, 60, operators=("aten::cudnn_convolution",))
        step.launch(CONV, 200, operators=("aten::cudnn_convolution",))


def laid_out(step, number):
    step.launch(NHWC, 4, operators=("aten::cudnn_convolution",))
    for _ in range(4):
        step.launch(CONV, 200, operators=("aten::cudnn_convolution",))


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*, int)"
SCORES = [[256, 512, 512], [256, 512, 64]]


def attention(step, number, product="aten::bmm", softmax="aten::_softmax"):
    step.launch(BF16_GEMM, 50, operators=(product,), shapes=SCORES)
    step.launch(ADD, 150, operators=("aten::masked_fill_",), shapes=[[256, 512, 512]])
    step.launch(SOFTMAX, 150, operators=(softmax,), shapes=[[256, 512, 512]])
    step.launch(BF16_GEMM, 50, operators=(product,), shapes=SCORES)


def classifying(step, number):
    attention(step, number, "aten::mm", "aten::_log_softmax")


def recomputing(step, number, again=True):
    for _ in range(2):
        step.launch(BF16_GEMM, 400, operators=("aten::addmm",), shapes=GEMM_SHAPES)
        step.launch(GELU, 80, operators=("aten::gelu",), shapes=ROWS)
    for _ in range(2):
        if again:
            step.backward(BF16_GEMM, 400, operators=("aten::addmm",), shapes=GEMM_SHAPES)
            step.backward(GELU, 80, operators=("aten::gelu",), shapes=ROWS)
        step.backward(BF16_GEMM, 800, operators=("aten::mm",), shapes=GEMM_SHAPES)


def keeping(step, number):
    recomputing(step, number, again=False)
    # Gradients of batched products are batched products.
    step.launch(BF16_GEMM, 100, operators=("aten::bmm",), shapes=SCORES)
    step.launch(BF16_GEMM, 100, operators=("aten::bmm",), shapes=SCORES)
    step.backward(BF16_GEMM, 100, "BmmBackward0", ("aten::bmm",), shapes=SCORES)
    step.backward(BF16_GEMM, 100, "BmmBackward0", ("aten::bmm",), shapes=SCORES)


def general_convolution(
    step,
    number,
    kernel="void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, true, false, true>(int)",
):
    step.launch(kernel, 900, operators=("aten::cudnn_convolution",))


def tuned_convolution(step, number):
    general_convolution(step, number, CONV)


SORT = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, long, unsigned int>::Policy900, false, long>(int)"


def indexing(step, number, node="IndexBackward0", inner="aten::_index_put_impl_"):
    bf16_products(step, number)
    step.backward(SORT, 200, node, (inner,))


def embedding(step, number):
    indexing(step, number, "EmbeddingBackward0", "aten::embedding_dense_backward")


def narrow(step, number, grid=8):
    step.launch(ADD, 300, grid_x=grid, grid_y=1, grid_z=1)


def wide(step, number):
    narrow(step, number, 4096)


def language_loss(step, number, classes=50_257, compiled=()):
    """Logits over a vocabulary, their loss, and its gradient."""
    logits = [[4096, classes], [4096]]
    step.launch(BF16_GEMM, 900, operators=("aten::mm",), shapes=GEMM_SHAPES)
    for name, us in (("aten::_log_softmax", 300), ("aten::nll_loss_forward", 20)):
        step.launch(ADD, us, operators=(name, "aten::cross_entropy_loss", *compiled), shapes=logits)
    step.backward(
        ADD,
        400,
        node="LogSoftmaxBackward0",
        operators=("aten::_log_softmax_backward_data", *compiled),
        shapes=logits,
    )


def loss_of_few_classes(step, number):
    language_loss(step, number, classes=1_000)
