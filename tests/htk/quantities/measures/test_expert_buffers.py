"""Experts whose weights no argument shows: sizes by what the products write, and their kernels."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

TENSORRT = "bmm_{0}_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_rM_TN_transOut_tmaOpt_{1}dynBatch_sm100f"
FIRST, SECOND = TENSORRT.format("MxE4m3", "swiGlu_"), TENSORRT.format("Bfloat16", "")
TRITON = (
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_1",
)
BF16 = "c10::BFloat16"
INT, BYTE, WIDE = "3", "0", "15"
ROUTED = ([20, 4], INT)  # of 20 tokens each goes to 4 of 32 experts
HIDDEN = 64


def made(start: float, sizes: list[int], kind: str) -> Event:
    call = op("aten::empty", start, 0.5)
    call["args"] |= {
        "Input Dims": [[], []],
        "Input type": ["ScalarList", "Scalar"],
        "Concrete Inputs": [str(sizes), kind],
    }
    return call


def mixture(
    folder: Path, buffers: list[tuple[list[int], str]], names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Two calls that are alike, of 20 tokens and 32 experts."""
    events: list[Event] = []
    for n, start in enumerate((0, 100)):
        call = op("vllm::moe_forward", start, 50)
        call["args"] |= {"Input Dims": [[20, HIDDEN], [20, 32], []], "Input type": [BF16, BF16, ""]}
        events.append(call)
        events += [made(start + 1 + k, *buffer) for k, buffer in enumerate(buffers)]
        for k, name in enumerate(names):
            number = 10 * n + k + 1
            events.append(launch(number, start + 30 + 2 * k))
            events.append(kernel(name, start + 60 + 5 * k, 4, number))
    path = write(folder / "t.json", *events, **of_rank(0))
    return list(ask_trace(open_trace(path, OpenOptions(cache=False)), "roofline", n=0).to_pylist())


@pytest.mark.parametrize(("names", "scales"), [((FIRST, SECOND), 32), (TRITON, 32)])
def test_sizes_are_those_of_what_the_products_write(
    tmp_path: Path, names: tuple[str, str], scales: int
) -> None:
    """80 rows through 64 → 2 · 48 and 48 → 64; rows are padded to 96; all 32 experts are read."""
    buffers = [ROUTED, ([512], INT), ([96, 48], BYTE), ([96, HIDDEN], WIDE)]
    (row,) = mixture(tmp_path, buffers, (*names, "finalize"))
    assert (row["count"], row["kernels"], row["family"]) == (2, 6, "moe")
    assert row["flops_per_call"] == 2 * 80 * HIDDEN * (2 * 48) + 2 * 80 * 48 * HIDDEN
    weights = 32 * 3 * 48 * HIDDEN
    states = 2 * 2 * 20 * HIDDEN + 2 * 20 * 32
    assert row["bytes_per_call"] == weights / 2 + weights / scales + states
    assert "buffers" in row["note"]


def test_experts_as_wide_as_the_model_without_a_gate(tmp_path: Path) -> None:
    buffers = [ROUTED, ([1, 96, HIDDEN], WIDE), ([96, HIDDEN], WIDE)]
    (row,) = mixture(tmp_path, buffers, (SECOND,))
    assert row["flops_per_call"] == 2 * 2 * 80 * HIDDEN * HIDDEN


def test_a_mixture_that_makes_nothing_is_not_told(tmp_path: Path) -> None:
    (row,) = mixture(tmp_path, [], (FIRST,))
    assert (row["flops_per_call"], row["note"]) == (None, "sizes of experts not recorded")
