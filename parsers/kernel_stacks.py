"""Where kernels stem from, in files that torch writes beside a trace.

Read: `torch.cuda.graph_annotations.dump_kernel_py_stacks(path)` (torch 2.15: gzip JSON, the Python
stack that captured each node of a CUDA graph), what `get_kernel_annotations()` holds, saved as JSON
(`kernel_annotations_rank0_*.json`), and of Inductor's provenance the stacks of its kernels:
`kernel_information.json` and `inductor_provenance_tracking_kernel_stack_traces*.json`. Its
`…_node_mappings*.json` names no lines and is not read.
"""

import json
import re
from collections.abc import Iterator

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.log_records import (
    Issues,
    list_of,
    read_json,
    table_of,
    text_or_none,
    whole_number,
)
from htk.parsers.common.stack_texts import join_tracebacks, read_graph_stack

NAME = "kernel_stacks"
_MOST_BYTES = 512 << 20  # of text: a hundred thousand kernels have stacks of 5 kB each

_NODE = rb'\{\s*"\d{1,20}"\s*:\s*(?:"(?:[^"\n]{1,4096}:\d{1,9}:|<no Python)|\[\s*[{"])'
_KERNEL = (
    rb'\{\s*"[\w.:+-]{1,1024}"\s*:\s*'
    rb'(?:\{\s*"(?:stack_traces|post_grad_nodes)"\s*:|\[\s*"\s{0,9}File \\")'
)
_SNIFF = re.compile(rb"\s*(?:" + _NODE + rb"|" + _KERNEL + rb")")
_CALL = re.compile(r":\d{1,9}\Z")  # which of a kernel's calls, in the code that launches it


def sniff(head: Head) -> bool:
    return bool(_SNIFF.match(head.data))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    text = read_json(source, issues, options.progress, _MOST_BYTES).decode("utf8", "replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        issues.add("truncated", f"truncated or damaged after complete entries: {error}")
        content = _whole_entries(text)
    rows = [*_build_stack_rows(content if isinstance(content, dict) else {}, issues)]
    if not rows:
        raise MalformedTrace(f"{source.name}: no complete stack or annotation of a kernel")
    tables = {
        "kernel_stacks": table_of("kernel_stacks", rows, of_one_rank=True),
        "parse_issues": issues.table(),
    }
    facts: dict[str, object] = {"events": len(rows), "truncated": issues.has("truncated")}
    return Parsed(tables, facts=facts)


def _whole_entries(text: str) -> object:
    try:
        return json.loads(text[: text.rfind('",') + 1] + "}")
    except (ValueError, RecursionError):
        return {}


def _build_stack_rows(content: Fields, issues: Issues) -> Iterator[Fields]:
    for key, value in content.items():
        row = _of_node(value) if key.isdigit() else _of_kernel(value)
        if row is None:
            issues.add("broken_entry", f"neither a stack nor an annotation: {key[:80]}")
        elif key.isdigit():
            packed = whole_number(key) or 0
            yield {"graph_id": packed >> 32, "graph_node": packed & 0xFFFFFFFF, **row}
        else:
            yield {"name": _CALL.sub("", key), **row}


def _of_node(value: object) -> Fields | None:
    """Return the stack of a node, or what the scopes that it was captured in call it."""
    if isinstance(value, str):
        return {"call_stack": read_graph_stack(value)}
    scopes = [scope if isinstance(scope, dict) else {"name": scope} for scope in list_of(value)]
    names = [name for scope in scopes if (name := text_or_none(scope.get("name")))]
    return {"graph_annotation": names[-1] if names else None} if scopes else None


def _of_kernel(value: object) -> Fields | None:
    stacks = value.get("stack_traces") if isinstance(value, dict) else value
    return {"call_stack": join_tracebacks(stacks)} if isinstance(stacks, list) else None
