"""The line of the program that launched each activity: by hand on a step with stacks."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.quantities.measures.program_lines import is_of_program
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, op, write


@pytest.mark.parametrize(
    ("frame", "is_own"),
    [
        ("train.py(9): main", True),
        ("my/loader.py(4): next_item", True),
        ("transformers/models/qwen2/modeling_qwen2.py(503): forward", True),
        ("/home/me/eval.py(7): main", True),
        ("torch/nn/functional.py(2): pad", False),
        ("triton/runtime/jit.py(330): run", False),
        ("vllm/model_executor/parameter.py(122): __torch_function__", False),
        ("json/decoder.py(1): decode", False),
        ("<frozen importlib._bootstrap>(2): find", False),
        ("<string>(1): <module>", False),
        ("/opt/lib/python3.12/site-packages/a.py(3): f", False),
        ("/tmp/torchinductor_me/ab/cab.py(40): call", False),
        ("<built-in method sleep>", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_a_frame_of_the_program(frame: str, is_own: bool) -> None:
    assert is_of_program(frame) == is_own


def _python(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    whole = {"ph": "X", "cat": "python_function", "pid": 100, "tid": tid, "args": {}}
    return whole | {"name": name, "ts": ts, "dur": dur}


def _launched(name: str, ts: float, number: int, tid: int = 1, **args: object) -> list[Event]:
    """An operator that launches an activity of `number` us."""
    return [
        op(name, ts, 8, tid, **args),
        launch(number, ts + 2, tid=tid),
        kernel(f"k{number}", 1_000 + 100 * number, number, number),
    ]


def _lines(folder: Path, *events: Event, depth: int = 1) -> dict[str, int]:
    path = write(folder / "rank0.json", *events, distributedInfo={"rank": 0})
    trace = open_trace(path, OpenOptions(cache=False))
    rows = ask_trace(trace, "kernel_top", by="source", source_depth=depth).to_pylist()
    return {row["name"]: row["total_ns"] for row in rows}


def test_the_innermost_line_counts_and_backward_has_that_of_forward(tmp_path: Path) -> None:
    found = _lines(
        tmp_path,
        _python("train.py(9): main", 0, 100),
        _python("model.py(3): forward", 10, 40),
        _python("torch/nn/functional.py(2): relu", 15, 20),
        *_launched("aten::relu", 16, 5, **{"Sequence number": 7, "Fwd thread id": 0}),
        *_launched("aten::item", 60, 3),
        *_launched("ReluBackward0", 70, 11, tid=2, **{"Sequence number": 7, "Fwd thread id": 1}),
        *_launched("aten::add_", 90, 2, tid=3),
    )
    assert found == {
        "model.py(3): forward": 16_000,
        "train.py(9): main": 3_000,
        "[no line of the program]": 2_000,
    }


def test_callers_stand_behind_as_many_as_are_asked_for(tmp_path: Path) -> None:
    stack = "torch/nn/functional.py(2): relu;model.py(3): forward;train.py(9): main"
    found = _lines(
        tmp_path,
        _python("train.py(9): main", 0, 50),
        _python("torch/nn/modules/module.py(1): __call__", 5, 30),
        _python("model.py(3): forward", 10, 20),
        *_launched("aten::relu", 16, 5),
        *_launched("aten::item", 40, 3),
        *_launched("aten::mul", 60, 2, tid=5, **{"Call stack": stack}),
        depth=3,
    )
    assert found == {"model.py(3): forward < train.py(9): main": 7_000, "train.py(9): main": 3_000}


def test_stacks_of_operators_and_files_of_kernels_stand_in(tmp_path: Path) -> None:
    stack = "torch/nn/functional.py(2): relu;model.py(3): forward;train.py(9): main"
    found = _lines(
        tmp_path,
        *_launched("aten::relu", 16, 5, **{"Call stack": stack}),
        *_launched("triton_poi_fused_0", 60, 3, **{"kernel_file": "/tmp/torchinductor_me/c.py"}),
    )
    assert found == {"model.py(3): forward": 5_000, "/tmp/torchinductor_me/c.py": 3_000}


def test_without_stacks_it_says_what_to_record(tmp_path: Path) -> None:
    with pytest.raises(MissingTable, match="with_stack=True"):
        _lines(tmp_path, *_launched("aten::relu", 16, 5))
