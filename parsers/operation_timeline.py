"""Chrome timelines of operation-level rows: one replica a process, one stage and kind a thread.

What NDTimeline and ByteDance's StragglerAnalysis draw of a job: complete events called
forward-compute, backward-recv, optimizer, … whose arguments hold step, model chunk and
micro-batch. Names of processes and threads tell data-parallel rank and pipeline stage.
"""

import json
import re
from typing import Any

import pyarrow as pa

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.base.schema.operation_types import ROW_TYPES, operation_type
from htk.parsers.common.log_records import Issues, list_of, read_json, salvaged_json, whole_number
from htk.parsers.common.operation_columns import operations_table

NAME = "operation_timeline"

_CHUNK = re.compile(rb'"model_chunk"\s*:')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([a-z][a-z-]{2,40})"')
_STAGE = re.compile(r"\bPP rank (\d{1,6})\b(?:.*\bTP rank (\d{1,6})\b)?")
_REPLICA = re.compile(r"\bDP rank \[?(\d{1,6})\b")


def sniff(head: Head) -> bool:
    start = head.data.lstrip()[:4096]
    if start[:1] not in (b"[", b"{") or not _CHUNK.search(start):
        return False
    categories = {m.decode() for m in _CATEGORY.findall(start)}
    return any(operation_type(category) in ROW_TYPES for category in categories)


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    events = _read_events(read_json(source, issues, options.progress), issues)
    stages, replicas, others = _read_names(events)
    rows = [
        row for event in events if (row := _build_operation_row(event, stages, replicas, others))
    ]
    if not rows:
        raise MalformedTrace(f"{source.name}: a timeline without operations that name their step")
    names = list(rows[0])
    columns = {name: pa.array([row[name] for row in rows]) for name in names}
    table = operations_table(source.name, columns, issues)
    facts: dict[str, object] = {"events": table.num_rows}
    return Parsed({"job_operations": table, "parse_issues": issues.table()}, facts=facts)


def _read_events(data: bytes, issues: Issues) -> list[Fields]:
    text = data.decode("utf8", "replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        issues.add("truncated", "truncated or damaged JSON; complete events are kept", len(text))
        parsed = salvaged_json(text, "traceEvents", ())
    listed = parsed.get("traceEvents") if isinstance(parsed, dict) else parsed
    return [event for event in list_of(listed) if isinstance(event, dict)]


def _read_names(events: list[Fields]) -> tuple[dict[Any, int], dict[Any, int], set[Any]]:
    """Stage of each thread, replica of each process, and threads of other tensor ranks."""
    stages: dict[Any, int] = {}
    replicas: dict[Any, int] = {}
    others: set[Any] = set()
    for event in events:
        arguments = event.get("args")
        name = arguments.get("name") if isinstance(arguments, dict) else None
        if event.get("ph") != "M" or not isinstance(name, str):
            continue
        stage = _STAGE.search(name)
        replica = _REPLICA.search(name)
        thread = _read_thread(event)
        if event.get("name") == "thread_name" and stage:
            stages[thread] = int(stage[1])
            if stage[2] and int(stage[2]):
                others.add(thread)
        elif event.get("name") == "process_name" and replica:
            replicas[thread[0]] = int(replica[1])
    return stages, replicas, others


def _build_operation_row(
    event: Fields, stages: dict[Any, int], replicas: dict[Any, int], others: set[Any]
) -> Fields | None:
    arguments = event.get("args")
    if event.get("ph") != "X" or not isinstance(arguments, dict):
        return None
    thread = _read_thread(event)
    if thread in others:  # ranks that share each layer: the first speaks for all
        return None
    return {
        "dp_rank": replicas.get(thread[0], whole_number(event.get("pid"))),
        "stage": stages.get(thread),
        "chunk": whole_number(arguments.get("model_chunk")),
        "micro_batch": whole_number(arguments.get("mb_id")),
        "step": whole_number(arguments.get("step")),
        "index_in_type": whole_number(arguments.get("seq_id")),
        "type": str(event.get("name")),
        "start_us": _read_float(event.get("ts")),
        "duration_us": _read_float(event.get("dur")),
    }


def _read_thread(event: Fields) -> tuple[int | str | None, int | str | None]:
    """Process and thread; what is not a number or text is none."""
    pid = number if isinstance(number := event.get("pid"), int | str) else None
    tid = number if isinstance(number := event.get("tid"), int | str) else None
    return pid, tid


def _read_float(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and abs(value) < 1e300 else None
