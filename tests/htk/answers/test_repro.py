"""Scripts of recorded calls: they run, and hold nothing of a recording but literals."""

import ast
import runpy
from pathlib import Path

import pytest

from htk.answers.repro import script_of
from htk.base.errors import MissingTable, UsageError
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

_SHAPES = {"Input Dims": [[4, 8], [4, 8], []], "Input Strides": [[1, 4], [8, 1], []]}
_TYPES = {"Input type": ["float", "float", "Scalar"], "Concrete Inputs": ["", "", "2"]}


def _trace(folder: Path, *events: Event) -> Trace:
    path = write(folder / "rank0.json", *events, **of_rank(0))
    return open_trace(path, OpenOptions(cache=False))


def _call(name: str, number: int, us: int, **args: object) -> list[Event]:
    ts = 20 * number
    return [op(name, ts, 9, **args), launch(number, ts + 1), kernel("k", 900 + ts, us, number)]


def _added(folder: Path) -> Trace:
    lengths = (3, 9, 5)
    calls = [_call("aten::add", n + 1, us, **_SHAPES, **_TYPES) for n, us in enumerate(lengths)]
    return _trace(folder, *(event for call in calls for event in call))


def _run(script: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = folder / "bench.py"
    path.write_text(script.replace("RUNS = 50", "RUNS = 2"))
    runpy.run_path(str(path), run_name="__main__")
    return capsys.readouterr().out


def test_a_script_runs_the_call_and_prints_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alpha is a keyword of the operator; the first input is stored by columns."""
    script = script_of(_added(tmp_path), "aten::add")
    assert "('tensor', (4, 8), (1, 4), 'float32')" in script
    assert "('value', 2)" in script
    now, recorded = _run(script, tmp_path, capsys).splitlines()
    assert now.split()[0] == "now" and float(now.split()[1]) > 0
    assert recorded.split()[:2] == ["recorded", "9.00"]


@pytest.mark.parametrize(
    ("nth", "us"), [("slowest", 9), ("median", 5), ("fastest", 3), ("2", 5), ("3", 3)]
)
def test_calls_are_counted_from_the_slowest(tmp_path: Path, nth: str, us: int) -> None:
    assert f"('recorded', {us}.0, " in script_of(_added(tmp_path), "aten::add", nth)


@pytest.mark.parametrize("nth", ["0", "4", "-1", "x", "9" * 30])
def test_a_call_that_is_none_is_refused(tmp_path: Path, nth: str) -> None:
    with pytest.raises(UsageError, match="a number from 1 to 3"):
        script_of(_added(tmp_path), "aten::add", nth)


def test_what_cannot_be_run_is_refused_in_a_line(tmp_path: Path) -> None:
    events = [op("AddBackward0", 0, 5, **_SHAPES, **_TYPES), op("aten::mul", 10, 5)]
    trace = _trace(tmp_path, *events)
    with pytest.raises(UsageError, match="did you mean 'aten::mul'"):
        script_of(trace, "aten::mul_")
    with pytest.raises(UsageError, match="by its name"):
        script_of(trace, "AddBackward0")
    with pytest.raises(MissingTable, match="record_shapes=True"):
        script_of(trace, "aten::mul")


def test_a_compiled_kernel_runs_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "it's.py"
    source.write_text(
        "class triton_poi_fused_add_0:\n"
        "    def run(*inputs, stream):\n"
        "        assert [inputs[0].shape, inputs[-1]] == [(4, 8), 2]\n"
    )
    facts = {**_SHAPES, **_TYPES, "kernel_file": str(source)}
    trace = _trace(tmp_path, *_call("triton_poi_fused_add_0", 1, 4, **facts))
    script = script_of(trace, "triton_poi_fused_add_0")
    assert "look at it first" in script
    assert "recorded" in _run(script, tmp_path, capsys)
    source.unlink()
    with pytest.raises(UsageError, match="is not here"):
        script_of(trace, "triton_poi_fused_add_0")


_EVIL = "__import__('os').abort()"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        (f"aten::add'\n{_EVIL}\n#", {**_SHAPES, **_TYPES}),
        (f"aten::add\n{_EVIL}", {**_SHAPES, **_TYPES}),
        ("aten::add\u2028x", {**_SHAPES, **_TYPES}),
        ("aten::add", {**_SHAPES, "Input type": [f"float')]\n{_EVIL}", "float", "Scalar"]}),
        ("aten::add", {**_TYPES, "Input Dims": [[f"4\n{_EVIL}", 8], [4], []]}),
        ("aten::add", {**_TYPES, "Input Dims": [[10**30], [4], []]}),
        ("aten::add", {**_TYPES, "Input Dims": [[-4], [4], []]}),
        ("k", {**_SHAPES, **_TYPES, "kernel_file": f"/tmp/x.py'\n{_EVIL}"}),
    ],
)
def test_text_of_a_recording_is_refused_where_it_is_no_name(
    tmp_path: Path, name: str, args: dict[str, object]
) -> None:
    trace = _trace(tmp_path, *_call(name, 1, 4, **args))
    recorded = trace.tables["cpu_ops"]["name"].to_pylist()[0]
    with pytest.raises(UsageError):
        script_of(trace, recorded)


@pytest.mark.parametrize("value", [_EVIL, "[" * 5_000, "1e999", f"'x'\n{_EVIL}", f"[1, {_EVIL}]"])
def test_values_are_literals(tmp_path: Path, value: str) -> None:
    args = {**_SHAPES, **_TYPES, "Concrete Inputs": ["", "", value]}
    script = script_of(_trace(tmp_path, *_call("aten::add", 1, 4, **args)), "aten::add")
    head = ast.parse(script.split("import importlib")[0]).body
    assert [node.targets[0].id for node in head] == [  # type: ignore[attr-defined]
        *("NAME", "KERNEL_FILE", "LEAST", "INPUTS", "BESIDE")
    ]
    facts = {n.targets[0].id: ast.literal_eval(n.value) for n in head}  # type: ignore[attr-defined]
    assert facts["INPUTS"][-1] == ("value", None)
    assert "abort" not in script
