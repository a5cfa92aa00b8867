"""What words in a kernel's name tell of its use of matrix units.

In each table the first row that matches decides, so what is specific stands before what is general.
"""

from htk.base.names.ordered_rules import OrderedRules

# Whether a kernel of a family that multiplies does so on matrix units. Asked of the words of its
# own name, spelled `_volta_h884_cudnn_`.
MATRIX_UNITS = OrderedRules(
    (
        (False, "_ffma_ _simt_ _dl_ _sm50_ _gen9_ _wo_dot_"),
        (True, r"_w_dot_(?!reduce_) _tensorcore_ _winograd_.*_batched_gemm_ _wy_repr_"),
        (
            True,  # instructions, and libraries that use nothing else
            "_tensorop_ _xmma_ _wmma_ _mma_ _hmma_ _imma_ _dmma_ _bmma_ _qmma_ _gmma_ _hgmma_"
            " _igmma_ _qgmma_ _wgmma_ _umma_ _utcmma_ _tcgen05_ _xdl_ _xdlops_ _mmac_"
            " _dpas_ _nvjet_"
            r" _marlin_ _machete_ _(?:mfma|gtcx?)\d*_ _tensor\d+_"
            # What sums, and the shape of one instruction: s884, h1688, i8816, s161616.
            r" _[a-z](?:884|1688|16816|161616|8816|16832|88128|16864|168128|168256|64\d{3,6})_",
        ),
        (None, "_all_reduce_ _reduce_scatter_"),  # products that communicate, no sums
        (
            False,  # beside the products
            "_combine_ _convert_ _preprocess_ _postprocess_ _prepare_ _metadata_ _merge_ _offset_"
            " _offsets_ _routing_ _indices_ _histogram_ _gating_ _topk_ _permute_ _finalize_"
            " _reduce_ _kreduce_ _reduction_ _epilogue_impl_ _bias_diff_ _build_ _align_"
            " _args_ _init_"
            " _flip_ _im2_ _im2col_ _col2_ _vol2_ _bitmatrix_ _count_ _clear_"
            " _dot_do_ _grad_dot_ _odo_ _sum_od_"
            " _stage2_ _state_passing_ _fused_gate_ _dev_activation_ _sum_ _transform_ _layout_"
            " _schedule_ _router_ _lut_ _setup_ _publish_ _pack_ _scale_kernel_"
            r" _(?:scatter|sort)_kernel_ _sort_(?:cumsum|place|scales)_ _attn_res_ _selector_"
            r" _per_tensor_(?:amax|quant|scale)_kernel_ _attn_gate_ _save_ _seq_mix_"
            r" _siso_bwd_kernel_d(?:k|zdo)_ _[fb]prop_$ _fp4_quant_ _dequant_ _pre_matmul_"
            r" _res_matmul_ ^_causal_conv1_ _(?:q|kv|fp16)_to_(?:q|kv|fp16)_ _flatten_"
            " _correct_initial_ _local_cumsum_ _act_quant_ _weight_quant_ _seqlens_ _rng_state_"
            r" _counter_ _num_segments_ _align\d_",
        ),
        (
            False,  # products row by row, in plain arithmetic or through transforms
            "_dgemm_ _cgemm_ _zgemm_ _gcgemm_ _scudnn_ _dcudnn_ _gemv _gemm_sn_"
            " _gemmk1_ _dot_kernel_ _scal_ _naive_ _half_q_half_ _mul_mat_vec_ _winograd_"
            " _fft1_ _fft2_ _depthwise _grouped_direct_ _alg0_ _dgrad_engine_"
            " _lightning_indexer_kernel_vec_"
            " _conv1_ _multihead_ _decode_with_ _paged_attention_v _recurrent_ _selective_"
            r" _convolve_sgemm_ _wkv\d*_ _rwkv_(?:mix|channel_mixing)_ _delta_rule_update_"
            " _sub_intra_ _token_parallel_ _seq_chunk_cumsum_",
        ),
        (False, r"_sgemm_(?!.*_tf32_) _fmha_cutlass_[fb]_f32_.*_sm7[05]_"),
        (
            True,
            "_fmha_ _flash_ _deep_gemm_ _prefill_with_ _qk_int_ _gemm_xdl_ _fmoe_ _xqa_ _bmm_mxe"
            " _bmm_e2m1_ _bmm_e4m3_ _bmm_bfloat16_ _bmm_fp16_ _matmul_ogs_ _mat_mul_v[23]_"
            # Nodes of graphs, whose products CANN has cubes compute and Gaudi its matrix engine.
            r" ^_(?:batch_)?mat_mul\d+_$ ^_spatial_convolution_$ ^_batch_gemm_$"
            " ^_grouped_matmul_$ _ck_tile_kentry_.*_gemm_ _kernel_moe_gemm_"
            r" ^_fp8_index_kernel_(?:kernel_|$) _awq_linear_ ^_tl_indexer_fwd_kernel_"
            r" _mla_a\d+_w\d+_",
        ),
        (
            True,  # written in Triton with `tl.dot`, whose operands go to matrix units
            "^_attn_fwd_$ ^_fwd_kernel_$ ^_fwd_grouped_kernel_stage1_$ ^_kernel_unified_attention_"
            " ^_fused_moe_kernel_ ^_chunk_scan_fwd_ ^_chunk_state_fwd_"
            " ^_chunk_gated_delta_rule_fwd_"
            " ^_chunk_gla_fwd_ ^_bwd_kernel_dkdv ^_sage_fwd_ _block_scaled_mm_"
            r" ^_chunk_\w*_(?:fwd|bwd)_(?:[a-z]+_)*kernel_(?:h|o|d|inter|intra|wy)"
            " ^_chunk_state_ ^_chunk_scan_chunk_state_"
            " ^_chunk_scan_bwd_d(?:x|c|cb|states|d_acs_(?:prev|stable))_"
            " _siso_bwd_kernel_dqkv_ _rwkv6_fwd_cumsum_ _recompute_w_u_ _gemm_kernel_persistent_"
            " _gemm_kernel_descriptor_persistent_ ^_(?:array|jagged)_(?:jagged|dense)_bmm_"
            r" ^_moe_bwd_d(?:own_proj_|_w\d|_x) ^_fused_moe_(?:\w+_)?kernel_ ^_hstu_attn_"
            " ^_mla_(?:decode|prefill)_fwd_kernel_ ^_sparse_attn_prefill_kernel_"
            r" ^_parallel_(?:\w+_)?attn_ ^_attn_(?:fwd|bwd)_ _neighborhood_attention_ ^_delta_attn_"
            " ^_conv2_d_",
        ),
    )
)

# Of what Triton's own names call products, underscore first: `tl.dot` goes to matrix units.
TRITON_PRODUCTS = OrderedRules(
    (
        (None, "_tiled_"),
        (True, "_gemm_ _matmul_ _bmm_ _mm_ _tgmm_ _ptgmm_"),
    )
)

# Else the types of the operands, asked of the spelled words of the whole name.
_PRODUCT = "(?:gemm|matmul|mm|bmm|fprop|dgrad|wgrad|mqa_logits)"
# Two operands of few bits: a8w8 is activations and weights of 8.
_FEW_BITS = (
    "(?:x?(?:bf16|bfloat16|f16|fp16|half|e4m3|e5m2|fp8|e2m1|fp4|mxfp4|nvfp4|tf32|int8|s8|int4)"
    "|a(?:4|8|16)_w(?:4|8|16))"
)
MATRIX_TYPES = OrderedRules(
    (
        (False, "_wv_spli?t_k_.*_half_"),  # of bf16 the GPU decides, not the name
        # Of fp8 the first number, the threads of a wave: gfx12 has 32 and dot products, gfx9 64.
        (False, "_wv_split_kq_.*_e4m3_fn(?:uz)?_32_"),
        (True, "_wv_split_kq_.*_e4m3_fn(?:uz)?_64_"),
        (
            True,
            f"_{_PRODUCT}(?=_).*_{_FEW_BITS}_ _{_FEW_BITS}(?=_).*_{_PRODUCT}_"
            " _sparse_attn_fwd_kernel_.*_tma_params_",
        ),
    )
)

# Of no known family: what products and what none have in their names.
OTHER_WORK = OrderedRules(
    (
        (
            False,  # beside products, whose words they have
            "_hgrn_ _sub_intra_ _dplr_(?:fwd|bwd)_kernel_intra_$ _rcum_ _dgk_kernel_ _pack_qk_"
            " _parallax_(?:bwd_kernel_preprocess|decode_one_step)_ _vocab_parallel_ce_ _qk_bias_"
            " _normalize_qk_ _process_qkv_ _prepare_qkv_ _inverse_hadamard_"
            " _qk_cat_ _kv_trans_ _apply_penalty_ _noaux_tc_"
            " ^_chunk_(?:fwd|bwd)_kernel_d?h_reduction_",
        ),
        (
            True,  # products of blocks, as attention without a softmax is computed
            "_tensorcore_ _kkt_ _tgmm_ ^_gmm_kernel_ _down_proj_ _up_proj_ _recompute_w_u_"
            " ^_chunk(?:wise)?_(?:[a-z0-9]+_)*(?:fwd|bwd)_(?:[a-z0-9]+_)*"
            "(?:o|h|hu|u|v|k|dh|dhu|dv|do|dq|dk|dqk|dkv|dkg|dqke|dqkvg|dvwg|dvg|dqkg|au|inter)_"
            " ^_chunk(?:wise)?_(?:fwd|bwd)_kernel_ ^_chunk_(?:oja|gdn2)_(?:fwd|bwd)_"
            " ^_chunk_mesa_net_h_ ^_chunk_cumprod_householder_ ^_fused_chunk_ttt_"
            " ^_intra_chunk_preprocess_ ^_chunk_transform_qk_"
            " ^_parallel_(?:deltaformer|nsa|parallax|path|simple_gla)_ ^_simplicial_bwd_kv"
            r" ^_ff_a\d+_w\d+_ ^_transform_q_fwd_ ^_rot_(?:q|k)_ ^_linear_(?:add_)?$ _awq_linear_"
            " ^_la_persistent_",
        ),
        (
            None,  # words of products, with words of what is none
            "_proj_ _dot_ _qk_ _rot_ _mm_ _wy_ _linear_ _lce_ _chunk_ _chunkwise_ _chunks_ _intra_"
            " ^_parallel_ _routing_sigmoid_top1_ _hadamard_ _rht_ ^_fwd_kernel_ ^_fwd_grouped_",
        ),
        (
            False,  # tables, caches, messages, lists
            "_get_ _pack_ _unpack_ _packunpack_ _clean_ _cleanup_ _clear_ _initialize_ _id_ _ids_"
            r" _non_zero\d*_ _cache_ _lru_ _lfu_ _lxu_ _uncached_ _flush_ _lookup_ _publish_ _ack_"
            " _acks_ _dedup_ _remap_ _pruned_ _prune_ _bucketize_ _frequency_ _count_ _counts_"
            " _routing_ _route_ _router_ _hash_ _mask_ _meta_ _setup_ _init_ _wait_ _delay_ _print_"
            " _stats_ _indices_ _ptrs_ _lens_ _length_ _csr_ _perms_ _tag_ _find_ _unique_ _zch_"
            " _group_build_ _data_only_ _realtime_ _dummy_ _idx_ _words_ _bitmask_ _select_"
            " _sequential_ _update_output_ _descriptors_ _offsets_ _check_",
        ),
        (
            False,  # moves and formats
            " _cpy_ _d2_dcpy _set_rows_ _repeat_ _swap_ _contiguous_ _to_dense_ _jagged_"
            " _ragged_ _diag_ _to_float_ _float_to_ _exponent_ _shift_ _cat_ _finite_ _smooth_"
            " _transform4_ _concat_ _halos_ _shuffling_ _shuffle_ _tri_ _swizzle_ _unswizzle_"
            " _layout_ _reverse_"
            " _interleave_ _flatten_ _reconstruct_ _vector_set_ _extend_ _to_fp16_ _fp16_to_"
            r" _collect_ _compact\d*_",
        ),
        (
            False,  # arithmetic element by element, in rows and in steps of optimizers
            r"_clamp_ _softcap_ _abs_ _unary_ _operator_ _element_ _bias_ _softplus\d*_ _swish_"
            r" _snake_ _sigmoid_ _logsigmoid_ _\w*glu_ _xielu_ _logsumexp_ _addcmul_ _sparsemax_"
            r" _sum_ _max_ _segsum_ _sinkhorn_ _diff_ _residual_ _optimizer\d*_ _momentum_ _decay_"
            r" _mrope_ _sampling_ _weight_only_kernel_ _ce_ _rms_ _softmax\d*_ _acc_ _accumulate_"
            r" _auc_ _zipf_ _filter_ _fwht_ _hc_(?:comb|pre|post)_ _mhc_post_(?!pre_) _grpo_"
            " _transducer_joint_ _angle_ _k_update_ _gate_output_ _col_kernel_ _col_updates_"
            r" _larfg_ _sytd\d*_ _tridiagonal_ _gdr_(?:decode|update)_ _split_gdr_ _solve_tri_"
            " _penalty_ _sample_ _normalize_ _embed_ _amax_ _scalar_ _act_kernel_ _beta_"
            " _preprocess_ _rcp_ _dbias_ _correction_ _lse_",
        ),
    )
)

# Families without products, of which some kernels multiply too.
FUSED_PRODUCTS = OrderedRules(
    (
        (
            True,
            r"_kkt_(?!.*_sub_intra_) _scaled_dot_comba_ _up_proj_ _b_proj_ _fp[48]_bmm_"
            " _ttt_linear_ _grouped_kernel_stage1_ ^_linear_add_$ _nsa_kernel_topk_",
        ),
        (
            None,
            "^_swiglu_kernel_(?:forward|backward) ^_rotate_quantize_"
            " ^_fwd_kernel_fp8_$ ^_fwd_grouped_ _rht_"
            " _hadamard_quantize_",
        ),
        (False, "^_"),  # all others
    )
)
