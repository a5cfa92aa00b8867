"""Execution traces of both schemas, and nodes with anything in them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import execution_trace

SAMPLE = Path(__file__).parents[2] / "sample_traces/execution_trace/rank0_et.json.gz"


def parsed(content: Any) -> Parsed:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return execution_trace.parse(Source("rank0_et.json", lambda: io.BytesIO(data)), ParseOptions())


def rows(content: Any, table: str = "execution_nodes") -> list[dict[str, Any]]:
    listed: Any = parsed(content).tables[table]
    return [row for row in listed.to_pylist()]


def node(number: int, name: str, attributes: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    attrs = [
        {"name": k, "type": "x", "value": v} for k, v in {"rf_id": number, **attributes}.items()
    ]
    return {"id": number, "name": name, "attrs": attrs, "inputs": inputs}


def test_a_node_is_written_as_the_profiler_would() -> None:
    inputs = {
        "values": [[1, 2, 0, 72, 4, "cuda:0"], [[3], [4]], [3, 24], -0.1, 2.0, True, "<None>", "x"],
        "shapes": [[3, 24], [[2], [5]], [[], []], [], [], [], [], []],
        "types": ["Tensor(c10::BFloat16)", "GenericList[Tensor(float),Tensor(float)]",
                  "GenericList[Int,Int]", "Double", "Double", "Bool", "None", "Device"],
        "strides": [[24, 1], [[1], [1]], [[], []], [], [], [], [], []],
    }  # fmt: skip
    (row,) = rows({"schema": "1.1.1", "nodes": [node(7, "aten::x", {}, **inputs)]})
    assert row["record_function_id"] == 7
    assert json.loads(row["input_dims"]) == [[3, 24], [[2], [5]], [], [], [], [], [], []]
    assert json.loads(row["input_types"]) == [
        "c10::BFloat16", "TensorList", "ScalarList", "Scalar", "Scalar", "Scalar", "", "",
    ]  # fmt: skip
    assert json.loads(row["concrete_inputs"]) == [
        "", "", "[3, 24]", "-0.10000000000000001", "2.", "True", "", "",
    ]  # fmt: skip
    assert json.loads(row["input_strides"])[0] == [24, 1]


def test_the_older_schema_has_all_at_the_top() -> None:
    old = {"name": "aten::mm", "id": 5, "rf_id": 3, "inputs": [[1], [2]],
           "input_shapes": [[2, 3], [3, 4]], "input_types": ["Tensor(float)"] * 2}  # fmt: skip
    (row,) = rows({"schema": "1.0.1", "pid": 9, "nodes": [old]})
    assert (row["record_function_id"], row["event"]) == (3, 5)
    assert row["input_dims"] == "[[2,3],[3,4]]"
    assert row["input_strides"] is None


def test_collectives_and_their_groups() -> None:
    facts = {"collective_name": "all_to_allv", "pg_name": "2", "pg_desc": "ep", "pg_size": 2,
             "dtype": "BFloat16", "in_msg_nelems": 30, "out_msg_nelems": 50,
             "in_split_size": "[10,20]", "out_split_size": "[20, 30]"}  # fmt: skip
    groups = [{"pg_name": "0", "ranks": [], "group_size": 4, "backend_config": "cuda:nccl"},
              {"pg_name": "2", "pg_desc": "ep", "ranks": [1, 3], "group_size": 2},
              {"pg_name": "3", "ranks": [], "group_size": 2}]  # fmt: skip
    init = node(1, "## process_group:init ##", {}, values=[json.dumps(groups)], shapes=[[]],
                types=["String"])  # fmt: skip
    content = {"schema": "1.1.1", "nodes": [init, node(8, "record_param_comms", facts)]}
    call = rows(content)[1]
    assert (call["group"], call["group_size"], call["in_elements"]) == ("2", 2, 30)
    assert (call["in_split"], call["out_split"]) == ("[10,20]", "[20,30]")
    listed = rows(content, "comm_groups")
    assert [r["group_ranks"] for r in listed] == ["[0,1,2,3]", "[1,3]", None]


def test_the_recorded_sample_and_a_cut_of_it() -> None:
    (source,) = [Source(str(SAMPLE), lambda: SAMPLE.open("rb"))]
    whole: Any = execution_trace.parse(source, ParseOptions()).tables["execution_nodes"]
    assert whole.num_rows > 100
    import gzip

    text = gzip.decompress(SAMPLE.read_bytes())
    assert execution_trace.sniff(Head("x", text[:4096]))
    cut = parsed(text[: len(text) // 2])
    assert 20 < len(cut.tables["execution_nodes"]) < whole.num_rows
    issues: Any = cut.tables["parse_issues"]
    assert [r["kind"] for r in issues.to_pylist()] == ["truncated"]


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"nodes": 3}', b'{"schema": "1.0.1", "pid": 3, "nodes": [1, {}]}']
)
def test_what_holds_no_node_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedTrace, match="no complete node"):
        parsed(content)
