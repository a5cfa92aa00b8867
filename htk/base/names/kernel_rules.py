"""What words in a kernel's name tell: its family, its library.

In each table the first row that matches decides, so what is specific stands before what is general.
"""

from htk.base.names.ordered_rules import OrderedRules

# Asked of the function's own name in small letters, without template arguments, parameters and
# namespaces of libraries: those tell other functions' namespaces, accessors and functors.
FAMILIES = OrderedRules(
    (
        (
            "optimizer",
            "multi_tensor_apply adam_ adamw_ adamfunctor adamwfunctor adamkernel foreach lamb_"
            " sgd_ fusedoptim applyadam koptimizer",
        ),
        (
            "copy",  # before the owners of caches and layouts
            "reshape_and_cache kv_indices nchwtonhwc nhwctonchw batched_transpose cat_and_cache"
            " subtensorop store_kvcache store_cache set_kv_buffer copy_to_kv_cache concatmlak"
            " appendpagedkv appendkv permute_1d permute_2d permute_indices permute_pooled"
            " permute_sparse memset transdata zeroslike oneslike asstrided",
        ),
        (
            "elementwise",
            "rotary rope_ _rope ropekernel ropequant _hfp8 act_and_mul swiglu_kernel swiglu_fwd"
            " swiglu_bwd swiglu_forward swiglu_backward",
        ),
        (
            "embedding",
            "embedding bag_updateoutput _tbe nbit_forward bounds_check_indices split_eb_"
            " compute_grad_weight krn_partial partial_segments",
        ),
        (
            "moe",
            "moe topkgating topk_gating expert permute_tokens _combined_routing _bitmatrix"
            " _finalize_matmul"
            " silu_and_mul_masked grouped_topk routingmain routingindices routinginit",
        ),
        (
            "recurrent",  # linear attention, state spaces, recurrent networks
            "delta_rule gated_delta chunk_scan chunk_state chunk_gla chunk_kda _kda_ rwkv mamba"
            " selective_scan selective_state _state_passing fused_recurrent lstm gru_ rnn_block"
            " persistrnn",
        ),
        ("softmax", "attn_softmax"),
        (
            "attention",
            "flash fmha attention attn mha_ mla_ xqa sdpa paged_ prefillwith decodewith"
            " podwith merge_state mergestate sage_fwd qk_int reduce_segments lightning_indexer"
            " fp8_index_kernel indexer_(?:fwd|bwd) mqa_logits ^pa_ ::pa_ ^_bwd_preprocess"
            " ^bwd_kernel_"
            r" ^_(?:fwd|bwd)_(?:grouped_)?kernel(?:$|_stage|_alibi|_split|_dkdv|_dq|_fused)",
        ),
        (
            "convolution",
            "conv(?!er) wgrad dgrad fprop im2col im2d2col im3d2col col2im vol2col cask_cudnn"
            " winograd igemm_fwd igemm_bwd igemm_wrw bwd_weight bwd_data implicit_gemm fft2d"
            " 884cudnn 1688cudnn 16816cudnn scudnn hcudnn"
            " filtgemm calc_bias_diff",
        ),
        (
            "gemm",
            "gemm(?!a(?:_|$|rms)) cutlass cublas cijk_ splitk gemv nvjet _mm_ matmul"
            " dot_kernel wmma mfma xmma machete marlin bmm_ epilogue::impl scal_kernel fc-dtype"
            " wvspltk mul_mat_ scaled_mm",
        ),
        (
            "norm",
            "norm(?!al) welford rowwisemoments gammabeta bn_fw bn_bw ln_fwd ln_bwd fused_ln"
            " fused_residual_ln",
        ),
        ("loss", "nll_loss cross_entropy xentropy loss _jsd_ kldiv kl_div tv_distance"),
        ("softmax", "softmax soft_max"),
        ("reduction", "quantized_reduction dequant_reduce quantile"),
        ("elementwise", "quant _fp8 cast_transpose"),
        ("random", "topksampling toppsampling minpsampling samplingfrom random_sample mix_sample"),
        (
            "reduction",
            "reduce scan sort radix devicecompact histogram argmax argmin arg_max arg_min"
            " cumsum topk rocprim",
        ),
        (
            "copy",
            "catarray copy index gather scatter transpose permute pad fill chunk_cat aten::cat"
            " offsets_range to_dense_representation compute_cuda_kernel"
            " split_with_sizes slice roll_ flip tril triu arange recat jagged reorder",
        ),
        ("random", "philox distribution dropout rand"),
        ("reduction", "pool"),
        (
            "elementwise",
            "elementwise vectorized pointwise activation gelu geglu silu relu _add_ _mul_ scale"
            " clamp_position where dgated_act element_mul cast convert op_tensor optensor"
            " cudafunctor upsample"
            r" ^(?:aten::)?(?:add|sub|mul|div|sigmoid|tanh|exp|clamp)(?:\.\w+)?$"
            # CANN's, whose numbers count calls
            r" (?:^|_)(?:add|mul|sub|realdiv|exp|log|less|greater|greaterequal|logicalnot|logicalor"
            r"|square|reciprocal|axpy|addcmul|addcdiv|notequal)\d*$",
        ),
    )
)

# Names that Inductor writes: the kind of the kernel, then the operators of which it holds at least
# a part. What stands there may have been computed elsewhere (a copy of an attention's result), so
# only templates take the family of what they name.
INDUCTOR = OrderedRules(
    (
        ("attention", r"^triton_(?:tem_fused_\w*)?(?:flex_attention|flex_decoding)"),
        ("convolution", r"^triton_(?:tem_fused_\w*)?conv"),
        ("gemm", "triton_tem_ triton_mm triton_bmm triton_addmm triton_scaled_mm"),
        ("embedding", r"^triton_poi_fused_\w*embedding(?!_dense)"),
        ("loss", r"^triton_(?:red|per)_\w*(?:nll_loss|cross_entropy|mse_loss)"),
        ("norm", r"^triton_(?:red|per)_\w*(?:layer|group|batch|rms)_norm"),
        ("softmax", r"^triton_(?:red|per)_\w*softmax"),
        ("reduction", "triton_red_ triton_per_ triton_spl_ triton_split_scan_"),
        (
            "copy",
            r"^triton_poi_fused(?:_(?:_to_copy|_unsafe_view|view|clone|copy_?|cat|stack|slice|split"
            r"|transpose|permute|expand|select|squeeze|unsqueeze|t))+(?:_\d+)?$",
        ),
        ("elementwise", "triton_poi_ triton_for_"),
    )
)

# What a kernel that runs any function over elements does, from its template arguments.
FUNCTIONS = OrderedRules(
    (
        ("norm", "batch_norm group_norm layer_norm GroupNorm LayerNorm"),
        ("softmax", "softmax Softmax SoftMax soft_max"),
        ("loss", "nll_loss mse_loss smooth_l1 binary_cross_entropy kl_div"),
        ("random", "distribution dropout bernoulli philox Philox"),
        (
            "copy",
            "copy_kernel _scatter_gather index_kernel index_put FillFunctor arange linspace"
            " tril triu flip_ roll_ masked_fill masked_scatter",
        ),
        ("elementwise", "quantize Quantize"),
    )
)

# What runs over lists of tensors and is no step of an optimizer.
FOREACH = OrderedRules(
    (
        ("copy", "multi_tensor_apply.*(?:CopyFunctor|Copy<)"),
        ("reduction", "multi_tensor_apply.*(?:LpNorm|L2Norm|LpMax|MaxNorm)"),
        ("elementwise", "multi_tensor_apply.*(?:ScaleFunctor|AxpbyFunctor)"),
    )
)

LIBRARIES = OrderedRules(
    (
        (
            "triton",
            r"triton_ _triton_ _triton$ ^_[a-z][A-Za-z0-9_]+$ ^attn_fwd kernel_unified_attention"
            r" fused_moe_kernel ^(?:chunk|fused_recurrent)_\w*kernel",
        ),
        ("liger", "liger"),
        ("flash_mla", "flash_fwd_mla flash_fwd_splitkv_mla sparse_attn_fwd"),
        ("flash_attention", "flash_fwd flash_bwd FlashAttn FlashAttention flash::"),
        ("cutlass", "cutlass::"),
        ("flashinfer", "flashinfer"),
        (
            "tensorrt_llm",
            "tensorrt_llm trtllm fmhaSm FmhaSm ^bmm_ moe::dev fmha_v2_ xqa_kernel mmha::",
        ),
        ("vllm", "vllm"),
        ("sglang", "sglang ^sgl_ ::sgl_"),
        ("fbgemm", "fbgemm split_embedding dense_embedding_codegen bounds_check_indices"),
        ("deep_gemm", "deep_gemm"),
        ("transformer_engine", "transformer_engine ^te::"),
        (
            "cudnn",
            "cudnn xmma_fprop xmma_dgrad xmma_wgrad wgrad_alg dgrad_engine bn_fw_ bn_bw_",
        ),
        ("quack", "quack"),
        ("cutlass", "cutlass"),
        (
            "cublas",
            "cublas Cublas gemmSN gemv nvjet ampere_ volta_ turing_ maxwell_ _xmma_gemm"
            " splitKreduce gemmk1 sgemm_largek magma_sgemm scal_kernel epilogue::impl",
        ),
        ("hipblaslt", "_UserArgs_"),
        ("tensile", "^Cijk_"),
        ("miopen", "miopen MIOpen naive_conv ^igemm_ SubTensorOp ^batched_transpose"),
        ("aiter", "aiter"),
        ("ck", "^ck:: ^_ZN2ck kernel_gemm_xdl ck_tile"),
        ("aten", "at::native at_cuda_detail at::cuda"),
        ("apex", "cuApplyLayerNorm cuApplyRMSNorm cuComputePartGradGammaBeta"),
    )
)
