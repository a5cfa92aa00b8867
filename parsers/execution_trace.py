"""PyTorch execution traces (ExecutionTraceObserver), as Chakra's tools take them.

A JSON object whose `nodes` are the operators of one process, with the shapes, types and values of
their inputs; ids of record functions (`rf_id`) are those of the profiler's trace of the same run.
Schema 1.0.x has all of a node at its top, 1.1.x-chakra in `inputs` and `attrs`. Times are not read:
there are none. What a node says is written as the profiler would: `Tensor(float)` is float, numbers
are scalars. Collectives name their process group; the groups stand in a node of their own.
"""

import json
import re

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.core.stated_counts import RANKS
from htk.base.errors import MalformedTrace
from htk.base.mappings import Facts, Fields
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    list_of,
    read_json,
    salvaged_json,
    table_of,
    text_or_none,
    whole_number,
)

NAME = "execution_trace"

_SNIFF = re.compile(rb'\A\s*\{\s*"schema"\s*:\s*"1\.[\w.\- ]{1,40}"')
_NODES = re.compile(rb'"pid"\s*:\s*\d{1,20}')
_GROUPS = "## process_group:init ##"
_SCALARS = ("Int", "Double", "Bool", "SymInt")
_TENSOR = re.compile(r"Tensor\((.{0,99})\)")


def sniff(head: Head) -> bool:
    return bool(_SNIFF.match(head.data) and _NODES.search(head.data[:400]))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    text = read_json(source, issues, options.progress).decode("utf8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        issues.add("truncated", f"truncated or damaged after complete nodes: {error}")
        document = salvaged_json(text, "nodes", ("pid", "schema"))
    content = document if isinstance(document, dict) else {}
    rows: list[Fields] = []
    groups: list[Fields] = []
    for node in list_of(content.get("nodes")):
        if not isinstance(node, dict):
            issues.add("broken_node", f"not an object: {str(node)[:80]}")
            continue
        if node.get("name") == _GROUPS:
            groups += _list_groups(node)
        rows += _build_node_rows(node)
    if not rows:
        raise MalformedTrace(f"{source.name}: no complete node of an execution trace")
    tables = {
        "execution_nodes": table_of("execution_nodes", rows, of_one_rank=True),
        "comm_groups": table_of("comm_groups", groups, of_one_rank=True),
        "parse_issues": issues.table(),
    }
    process = whole_number(content.get("pid"))
    facts: dict[str, object] = {
        "process_id": None if process is None else str(process),
        "events": len(rows),
        "truncated": issues.has("truncated"),
    }
    return Parsed(tables, facts=facts)


def _build_node_rows(node: Facts) -> list[Fields]:
    attributes = {
        a["name"]: a.get("value")
        for a in list_of(node.get("attrs"))
        if isinstance(a, dict) and isinstance(a.get("name"), str)
    }
    record = whole_number(attributes.get("rf_id", node.get("rf_id")))
    name = text_or_none(node.get("name"))
    if record is None or name is None:
        return []
    return [
        {
            "event": whole_number(node.get("id")),
            "record_function_id": record,
            "name": name,
            "kernel_file": text_or_none(attributes.get("kernel_file")),
            "kernel_backend": text_or_none(attributes.get("kernel_backend")),
            **_describe_inputs(node),
            **_describe_collective(attributes),
        }
    ]


def _describe_inputs(node: Facts) -> Fields:
    """Return the shapes, types, strides and values of the inputs, as the profiler writes them."""
    nested = node.get("inputs")
    if isinstance(nested, dict):
        values = list_of(nested.get("values"))
        shapes = list_of(nested.get("shapes"))
        types = list_of(nested.get("types"))
        strides = list_of(nested.get("strides"))
    else:
        values = list_of(nested)
        shapes = list_of(node.get("input_shapes"))
        types = list_of(node.get("input_types"))
        strides = []
    if not types or not len(types) == len(shapes) == len(values):
        return {}
    kinds = [_spell_kind(kind) for kind in types]
    has_shape = [kind not in ("", "Scalar", "ScalarList") for kind in kinds]
    columns = {
        "input_dims": [s if shaped else [] for s, shaped in zip(shapes, has_shape, strict=True)],
        "input_types": kinds,
        "concrete_inputs": [_spell_value(v, k) for v, k in zip(values, kinds, strict=True)],
    }
    if len(strides) == len(types):
        columns["input_strides"] = [
            s if shaped else [] for s, shaped in zip(strides, has_shape, strict=True)
        ]
    return {name: compact_json(column) for name, column in columns.items()}


def _spell_kind(kind: object) -> str:
    if not isinstance(kind, str):
        return ""
    if kind.startswith("GenericList["):
        return "TensorList" if "Tensor(" in kind else "ScalarList"
    if match := _TENSOR.fullmatch(kind):
        return match[1]
    return "Scalar" if kind in _SCALARS else ""


def _spell_value(value: object, kind: str) -> str:
    """Return a number as C++ prints it, a list of them in brackets; of all else nothing."""
    if kind == "ScalarList" and isinstance(value, list):
        return "[" + ", ".join(_spell_value(v, "Scalar") for v in value) + "]"
    if kind != "Scalar" or not isinstance(value, bool | int | float):
        return ""
    if isinstance(value, float):
        digits = f"{value:.17g}"
        return digits if set(digits) & set(".en") else f"{digits}."
    return str(value) if abs(value) < 2**64 else ""


def _describe_collective(attributes: Facts) -> Fields:
    """Return what a node of a collective says of it and of its process group."""
    if "pg_name" not in attributes and "collective_name" not in attributes:
        return {}
    return {
        "raw_name": text_or_none(attributes.get("collective_name")),
        "group": text_or_none(attributes.get("pg_name")),
        "group_desc": text_or_none(attributes.get("pg_desc")),
        "group_size": whole_number(attributes.get("pg_size")),
        "dtype": text_or_none(attributes.get("dtype")),
        "in_elements": whole_number(attributes.get("in_msg_nelems")),
        "out_elements": whole_number(attributes.get("out_msg_nelems")),
        "in_split": _parse_split(attributes.get("in_split_size")),
        "out_split": _parse_split(attributes.get("out_split_size")),
    }


def _parse_split(value: object) -> str | None:
    try:
        listed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None
    numbers = [whole_number(n) for n in list_of(listed)]
    return compact_json(numbers) if numbers and None not in numbers else None


def _list_groups(node: Facts) -> list[Fields]:
    """Return the process groups of the run; one without ranks has all of them."""
    nested = node.get("inputs")
    values = list_of(nested.get("values") if isinstance(nested, dict) else nested)
    try:
        listed = json.loads(values[0]) if values and isinstance(values[0], str) else []
    except (ValueError, RecursionError):
        return []
    groups = [group for group in list_of(listed) if isinstance(group, dict)]
    sizes = [whole_number(group.get("group_size")) or 0 for group in groups]
    rows = []
    for group, size in zip(groups, sizes, strict=True):
        ranks = [whole_number(rank) for rank in list_of(group.get("ranks"))]
        if not ranks and size == max(sizes) and RANKS.believes(size):
            ranks = list(range(size))
        rows.append(
            {
                "source": NAME,
                "group": text_or_none(group.get("pg_name")),
                "group_desc": text_or_none(group.get("pg_desc")),
                "group_size": size or None,
                "group_ranks": compact_json(ranks) if ranks and None not in ranks else None,
                "backend": text_or_none(group.get("backend_config")),
            }
        )
    return rows
