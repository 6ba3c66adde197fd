"""Which family a kernel belongs to, from its name: rules in order, the first that matches wins.

The rules are those of the name taxonomy in docs/models.md. They look at the function's own name first; only
wrappers that run any functor (``elementwise_kernel``, ``cutlass::Kernel``...) are told apart by their arguments.
"""

from __future__ import annotations

import re

from profkit.model.kernel_class import Family
from profkit.roofline.cpp_signature import Signature

__all__ = ["family_of"]


_F = Family
_RULES: tuple[tuple[Family, re.Pattern[str]], ...] = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        (_F.COMMUNICATION, r"^(?:n|r|one|h|x|m)ccl|nvshmem|cross_device_reduce|multimem_|two_shot_all_?reduce|one_shot_all_?reduce"
                           r"|all_?reduce_kernel|allgather_kernel|reduce_scatter_kernel|deep_?ep|intranode::|internode::"),
        (_F.FILL, r"rocclr_fillbuffer|^memset|init_device_workspace"),
        (_F.COPY, r"rocclr_copybuffer|^memcpy|catarraybatchedcopy|split_with_sizes_copy|chunk_cat|copy_out_contiguous|reshape_and_cache|store_kv|^copy_"),
        (_F.LAYOUT, r"nchwtonhwc|nhwctonchw|foldednhwc|generictranspose|converttensor|batched_transpose|addpadding|scalepackedtensor|cublastransposeparams"
                    r"|tensor_?transform|subtensorop|^transpose|cudnn.{0,200}transpose"),
        (_F.ATTENTION, r"flash_?(?:fwd|bwd|attn|attention)|flashattn|fmha|sdpa|memeffattention|attentionkernel"
                       r"|attentionbackwardkernel|paged_attention|kvcachekernel|_attn_(?:fwd|bwd)|attn_fwd|attn_bwd|flex_attention"
                       r"|compute_dot_do_o|convert_dq_to|sage_fwd|unified_attention|mla_decode|decode_attention|fwd_kernel_stage"
                       r"|^_fwd_kernel|^_bwd_kernel|triton_tem_fused.{0,200}attention"),
        (_F.CONVOLUTION, r"fprop|dgrad|wgrad|scudnn|hcudnn|\dcudnn_|winograd|convolve|implicit_gemm|conv_?depthwise|conv2d|conv3d|conv1d"
                         r"|im2col|col2im|vol2col|col2vol|miopensp3|igemm_(?:fwd|bwd|wrw)|naive_conv|cask.{0,200}offsetskernel|conv_kernel"
                         r"|cudnn.{0,200}(?:engine|alg1|grouped_direct)|^gtc_?conv|grouped_conv|gridwiseconv|pointwise_mult_and_sum_complex"
                         r"|im2d2col|triton_tem_fused.{0,200}conv"),
        (_F.GEMM, r"gemm|gemv|^nvjet|^cijk_|splitkreduce|epilogue::impl::globalkernel|^bmm_|^dot_kernel|reduce_1block|^scal_kernel|matmul|marlin"
                  r"|fused_moe_kernel|tinygemm|triton_mm|_mm_kernel|^triton_tem_fused|tensorop|xmma|_scaled_mm|magma_"),
        (_F.NORM, r"layer_?norm|batch_?norm|group_?norm|rms_?norm|instance_?norm|gammabeta|gradgammabeta|rowwisemoments|computefusedparams"
                  r"|computeinternalgradients|bn_(?:fw|bw)|cuapplylayernorm|ln_(?:fwd|bwd)|welford|batchnorm|norm_fwd|norm_bwd"
                  r"|computebackwardfusedparams"),
        (_F.SOFTMAX, r"softmax"),
        (_F.LOSS, r"nll_?loss|classnllcriterion|cross_?entropy|ctc_?loss|mse_kernel|multi_?margin"),
        (_F.OPTIMIZER, r"multi_tensor_apply|lpnorm_cleanup|lamb_|koptimizer|adam_|_adam|adam$|amp_update_scale|^multi_tensor|sgd_"),
        (_F.RANDOM, r"dropout|distribution_|masked_scale|curand|philox|rand_?perm"),
        (_F.INDEX, r"gather(?!topk)|scatter|index|(?<!rotary_)embedding|pooled_embs|compute_grad_weight|compute_num_of_partial|krn_partial|take_put|bucketize|masked_select"
                   r"|bounds_check"),
        (_F.SORT, r"sort|topk|computeblock|computedigit|reverse_indices|devicescan|scan_|_scan|deviceselect|devicemerge|uniquebykey|compactinit|histogram|rocprim"
                  r"|deviceruns|devicerunlength|cub::.{0,200}partition"),
        (_F.REDUCE, r"reduce|norm_kernel"),
        (_F.POOLING, r"pool|upsample|grid_sampl|interpolat|reflection_pad|replication_pad"),
        (_F.RECURRENT, r"lstm|gru_|rnn"),
        (_F.FFT, r"fft"),
        (_F.QUANTIZE, r"quant|fp8_cast|cast_transpose"),
        (_F.ELEMENTWISE, r"elementwise|pointwise|vectorized|unrolled|triu_tril|jitted_|foreach|_kernel_with_index|add_|mul_|silu|gelu|relu"
                         r"|sigmoid|rope|rotary|arange|fill"),
    )
)  # fmt: skip

_GENERIC = frozenset(
    {
        "elementwise_kernel", "vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "legacy_elementwise_kernel",
        "elementwise_kernel_manual_unroll", "vectorized_templated_elementwise_kernel", "elementwise_kernel_with_index",
    }
)  # fmt: skip
"""Wrappers of pointwise functors: whatever the functor is called, the work is pointwise."""
_WRAPPERS = frozenset({"kernel", "kernel2", "device_kernel", "kernel_entry", "triton_", ""})
_COPY_FUNCTOR = re.compile(
    r"(?:direct|float16|bfloat16|float8|complex\w{0,32})_copy_kernel|copy_kernel_cuda|copyfunctor|copy_device"
)
_FILL_FUNCTOR = re.compile(r"fillfunctor|zerofunctor|(?<!masked_)fill_kernel")
_MASK_FUNCTOR = re.compile(r"dropout|bernoulli")
_TRITON_KIND = re.compile(r"^triton_(poi|red|per|for|spl|tem)_fused")
_TRITON_NAMES: tuple[tuple[Family, re.Pattern[str]], ...] = (
    (_F.NORM, re.compile(r"norm|var_mean|welford|\A(?>.*?rsqrt_).*mean|\A(?>.*?mean_).*rsqrt|pow_rsqrt")),
    (_F.SOFTMAX, re.compile(r"softmax|\A(?>.*?amax)(?>.*?exp).*sum")),
    (_F.LOSS, re.compile(r"nll_loss|cross_entropy")),
    (_F.INDEX, re.compile(r"embedding|index|gather|scatter")),
)
_TRITON_DEFAULT = {
    "poi": _F.ELEMENTWISE,
    "red": _F.REDUCE,
    "per": _F.REDUCE,
    "for": _F.OPTIMIZER,
    "spl": _F.SORT,
}


def family_of(signature: Signature) -> Family:
    """The family of a kernel."""
    base = signature.base.lower()
    if base in _GENERIC:
        return _functor_family(signature.text.lower())
    triton = _TRITON_KIND.match(base)
    if triton and triton[1] != "tem":
        return _triton_family(base, triton[1])
    subject = signature.function.lower().replace("fbgemm_gpu::", "")
    if base in _WRAPPERS or subject.startswith("cutlass"):
        subject = signature.text.lower()
    for family, pattern in _RULES:
        if pattern.search(subject):
            return family
    return Family.OTHER


def _functor_family(text: str) -> Family:
    if _COPY_FUNCTOR.search(text):
        return Family.COPY
    if _FILL_FUNCTOR.search(text):
        return Family.FILL
    return Family.RANDOM if _MASK_FUNCTOR.search(text) else Family.ELEMENTWISE


def _triton_family(name: str, kind: str) -> Family:
    """Inductor's kernels: their name lists the operators that were fused, in the alphabet's order."""
    listed = name.partition("_fused_")[2]
    if kind == "poi" and re.fullmatch(
        r"(?:to_copy|clone|copy|view|t|permute|transpose|unsafe_view|cat|_|\d)*", listed
    ):  # with one way to read each name, so that none takes exponential time
        return Family.COPY
    if kind in ("red", "per"):
        for family, pattern in _TRITON_NAMES:
            if pattern.search(listed):
                return family
    return _TRITON_DEFAULT.get(kind, Family.ELEMENTWISE)
