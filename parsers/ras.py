"""NCCL RAS: the state of every communicator of a job, as `ncclras -f json` prints it (2.28.7 on).

How many collectives each rank has enqueued, which ranks do not answer and which are ill. Two such
reports, taken apart, tell a slow rank from one that stands still.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.names.collectives import collective_type
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    read_json,
    said,
    table_of,
    whole_number,
)

NAME = "ras"

_SNIFF = re.compile(rb'"communicators"\s*:|"communicators_count"\s*:')
_ILL = ("async_error", "abort_flag", "destroy_flag", "finalize_called")


def sniff(head: Head) -> bool:
    start = head.data.lstrip()[:1]
    return start == b"{" and b'"nccl_version"' in head.data and _SNIFF.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    data = read_json(source, issues, options.progress)
    try:
        report = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: cut or broken RAS report ({error})") from None
    listed = report.get("communicators") if isinstance(report, dict) else None
    communicators = [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []
    if not communicators:
        raise MalformedTrace(f"{source.name}: a RAS report without communicators")
    records = {
        "comm_groups": [_group(c) for c in communicators],
        "comm_counts": [row for c in communicators for row in _counts(c)],
    }
    tables = {name: table_of(name, rows, of_one_rank=False) for name, rows in records.items()}
    tables["parse_issues"] = issues.table()
    version = {"nccl_version": report.get("nccl_version")}
    facts: dict[str, object] = {
        "versions": compact_json(version),
        "events": len(records["comm_counts"]),
    }
    return Parsed(tables, facts=facts)


def _hash(communicator: Mapping[str, Any]) -> int | None:
    text = communicator.get("hash")
    readable = isinstance(text, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text)
    return int(str(text), 16) if readable else None


def _group(communicator: Mapping[str, Any]) -> dict[str, Any]:
    ranks = [r for r in communicator.get("ranks") or [] if isinstance(r, dict)]
    return {
        "source": NAME,
        "comm_hash": _hash(communicator),
        "group_size": whole_number(communicator.get("size")),
        "nodes": len({r.get("host") for r in ranks}) or None,
    }


def _counts(communicator: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each rank and type that it has used; one without a type for a silent rank."""
    common = {
        "source": NAME,
        "comm_hash": _hash(communicator),
        "group_size": whole_number(communicator.get("size")),
    }
    for key in ("ranks", "missing_ranks"):
        for rank in communicator.get(key) or []:
            if not isinstance(rank, dict):
                continue
            who = common | {
                "comm_rank": whole_number(rank.get("rank")),
                "host": said(rank.get("host")),
                "process": str(rank["pid"]) if "pid" in rank else None,
                "device": whole_number(rank.get("cuda_dev")),
                "status": _status(rank.get("status")),
            }
            counts = rank.get("collective_counts")
            for name, count in counts.items() if isinstance(counts, dict) else ():
                yield who | {"type": collective_type(name), "count": whole_number(count)}
            if not isinstance(counts, dict):
                yield who


def _status(status: Any) -> str | None:
    if not isinstance(status, dict):
        return None
    wrong = [key for key in ("unresponsive", "considered_dead", *_ILL) if status.get(key)]
    return ", ".join(wrong) or None
