"""RMSNorms are found without modules, by the operators that make one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from htk.base.schema import DERIVED
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import replace
from htk.whatif.rms_norms import rms_norms
from tests.htk.whatif.small_step_model import Act, KnownFacts, period, small_model

HALF = ("copy_", "pow", "mean", "add", "rsqrt", "mul", "copy_", "mul")  # computed in fp32
SINGLE = ("pow", "mean", "add", "rsqrt", "mul", "mul")


def step(*operators: str, backward: bool = False) -> list[Act]:
    return [
        Act(f"{name}{k}", 10, op=f"aten::{name}", family="elementwise", backward=backward)
        for k, name in enumerate(operators)
    ]


def named(acts: list[Act]) -> tuple[list[str], int]:
    model = small_model(acts)
    chosen, count = rms_norms(model)
    names = model.graph.activities.names
    codes = model.graph.activities.name[chosen].tolist()
    return [names[code] for code in codes], count


@pytest.mark.parametrize("norm", [HALF, SINGLE])
def test_what_runs_before_and_after_is_not_of_it(norm: tuple[str, ...]) -> None:
    found, count = named(step("mm", "add", *norm, "mm", "silu", "mul", "mm", "add", *norm, "mm"))
    assert count == 2
    assert found[: len(norm)] == [f"{name}{2 + k}" for k, name in enumerate(norm)]
    second = 2 + len(norm) + 5
    assert found[len(norm) :] == [f"{name}{second + k}" for k, name in enumerate(norm)]


@pytest.mark.parametrize(
    "other",
    [
        ("pow", "mean", "add", "sqrt", "div", "mul"),  # written with a division
        ("mean", "sub", "pow", "mean", "add", "div"),  # a LayerNorm by hand
        ("pow", "sum", "sqrt", "clamp_min", "expand", "div"),  # normalize()
    ],
)
def test_other_norms_are_not_taken_for_one(other: tuple[str, ...]) -> None:
    assert named(step("mm", *other, "mm")) == ([], 0)


def test_the_backward_pass_is_that_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = [*step("mm", *SINGLE, "mm"), *step("mm", "mul", "mul", "pow", "mm", backward=True)]
    monkeypatch.setattr(KnownFacts, "op_row", property(lambda facts: np.arange(len(facts.rows))))
    model = small_model(acts)
    forward = [-1] * 8 + [7, 6, 5, 1, 0]  # of mm, mul, mul, pow, mm
    schema = DERIVED["op_links"]
    columns = [
        pa.array(forward, field.type) if field.name == "forward_row" else pa.nulls(13, field.type)
        for field in schema
    ]
    model.facts.tables["op_links"] = pa.table(columns, schema=schema)  # type: ignore[index]
    chosen, count = rms_norms(model)
    assert count == 1
    assert chosen.tolist() == [False] + [True] * 6 + [False] * 2 + [True] * 3 + [False]


def test_replace_finds_them_where_nothing_bears_the_name() -> None:
    model = small_model(step("mm", *HALF, "mm"))
    assert period(model) == 100
    fused = replace.apply(model, "RMSNorm=fused")
    assert period(fused) == 30
    assert "1 norm told by operators: pow, mean, rsqrt, mul" in fused.assumptions
    assert period(replace.apply(model, "rms_norm=2x")) == 60


def test_operators_find_the_same_kernels_as_recorded_modules(shared: Path) -> None:
    trace = shared / "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    model = build_baseline(open_trace(str(trace)).tables).model
    chosen, count = rms_norms(model)
    assert count == 49  # two of each of 24 layers, and the last
    modules = np.array(["RMSNorm" in (module or "") for module in model.facts.module])
    assert (chosen == modules).all()
