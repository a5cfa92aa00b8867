"""Chains that one kernel could be: a planted RMSNorm, whose bytes and gain follow by hand."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.names.fused import fused_implementation
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

N = 1024
X, ROWS = 4 * N * N, 4 * N  # bytes of an activation, and of a number for each of its rows
WIDE, NARROW, WEIGHT = [N, N], [N, 1], [N]
# Name, shapes, values, bytes moved: each kernel takes 1 ns for 1,000 of them.
NORM: list[tuple[str, list[Any], list[str], int]] = [
    ("aten::pow", [WIDE, []], ["", "2"], 2 * X),
    ("aten::mean", [WIDE, [], [], []], ["", "[-1]", "True", ""], X + ROWS),
    ("aten::add", [NARROW, [], []], ["", "1e-6", "1"], 2 * ROWS),
    ("aten::rsqrt", [NARROW], [""], 2 * ROWS),
    ("aten::mul", [WIDE, NARROW], ["", ""], 2 * X + ROWS),
    ("aten::mul", [WEIGHT, WIDE], ["", ""], 2 * X + 4 * N),
]
LAYERS, STEPS = 3, 5
READ_AGAIN = 2 * X + 3 * ROWS  # the square, mean, sum and root, and what is scaled
REST = 2 * X + 4 * N + X  # x, twice; the weight; the result
PRODUCT_US = 100.0


def recording(
    path: Path, *, shapes: bool = True, steps: int = STEPS, carried_us: float = 0.0
) -> Path:
    """Write steps of planted norms; `carried_us`: time of a kernel launched before them."""
    events: list[Event] = [kernel("gemm", 0, carried_us, 10**6)] if carried_us else []
    correlation, cpu, gpu = 0, 0.0, carried_us

    def call(name: str, dims: list[Any], values: list[str], us: float) -> None:
        nonlocal correlation, cpu, gpu
        correlation += 1
        told = {"Input Dims": dims, "Input type": ["float" if d else "Scalar" for d in dims]}
        told["Concrete Inputs"] = values
        events.append(op(name, cpu, 1.5, **(told if shapes else {})))
        events.append(launch(correlation, cpu + 0.2))
        gpu = max(gpu, cpu + 3)
        word = "gemm" if name == "aten::mm" else f"vectorized_elementwise_kernel<{name}>"
        events.append(kernel(word, gpu, us, correlation))
        gpu = round(gpu + us, 3)
        cpu += 2

    for number in range(steps):
        begun = cpu
        for _ in range(LAYERS):
            call("aten::mm", [WIDE, WIDE], ["", ""], PRODUCT_US)
            for name, dims, values, moved in NORM:
                call(name, dims, values, round(moved / 1e6, 3))
            call("aten::mm", [WIDE, WIDE], ["", ""], PRODUCT_US)
        wait = {"name": "cudaDeviceSynchronize", "dur": gpu + 1 - cpu}
        correlation += 1
        events.append({**launch(correlation, cpu), **wait})
        cpu = gpu + 2
        events.append(step(number, begun, cpu - begun))
        cpu += 1
    return write(path, *events, **of_rank(0))


def answer(path: Path) -> Result:
    return ask_trace(open_trace(path, OpenOptions(cache=False)), "fusible_chains")


def test_a_planted_norm(tmp_path: Path) -> None:
    found = answer(recording(tmp_path / "t.json"))
    (row,) = found.to_pylist()
    assert row["chain"] == ("aten::pow → aten::mean → aten::add → aten::rsqrt → aten::mul ×2")
    assert row["implementation"].startswith("torch.nn.RMSNorm")
    assert (row["count"], row["kernels"]) == (LAYERS * STEPS, LAYERS * STEPS * len(NORM))
    moved = sum(size for *_, size in NORM)
    assert (row["moved_bytes"], row["read_again_bytes"]) == (moved, READ_AGAIN)
    assert row["saved_bytes"] == 2 * READ_AGAIN == moved - REST
    assert row["fused_ns"] == pytest.approx(REST / 1000, rel=0.01)
    gain = LAYERS * (moved - REST) / 1000
    assert row["step_gain_ns"] == pytest.approx(gain, rel=0.03)
    assert row["step_gain_ns_lo90"] < gain < row["step_gain_ns_hi90"]
    together = found.coverage["all_chains_together"]
    assert together["step_gain_ns"] == row["step_gain_ns"]


@pytest.mark.parametrize("steps", [1, STEPS])
@pytest.mark.parametrize("carried_us", [0.0, 400.0])
def test_a_step_gains_the_same_however_many_were_recorded(
    tmp_path: Path, steps: int, carried_us: float
) -> None:
    found = answer(recording(tmp_path / "t.json", steps=steps, carried_us=carried_us))
    (row,) = found.to_pylist()
    gain = LAYERS * (sum(size for *_, size in NORM) - REST) / 1000
    assert row["step_gain_ns"] == pytest.approx(gain, rel=0.03)
    assert row["step_gain_ns"] < row["device_ns"] / steps


def test_without_shapes_there_are_no_figures(tmp_path: Path) -> None:
    found = answer(recording(tmp_path / "t.json", shapes=False))
    (row,) = found.to_pylist()
    assert row["kernels"] == LAYERS * STEPS * len(NORM)
    figures = ("moved_bytes", "saved_bytes", "read_again_bytes", "fused_ns", "step_gain_ns")
    assert [row[name] for name in figures] == [None] * 5
    assert "no shapes" in found.coverage["cannot_be_told"]


@pytest.mark.parametrize(
    ("operators", "beside", "words"),
    [
        ("div add _softmax", "aten::bmm", "scaled_dot_product_attention"),
        ("div add _softmax", "aten::add", "torch.compile"),
        ("silu mul", "aten::mm", "SwiGLU"),
        ("_log_softmax nll_loss_forward", "aten::mm", "cross entropy"),
        ("addcmul_ sqrt add_ addcdiv_", "aten::mm", "fused=True"),
        ("_foreach_lerp_ _foreach_mul_ _foreach_addcmul_", "aten::mm", "apex FusedAdam"),
        ("neg cat mul add", "aten::mm", "RoPE"),
        ("add relu", "aten::mm", "torch.compile"),
    ],
)  # fmt: skip
def test_known_patterns_name_what_does_them(operators: str, beside: str, words: str) -> None:
    names = [f"aten::{name}" for name in operators.split()]
    assert words in fused_implementation(names, beside, beside)


def test_norms_and_rotations_of_a_public_model(shared: Path) -> None:
    """24 layers: two norms each and one at the end, rotations of queries and of keys."""
    path = shared / "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    rows = answer(path).to_pylist()
    norms = sum(row["count"] for row in rows if "RMSNorm" in row["implementation"])
    turned = sum(row["count"] for row in rows if "RoPE" in row["implementation"])
    assert (norms, turned) == (2 * 24 + 1, 2 * 24)
