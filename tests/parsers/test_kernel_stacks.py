"""Files that tell where kernels stem from: each form, damage, and what is none of them."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.io.sources import read_head, resolve_inputs
from htk.parsers import kernel_stacks

SAMPLES = Path(__file__).parents[2] / "sample_traces/kernel_stacks"


def parsed(data: bytes) -> Parsed:
    source = Source("stacks.json", lambda: io.BytesIO(data))
    return kernel_stacks.parse(source, ParseOptions())


def rows(name: str) -> list[dict[str, Any]]:
    (source,) = resolve_inputs(SAMPLES / name)
    assert kernel_stacks.sniff(read_head(source))
    listed: Any = kernel_stacks.parse(source, ParseOptions()).tables["kernel_stacks"]
    return [{k: v for k, v in row.items() if v is not None} for row in listed.to_pylist()]


def test_stacks_of_nodes() -> None:
    outer = "train.py(12): main"
    assert rows("kernel_py_stacks_rank0.json.gz")[1:] == [
        {"graph_id": 7, "graph_node": 1, "call_stack": f"models/net.py(41): forward;{outer}"},
        {"graph_id": 7, "graph_node": 2, "call_stack": f"models/net.py(42): forward;{outer}"},
        {"graph_id": 7, "graph_node": 3},
    ]


def test_annotations_of_nodes() -> None:
    first = rows("kernel_annotations_rank0_1.json")[0]
    assert first == {"graph_id": 7, "graph_node": 0, "graph_annotation": "layers.0.mlp"}


def test_stacks_of_what_a_compiler_made() -> None:
    assert rows("kernel_information.json") == [
        {
            "name": "triton_poi_fused_add_relu_0",
            "call_stack": "/home/me/net.py(9): forward\n/home/me/net.py(10): forward",
        },
        {"name": "aoti_torch_cuda_mm_out", "call_stack": "/home/me/net.py(9): forward"},
    ]


def test_a_cut_file_keeps_its_whole_entries() -> None:
    data = gzip.decompress((SAMPLES / "kernel_py_stacks_rank0.json.gz").read_bytes())
    cut = parsed(data[: data.index(b"42:forward")])
    assert cut.tables["kernel_stacks"]["graph_node"].to_pylist() == [0, 1]
    assert cut.facts["truncated"]
    with pytest.raises(MalformedTrace, match=r"stacks\.json: no complete stack"):
        parsed(data[:40])


def test_what_is_none_is_left_to_others() -> None:
    for text in ('{"1": 2}', '{"traceEvents": []}', '{"a": {"b": 1}}', "[1]", '{"1": "x"}'):
        assert not kernel_stacks.sniff(Head("x", text.encode()))
    wrong = json.dumps({"12": "a.py:1:f", "13": 4, "k": 5}).encode()
    issues: Any = parsed(wrong).tables["parse_issues"]
    assert issues["kind"].to_pylist() == ["broken_entry", "broken_entry"]
