"""Call trees side by side: a hand-worked pair, sums that hold, and public recordings."""

from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.core.analysis import coverage_of
from htk.traces.compare.tree_diff import compare_trees
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

AUTOGRAD = "autograd::engine::evaluate_function: MulBackward0"


def _module(name: str, start: float, time: float) -> Event:
    return op(f"nn.Module: {name}", start, time) | {"cat": "python_function"}


def _layer(number: int, at: float, inner: list[tuple[str, str, float]]) -> list[Event]:
    """A module with operators, each of which launches one kernel of a name and a time."""
    events = [_module(f"Layer_{number}", at, 90)]
    for position, (operator, name, time) in enumerate(inner):
        start = at + 2 + 20 * position
        number = int(start)
        events += [
            op(operator, start, 10),
            launch(number, start + 1, 1),
            kernel(name, start + 5, time, number),
        ]
    return events


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Three layers, of which the new recording fuses gelu of two into a product, and loses the
    copy of the backward pass; its product of layer 0 takes another kernel."""
    eager = [("aten::mm", "gemm", 9), ("aten::add", "add", 2), ("aten::gelu", "gelu", 4)]
    plain = [("aten::mm", "gemm", 9), ("aten::add", "add", 3), ("aten::gelu", "gelu", 4)]
    fused = [("aten::mm", "gemm", 8), ("triton_fused", "triton_add_gelu", 3)]
    other = [("aten::mm", "gemm_split_k", 7), ("aten::add", "add", 2), ("aten::gelu", "gelu", 4)]
    layers = {"base": [eager, eager, eager, plain], "new": [other, fused, fused, plain]}
    for side, of_side in layers.items():
        events = [step(3, 0, 1000)]
        for number, inner in enumerate(of_side):
            events += _layer(number, 10 + 100 * number, inner)
        events += [op(AUTOGRAD, 500, 40, tid=2), op("aten::mul", 501, 10, tid=2)]
        events += [launch(502, 502, 1, tid=2), kernel("mul", 505, 6, 502)]
        if side == "base":
            events += [op("aten::copy_", 520, 10, tid=2), launch(521, 521, 1, tid=2)]
            events += [kernel("copy", 525, 5, 521)]
        events += [launch(700, 700, 1), kernel("outside", 705, 1, 700)]
        (tmp_path / side).mkdir()
        write(tmp_path / side / "rank0.json", *events, **of_rank(0))
    return tmp_path / "base", tmp_path / "new"


def _rows(base: Path, new: Path, n: int = 0) -> list[dict[str, Any]]:
    return compare_trees(htk.open(base).tables, htk.open(new).tables, n).to_pylist()


def test_a_hand_worked_pair(pair: tuple[Path, Path]) -> None:
    def shown(row: dict[str, Any]) -> tuple[Any, ...]:
        return (
            row["change"], row["path"], row["base_ops"], row["new_ops"], row["count"],
            row["base_ns"], row["new_ns"],
        )  # fmt: skip

    layer = "nn.Module: Layer"
    assert {shown(row) for row in _rows(*pair)} == {
        ("replaced", layer, "aten::add; aten::gelu", "triton_fused", 2, 12_000, 6_000),
        ("only in base", f"autograd thread > {AUTOGRAD}", "aten::copy_", None, 1, 5_000, 0),
        ("other kernels", f"{layer} > aten::mm", None, None, 4, 36_000, 32_000),
        ("same kernels", f"{layer} > aten::add", None, None, 2, 5_000, 5_000),
        ("same kernels", f"{layer} > aten::gelu", None, None, 2, 8_000, 8_000),
        ("same kernels", f"autograd thread > {AUTOGRAD} > aten::mul", None, None, 1, 6_000, 6_000),
        ("same kernels", "(launched outside operators)", None, None, 1, 1_000, 1_000),
    }
    rows = _rows(*pair)
    assert [row["diff_ns"] for row in rows][:3] == [-6_000, -5_000, -4_000]
    assert rows[0]["base_kernel_names"] == "gelu ×2; add ×2"
    assert rows[2]["new_kernel_names"] == "gemm ×3; gemm_split_k"
    assert len(_rows(*pair, n=2)) == 2


def test_the_other_way_round_is_the_same_difference(pair: tuple[Path, Path]) -> None:
    there, back = _rows(*pair), _rows(*reversed(pair))
    assert {(r["path"], r["base_ns"], r["new_ns"]) for r in there} == {
        (r["path"], r["new_ns"], r["base_ns"]) for r in back
    }
    assert {r["change"] for r in back if r["new_ops"] and not r["base_ops"]} == {"only in new"}


def test_without_gpu_work_times_are_null_and_places_are_still_found(tmp_path: Path) -> None:
    for side, names in (("a", ["aten::mm", "aten::add"]), ("b", ["aten::mm", "aten::relu"])):
        (tmp_path / side).mkdir()
        events = [op(name, 10 * k, 5) for k, name in enumerate(names)]
        write(tmp_path / side / "r.json", *events, **of_rank(0))
    (row,) = _rows(tmp_path / "a", tmp_path / "b")
    assert (row["change"], row["base_ops"], row["new_ops"]) == (
        "replaced",
        "aten::add",
        "aten::relu",
    )
    assert (row["base_ns"], row["new_ns"], row["diff_ns"]) == (None, None, None)


def test_python_and_the_command_line_answer_alike(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from htk.faces.cli.main import run_command_line

    answer = htk.open(pair[0]).diff_tree(htk.open(pair[1]), n=3)
    assert (
        run_command_line(["diff-tree", str(pair[0]), str(pair[1]), "--n", "3", "--format", "csv"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].replace(chr(34), "").split(",") == answer.columns
    assert answer.coverage["base_step"] == "3" and answer.coverage["places"] == 7
    assert run_command_line(["diff-tree", str(pair[0])]) == 2
    assert "htk diff-tree BASE NEW" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ("hta/trace_diff/control", "hta/trace_diff/test"),  # eager, compiled
        (
            "tracelens/h100/Falconsai_nsfw_image_detection__1016002.json.gz",
            "tracelens/mi300/Falconsai_nsfw_image_detection__1016002.json.gz",
        ),
    ],
)
def test_places_add_up_to_the_gpu_time_of_the_step(shared: Path, base: str, new: str) -> None:
    sides = [htk.open(shared / "traces" / path) for path in (base, new)]
    answer = compare_trees(sides[0].tables, sides[1].tables, 0)
    facts = coverage_of(answer)
    for side, trace in zip(("base", "new"), sides, strict=True):
        links = trace.tables["kernel_links"]["step"].to_pylist()
        times = trace.tables["kernels"].select(["start_ns", "end_ns"]).to_pylist()
        launched = [
            row["end_ns"] - row["start_ns"]
            for row, number in zip(times, links, strict=True)
            if str(number) == facts[f"{side}_step"]
        ]
        assert sum(answer[f"{side}_ns"].to_pylist()) == sum(launched)
    same = compare_trees(sides[0].tables, sides[0].tables, 0)
    assert set(same["change"].to_pylist()) == {"same kernels"}
    assert set(same["diff_ns"].to_pylist()) == {0}


def test_nvidia_against_amd(shared: Path) -> None:
    model = "Falconsai_nsfw_image_detection__1016002.json.gz"
    rows = _rows(
        *(shared / "traces/tracelens" / vendor / model for vendor in ("h100", "mi300")), n=0
    )
    replaced = [row for row in rows if row["change"] == "replaced"]
    convolution = next(row for row in replaced if "convolution" in row["base_ops"])
    assert convolution["path"].endswith("aten::_convolution")
    assert convolution["base_ops"].startswith("aten::cudnn_convolution")
    assert convolution["new_ops"] == "aten::miopen_convolution"
    attention = next(row for row in rows if "flash_attention_forward" in row["path"])
    assert attention["count"] == 12 and attention["new_kernel_names"] == "attn_fwd ×12"
