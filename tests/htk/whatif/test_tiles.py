"""Tiles of products, counted by hand from names, shapes and grids that H100 and B200 recorded."""

from pathlib import Path

import numpy as np
import pytest

from htk.base.columns.coded_texts import CodedTexts
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import batch
from htk.whatif.tiles import count_waves
from tests.htk.whatif.small_step_model import Act, length, small_model

SM90 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_5x_cublas"
NVJET = "nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN"
CUDA_13 = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
CUTLASS = (
    "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x256x64_2x1x1_0_tnn_align8"
    "_warpspecialized_cooperative_epi_tma"
)
AMPERE = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
KERNELS = (
    # name, shapes, grid, blocks per multiprocessor; tiles of a block, persistent
    (SM90, "[[8944,1024],[1024,1024]]", "[30,4,1]", 0.909, 70 * 8 / 120, True),
    (SM90, "[[8944,1024],[1024,2816]]", "[132,1,1]", 1.0, 70 * 22 / 132, True),
    (SM90, None, "[132,1,1]", 1.0, float("nan"), True),
    (NVJET, "[[2880],[888,512],[512,2880],[],[]]", "[140,1,1]", 0.946, 0.946, False),
    (CUDA_13, "[[32768,2048],[2048,8192]]", "[132,1,1]", 1.0, 128 * 64 / 132, True),
    (CUTLASS, "[[4096,4096],[4096,4096]]", "[2,66,1]", 1.0, 32 * 16 / 132, True),
    (AMPERE, "[[4096,4096],[4096,4096]]", "[16,32,1]", 4.74, 4.74, False),
    ("matmul_kernel_persistent", "[[4096,4096],[4096,4096]]", "[132,1,1]", 1.0, 1.0, False),
)


def test_tiles_of_a_block_by_hand() -> None:
    names, dims, grids, blocks, each, persistent = zip(*KERNELS, strict=True)
    columns = (CodedTexts.from_texts(texts) for texts in (names, dims, grids))
    found, is_persistent = count_waves(*columns, np.array(blocks))
    assert found.tolist() == pytest.approx(list(each), nan_ok=True)
    assert is_persistent.tolist() == list(persistent)


def test_no_kernels() -> None:
    empty = CodedTexts.from_texts([])
    found, persistent = count_waves(empty, empty, empty, np.empty(0))
    assert len(found) == len(persistent) == 0


@pytest.mark.parametrize("grid", [None, "", "[0,1,1]", "[99999999999999999999,1,1]"])
def test_grids_that_tell_nothing(grid: str | None) -> None:
    one = [CodedTexts.from_texts([text]) for text in (SM90, "[[8944,1024],[1024,1024]]", grid)]
    found, persistent = count_waves(*one, np.array([0.9]))
    assert (found.tolist(), persistent.tolist()) == ([0.9], [False])


def test_blocks_that_share_tiles_evenly_take_no_whole_waves() -> None:
    """4.67 tiles of a block: 1.5 times the rows take 1.5 times as long, not eight waves for five;
    where a wave is not full, more rows first fill it."""
    tokens = "[[64, 512], [512, {}]]"
    step = (
        Act("embed", 12_500, family="other", op="aten::embedding", dims="[[100, 512], [4, 16]]"),
        Act("even", 92_500, op="aten::mm", dims=tokens.format(512), blocks=4.67, persistent=True),
        Act("part", 92_500, op="aten::mm", dims=tokens.format(8), blocks=0.8, persistent=True),
    )
    grown = batch.apply(small_model(step), "1.5x")
    assert length(grown, "even") == 2_500 + 90_000 * 1.5
    assert length(grown, "part") == pytest.approx(2_500 + 90_000 * 1.2, abs=1)


def test_a_recorded_h100_step_of_half_more_tokens_is_not_doubled(shared: Path) -> None:
    """Each of its products launches one block for each multiprocessor, for 4.7 or 11.7 tiles."""
    path = shared / "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    model = build_baseline(open_trace(path, OpenOptions(cache=False)).tables).model
    assert model.facts.persistent.sum() > 150
    chosen = model.facts.persistent
    before, after = (m.lengths()[chosen].sum() for m in (model, batch.apply(model, "1.5x")))
    assert after / before == pytest.approx(1.5, rel=0.03)
