"""PyTorch Flight Recorder: the last collectives of one rank, dumped when a job hangs or on demand.

Written by c10d (ProcessGroupNCCL, later every backend) and torchcomms, as a pickle of plain
containers or as JSON; schemas 1.4 to 2.10 and newer minors. A dump names neither its rank nor its
host: only the file name does (`comm_lib_trace_rank_3`, `nccl_trace_rank_3`).

Times are when the host enqueued, and when its watchdog noticed start and end (every 100 ms or so).
Not read: thread names.
"""

import re
import reprlib
from typing import Any

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.mappings import Facts, Fields
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    read_whole,
    table_of,
    whole_number,
)
from htk.parsers.common.recorder_dump import LONGEST_TEXT, NAME, entries_of, load_dump, text_of
from htk.parsers.common.recorder_groups import ProcessGroups
from htk.parsers.common.recorder_records import rows_of
from htk.parsers.common.safe_pickle import (
    is_pickle,
)

_MAJORS = (1, 2)
_PICKLED = re.compile(rb"pg_config|profiling_name|comm_lib_version|pg_status")
_JSON = re.compile(rb'"(?:profiling_name|pg_status|comm_lib_version)"\s*:')
_PROFILE = re.compile(
    rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:'
)  # has pg_config too


def sniff(head: Head) -> bool:
    if is_pickle(head.data):
        return _PICKLED.search(head.data) is not None
    start = head.data.lstrip()[:1]
    if start not in (b"{", b"[") or _PROFILE.search(head.data):
        return False
    return _JSON.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    data = read_whole(source, issues, options.progress)
    dump = load_dump(data, source.name, issues)
    entries = entries_of(dump, issues)
    version = text_of(dump.get("version")) or ""
    if version and _parse_major(version) not in _MAJORS:
        issues.add("unknown_version", f"schema {version}, read as the newest known (2.10)")
    groups = ProcessGroups(dump, entries)
    rows = rows_of(entries, groups, issues)
    tables = {
        "collectives": table_of("collectives", rows, of_one_rank=True),
        "comm_groups": table_of(
            "comm_groups", groups.rows(dump.get("pg_status")), of_one_rank=True
        ),
        "comm_notes": table_of("comm_notes", _list_states(dump), of_one_rank=True),
        "parse_issues": issues.table(),
    }
    return Parsed(tables, None, groups.world_size, _collect_facts(dump, version, rows, issues))


def _parse_major(version: str) -> int | None:
    return whole_number(version.partition(".")[0])


def _list_states(dump: Facts) -> list[Fields]:
    """Return what the communication library adds of its own communicators (NCCLX, ROCm builds)."""
    states = dump.get("nccl_comm_state")
    return [
        {
            "source": NAME,
            "level": "STATE",
            "text": f"{text_of(identity)} {text_of(key)}: {_shorten_state(value)}",
        }
        for identity, facts in (states.items() if isinstance(states, dict) else ())
        for key, value in (facts.items() if isinstance(facts, dict) else ())
    ]


def _shorten_state(value: Any) -> str:
    """Return a value as text, of nested ones the beginning."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    short = reprlib.Repr()
    short.maxlevel = 2
    short.maxstring = 200
    short.maxdict = short.maxlist = short.maxtuple = 20
    return short.repr(value)


def _collect_facts(
    dump: Facts, version: str, rows: list[Fields], issues: Issues
) -> dict[str, object]:
    times = [r[k] for r in rows for k in ("enqueue_ns", "start_ns", "end_ns") if r[k]]
    library = dump.get("comm_lib_version", dump.get("nccl_version"))
    versions = {"flight_recorder": version, "nccl_version": library}
    return {
        "versions": compact_json({k: v for k, v in versions.items() if isinstance(v, str) and v}),
        "start_ns": min(times, default=None),
        "end_ns": max(times, default=None),
        "events": len(rows),
        "stacks": sum(row["frames"] is not None for row in rows),
        "truncated": issues.has("truncated"),
        "recorded": "timing" if any(r["start_ns"] for r in rows) else "",
    }
