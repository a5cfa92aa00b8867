"""Shapes and groups from an execution trace beside the profiler's trace of the same run."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from htk.traces.trace.execution import filled_collectives, nodes_of
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.tables import make

SAMPLES = Path(__file__).parents[4] / "sample_traces"
PROFILED = SAMPLES / "recorded/execution_trace"
OBSERVED = SAMPLES / "execution_trace"
FACTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
_KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def opened(folder: Path, change: Callable[[str], str] = lambda text: text) -> Trace:
    """The recorded ranks without the shapes that the profiler wrote, and their execution traces."""
    for rank in (0, 1):
        name = f"rank{rank}.pt.trace.json"
        recording = json.loads(gzip.decompress((PROFILED / f"{name}.gz").read_bytes()))
        for event in recording["traceEvents"]:
            for key in _KEYS:
                event.get("args", {}).pop(key, None)
        (folder / name).write_text(json.dumps(recording))
        text = gzip.decompress((OBSERVED / f"rank{rank}_et.json.gz").read_bytes()).decode()
        (folder / f"rank{rank}_et.json").write_text(change(text))
    return open_trace(folder, OpenOptions(cache=False))


def shapes(trace: Trace) -> list[tuple[Any, ...]]:
    ops = trace.tables["cpu_ops"].to_pylist()
    return [(op["rank"], op["start_ns"], op["name"], *(op[f] for f in FACTS)) for op in ops]


def test_what_is_filled_in_is_what_the_profiler_would_have_written(tmp_path: Path) -> None:
    """torch recorded both of one run, with shapes, types, strides and values."""
    truth = shapes(open_trace(PROFILED, OpenOptions(cache=False)))
    filled = shapes(opened(tmp_path))
    assert len(truth) == len(filled) > 200
    named = [row for row in truth if row[3] is not None]
    assert len(named) > 100
    same = {row[:3]: row for row in filled}
    for row in named:
        assert same[row[:3]][:6] == row[:6]
        for value, own in zip(json.loads(same[row[:3]][6]), json.loads(row[6]), strict=True):
            assert value == own or float(value) == pytest.approx(float(own), rel=1e-5)


def test_a_trace_of_another_run_fills_in_nothing(tmp_path: Path) -> None:
    def shifted(text: str) -> str:
        return re.sub(
            r'("rf_id", "type": "uint64", "value": )(\d+)',
            lambda m: f"{m[1]}{int(m[2]) + 7}",
            text,
        )

    trace = opened(tmp_path, shifted)
    assert {row[3] for row in shapes(trace)} == {None}


def test_ranks_take_their_own(tmp_path: Path) -> None:
    opened(tmp_path)
    shutil.copy(tmp_path / "rank0_et.json", tmp_path / "rank1_et.json")
    (tmp_path / "rank0_et.json").unlink()
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    with_shapes = {row[0] for row in shapes(trace) if row[3] is not None}
    assert with_shapes == {1}


def test_files_without_a_rank_belong_together_where_they_are_alone(tmp_path: Path) -> None:
    opened(tmp_path)
    for name in ("rank0.pt.trace.json", "rank0_et.json"):
        (tmp_path / name).rename(tmp_path / name.replace("rank0", "job"))
        (tmp_path / name.replace("rank0", "rank1")).unlink()
    recording = json.loads((tmp_path / "job.pt.trace.json").read_text())
    recording.pop("distributedInfo", None)
    (tmp_path / "job.pt.trace.json").write_text(json.dumps(recording))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert [row for row in shapes(trace) if row[0] == 0 and row[3] is not None]


OPS = [
    {"event": 10 * k, "record_function_id": k, "name": "record_param_comms"} for k in range(1, 5)
]
NODES = [
    {"record_function_id": k, "name": "record_param_comms", "group": "7", "group_size": 2,
     "dtype": "BFloat16", "in_elements": 100 * k, "out_elements": 200 * k}
    for k in (4, 2, 1)
]  # fmt: skip


def test_a_collective_takes_group_and_sizes_of_its_operators_node() -> None:
    calls = make("collectives", [
        {"op_event": 20, "type": "all_gather"},
        {"op_event": 10, "type": "all_gather", "group": "own", "in_elements": 3, "dtype": "Float",
         "inferred_columns": "type"},
        {"op_event": 30}, {"op_event": None},
    ])  # fmt: skip
    groups = make("comm_groups", [{"group": "7", "group_ranks": "[0,4]"}])
    ops, nodes = make("cpu_ops", OPS), make("execution_nodes", NODES)
    first, second, third, fourth = filled_collectives(calls, ops, nodes, groups).to_pylist()
    assert (first["group"], first["group_ranks"], first["group_size"]) == ("7", "[0,4]", 2)
    assert (first["in_bytes"], first["out_bytes"]) == (400, 800)
    assert set(first["inferred_columns"].split(",")) == {
        "group", "group_ranks", "group_size", "dtype", "in_elements", "out_elements", "in_bytes",
        "out_bytes",
    }  # fmt: skip
    assert (second["group"], second["in_elements"], second["in_bytes"]) == ("own", 3, 12)
    assert second["group_ranks"] is None
    assert second["inferred_columns"].startswith("type,group_size,")
    assert {third[name] for name in ("group", "in_bytes", "inferred_columns")} == {None}
    assert fourth["group"] is None


def test_operators_of_other_names_are_of_another_run() -> None:
    others = [node | {"name": "aten::mm"} for node in NODES[:1]]
    found = nodes_of(make("cpu_ops", OPS), make("execution_nodes", [*others, *NODES[1:]]))
    assert found.tolist() == [-1] * 4  # one of three disagrees
    assert nodes_of(make("cpu_ops", OPS), make("execution_nodes", NODES)).tolist() == [2, 1, -1, 0]


def test_older_traces_number_record_functions_as_external_ids() -> None:
    old = [{"event": op["event"], "external_id": op["record_function_id"], "name": op["name"]}
           for op in OPS]  # fmt: skip
    nodes = nodes_of(make("cpu_ops", old), make("execution_nodes", NODES))
    assert nodes.tolist() == [2, 1, -1, 0]
