"""Kernels made faster, fused, removed; claims judged."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import replace
from tests.htk.whatif.small_step_model import Act, length, period, small_model

# 100, 40, 60, 20, 80 in a row: 300
STEP = (
    Act("gemm", 100, op="aten::mm"),
    Act("pow", 40, op="aten::pow", module="model.norm"),
    Act("mean", 60, op="aten::mean", module="model.norm"),
    Act("mul", 20, op="aten::mul", module="model.norm"),
    Act("gemm2", 80, op="aten::mm"),
)


def test_by_kernel_operator_and_module() -> None:
    model = small_model(STEP)
    assert period(model) == 300
    assert period(replace.apply(model, "^gemm=2x")) == 300 - 90
    assert period(replace.apply(model, "aten::mean=3x")) == 300 - 40
    assert period(replace.apply(model, r"model\.norm=4x")) == 300 - 90


def test_fused_reads_what_the_first_reads_and_writes_what_the_last_writes() -> None:
    """Half of 40 and half of 20; the one of 60 between them moves what fusing saves."""
    fused = replace.apply(small_model(STEP), r"model\.norm=fused")
    assert period(fused) == 100 + 30 + 80
    assert [length(fused, name) for name in ("pow", "mean", "mul")] == [30, 0, 0]


def test_kernels_apart_are_not_fused_with_each_other() -> None:
    assert period(replace.apply(small_model(STEP), "aten::mm=fused")) == 300


def test_gone() -> None:
    assert period(replace.apply(small_model(STEP), "pow=gone")) == 260


def test_a_claim_is_held_against_the_critical_path() -> None:
    # 120 of 300 are on it; 2x faster gives 300 / 240
    said = replace.apply(small_model(STEP), r"model\.norm=2x,claimed=1.594x").assumptions
    assert any("75 % of the critical path" in words for words in said)  # (1 - 1/1.594) / (1 - 1/2)
    assert any("40.0 %, which gives 1.250×" in words for words in said)


@pytest.mark.parametrize("value", ["x", "a=", "(=2x", "nothing=2x", "gemm=2x,claimed=much"])
def test_nonsense(value: str) -> None:
    with pytest.raises(UsageError, match="replace"):
        replace.apply(small_model(STEP), value)


def test_fusing_is_less_sure_than_a_factor() -> None:
    model = small_model(STEP)
    factor, fused = (replace.apply(model, f"model.norm={how}") for how in ("2x", "fused"))
    assert factor.spread["compute"] == 0.1 < fused.spread["compute"]
