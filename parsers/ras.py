"""NCCL RAS: the state of every communicator of a job, as `ncclras` prints it (2.24 on).

How many collectives each rank has enqueued, which ranks do not answer and which are ill. Its JSON
(`-f json`, 2.28.7 on), and its text, which names only ranks that differ: where those that it does
not name must be all others of the communicator, they are counted too. Two reports, taken apart,
tell a slow rank from one that stands still.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from htk.base.core.humanize import pluralize_count
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.core.stated_counts import MOST_ROWS, RANKS, Allowance
from htk.base.errors import MalformedTrace
from htk.base.io.decompress import open_stream
from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import (
    READ,
    SKIPPED,
    LineFormat,
    LogPart,
    log_format,
    parse_log,
)
from htk.parsers.common.log_lines import LogLine, json_part
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    list_of,
    read_json,
    table_of,
    text_or_none,
    whole_number,
)

NAME = "ras"

_SNIFF = re.compile(rb'"communicators"\s{0,99}:|"communicators_count"\s{0,99}:')
_MARK = re.compile(
    rb"(?:^|\n)Communicators\.\.\.|Comms {1,9}Nodes {1,9}Ranks|"
    rb"(?:^|\n)#\d{1,9}-\d{1,9} \([0-9a-f]{1,16}\) [A-Z]"
)
_ILL = ("async_error", "abort_flag", "destroy_flag", "finalize_called")


def sniff(head: Head) -> bool:
    return log_format(head) == NAME or _holds_json(head.data)


def _holds_json(data: bytes) -> bool:
    named = b'"nccl_version"' in data and _SNIFF.search(data) is not None
    return named and json_part(data).startswith(b"{")


def parse(source: Source, options: ParseOptions) -> Parsed:
    with source.open() as file, open_stream(file) as stream:
        if not _holds_json(stream.read(1 << 16)):
            return parse_log(source, options)
    issues = Issues()
    text = json_part(read_json(source, issues, options.progress)).decode("utf8", "replace")
    try:
        report, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: truncated or damaged RAS report ({error})") from None
    listed = report.get("communicators") if isinstance(report, dict) else None
    communicators = [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []
    if not communicators:
        raise MalformedTrace(f"{source.name}: a RAS report without communicators")
    records = {
        "comm_groups": [_build_group(c) for c in communicators],
        "comm_counts": [row for c in communicators for row in _list_counts(c)],
    }
    tables = {name: table_of(name, rows, of_one_rank=False) for name, rows in records.items()}
    tables["parse_issues"] = issues.table()
    version = {"nccl_version": report.get("nccl_version")}
    facts: dict[str, object] = {
        "versions": compact_json(version),
        "events": len(records["comm_counts"]),
    }
    return Parsed(tables, facts=facts)


def _read_hash(communicator: Facts) -> int | None:
    text = communicator.get("hash")
    readable = isinstance(text, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text)
    return int(str(text), 16) if readable else None


def _build_group(communicator: Facts) -> Fields:
    hosts = {
        text_or_none(rank.get("host"))
        for key in ("ranks", "missing_ranks")
        for rank in list_of(communicator.get(key))
        if isinstance(rank, dict)
    }
    return {
        "source": NAME,
        "comm_hash": _read_hash(communicator),
        "group_size": whole_number(communicator.get("size")),
        "nodes": len(hosts - {None}) or None,
    }


def _list_counts(communicator: Facts) -> Iterator[Fields]:
    """A row for each rank and type that it has used; one without a type where it has used none."""
    common = {
        "source": NAME,
        "comm_hash": _read_hash(communicator),
        "group_size": whole_number(communicator.get("size")),
    }
    for key in ("ranks", "missing_ranks"):
        for rank in list_of(communicator.get(key)):
            if not isinstance(rank, dict):
                continue
            who = common | {
                "comm_rank": whole_number(rank.get("rank")),
                "host": text_or_none(rank.get("host")),
                "process": str(rank["pid"]) if "pid" in rank else None,
                "device": whole_number(rank.get("cuda_dev")),
                "status": _spell_status(rank.get("status")),
            }
            counts = rank.get("collective_counts")
            for name, count in counts.items() if isinstance(counts, dict) else ():
                yield who | {"type": collective_type(name), "count": whole_number(count)}
            if not isinstance(counts, dict) or not counts:
                yield who


def _spell_status(status: Any) -> str | None:
    if not isinstance(status, dict):
        return None
    wrong = [key for key in ("unresponsive", "considered_dead", *_ILL) if status.get(key)]
    return ", ".join(wrong) or None


# Text

_HEADINGS = {"Job summary", "Errors", "Warnings", "INCOMPLETE", "DEAD", "TIMEOUT"}
_GROUP_ROW = re.compile(
    r"^\s{0,9}(\d{1,9})\s{1,19}(\d{1,9})\s{1,19}(\d{1,9})\s{1,19}\d{1,9}(?:-\d{1,9})?\s{1,19}"
    r"(\d{1,9})\s{1,19}\d{1,9}\s{1,19}([A-Z]{2,16})\s{1,19}([A-Z,]{2,64})\s{0,9}$"
)
_COMMUNICATOR = re.compile(r"^#(\d{1,9})-\d{1,9} \(([0-9a-f]{1,16})\) ([A-Z]{2,16})\s{0,9}$")
_DIFFERENT = re.compile(
    r"^ {1,2}Communicator ranks have different (?:(\w{1,32}) operation counts|status)"
)
_SEVERAL = re.compile(
    r"^ {1,2}(\d{1,9}) ranks (?:have (?:launched up to operation (\d{1,19})"
    r"|(not) launched any operations|status (\w{1,16}))|reported (.{1,99}))\s{0,9}$"
)
_ONE = re.compile(
    r"^ {1,2}Rank (\d{1,9})"
    r"(?: has (?:launched up to operation (\d{1,19})|(not) launched any operations"
    r"|status (\w{1,16}))| reported (.{1,99}?))?"
    r" -- (?:GPU (\d{1,4})\S{0,64} managed by process "
    r"(\d{1,9}) on node (\S{1,255})|\[)"
)
_PROCESS = re.compile(
    r"^ {1,2}Process (\d{1,9}) on node (\S{1,255}) managing GPUs? ([\d,()-]{1,255})"
)
_DEVICE = re.compile(r"(\d{1,4})(?:\(\d{1,4}\))?")  # one GPU, and its number for the driver
_FRAMEWORK = re.compile(
    r"^(?:NCCL version \S{1,64} compiled with CUDA|CUDA runtime version|Communicators\.\.\."
    r"|={3,99}$|Group {1,9}Comms| {1,2}Nodes  Processes|\(total\)| {1,9}# {1,9}in group"
    r"| {1,2}(?:Missing communicator data|\d{1,9} job process|Encountered \d"
    r"|(?:Init|Asynch)\w{1,20} error))"
)
_LONGEST_LINE = 1024


class _Block:
    """The part of a report that speaks of one communicator."""

    def __init__(self, number: str, text: str, kind: str) -> None:
        self.number = number
        self.hash = int(text, 16)
        self.kind = kind
        self.type: str | None = None  # whose counts differ
        self.said: Fields = {}  # of the ranks that follow
        self.counts: dict[int, Fields] = {}  # by rank
        self.several: dict[int, int] = {}  # ranks by count


class _Reader:
    """Reads reports in text, also several that follow each other."""

    def __init__(self, _file: str, _issues: Issues) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}  # ranks and nodes, by group
        self._unnamed = Allowance(MOST_ROWS)
        self._block: _Block | None = None
        self._heading: str | None = None
        self._in_report = False
        self._rows: list[Fields] = []
        self._groups: dict[int, Fields] = {}
        self._table_rows: list[re.Match[str]] = []
        self._told: set[str] = set()  # groups of which more is told than their row

    def read(self, line: LogLine) -> str | None:
        text = line.text[:_LONGEST_LINE].rstrip()
        if text == "Job summary" or text.startswith("Communicators..."):
            self._begin(text)
            return READ
        if _FRAMEWORK.match(text) and (self._in_report or "compiled with CUDA" in text):
            return SKIPPED
        if text in _HEADINGS and self._in_report:
            self._close()
            self._heading = text
            return READ
        if match := _COMMUNICATOR.match(text):
            self._close()
            self._in_report = True
            self._block = _Block(*match.groups())
            self._told.add(match[1])
            return READ
        if not self._in_report:
            return None
        return READ if self._read_detail(text) else None

    def _begin(self, text: str) -> None:
        self._close()
        if text == "Job summary" or not self._in_report:
            self._sizes = {}
        self._in_report = True
        self._heading = None

    def _read_detail(self, text: str) -> bool:
        block = self._block
        if match := _GROUP_ROW.match(text):
            self._sizes[match[1]] = int(match[4]), int(match[3])
            self._table_rows.append(match)
        elif match := _PROCESS.match(text):
            one_gpu = _DEVICE.fullmatch(match[3])
            device = int(one_gpu[1]) if one_gpu else None
            who = {"process": match[1], "host": match[2], "device": device}
            status = "considered_dead" if self._heading == "DEAD" else "unresponsive"
            self._rows.append(self._build_group_row(None) | who | {"status": status})
        elif block is None:
            return False
        elif match := _DIFFERENT.match(text):
            self._finish_type()
            block.type = collective_type(match[1]) if match[1] else None
        elif match := _SEVERAL.match(text):
            block.said = _parse_line(match, 2)
            if block.type and "count" in block.said:
                block.several[block.said["count"]] = int(match[1])
        elif match := _ONE.match(text):
            self._rank(block, match)
        else:
            return False
        return True

    def _rank(self, block: _Block, match: re.Match[str]) -> None:
        said_of_it = _parse_line(match, 2) or block.said
        row = self._build_group_row(block) | {
            "comm_rank": int(match[1]),
            "device": int(match[6]) if match[6] else None,
            "process": match[7],
            "host": match[8],
            **said_of_it,
        }
        if block.kind == "INCOMPLETE":
            self._rows.append(row | {"status": "unresponsive"})
        elif "count" in said_of_it:
            block.counts[int(match[1])] = row | {"type": block.type}
        else:
            self._rows.append(row)

    def _build_group_row(self, block: _Block | None) -> Fields:
        size = self._sizes.get(block.number) if block else None
        return {
            "source": NAME,
            "comm_hash": block.hash if block else None,
            "group_size": size[0] if size else None,
        }

    def _finish_type(self) -> None:
        """Count for the ranks that are not named, where they must be all the others."""
        block = self._block
        if block is None or not (block.counts or block.several):
            return
        size = self._sizes.get(block.number, (0, 0))[0]
        named = [row["count"] for row in block.counts.values()]
        left = {n: k for n, k in block.several.items() if n not in named}
        unnamed = size - len(block.counts) if RANKS.believes(size) else 0
        is_of_others = len(left) == 1 and unnamed > 0 and [unnamed] == list(left.values())
        if is_of_others and self._unnamed.takes(unnamed):
            (count,) = left
            for rank in sorted(set(range(size)) - set(block.counts)):
                row = self._build_group_row(block) | {
                    "comm_rank": rank,
                    "count": count,
                    "type": block.type,
                }
                block.counts[rank] = row
        self._rows += [block.counts[rank] for rank in sorted(block.counts)]
        block.counts = {}
        block.several = {}

    def _close(self) -> None:
        self._finish_type()
        block = self._block
        if block is not None:
            size = self._sizes.get(block.number, (None, None))
            self._groups[block.hash] = {
                "source": NAME,
                "comm_hash": block.hash,
                "group_size": size[0],
                "nodes": size[1],
            }
        self._block = None

    def finish(self) -> LogPart:
        self._close()
        untold = [row for row in self._table_rows if row[1] not in self._told]
        groups = [*self._groups.values(), *map(_group_of_row, untold)]
        notes = [_note_of_row(row) for row in untold]
        return LogPart({"comm_counts": self._rows, "comm_groups": groups, "comm_notes": notes})


def _group_of_row(row: re.Match[str]) -> Fields:
    """Return the group that a row of the table tells of: without a hash, which it does not show."""
    return {"source": NAME, "group_size": int(row[4]), "nodes": int(row[3])}


def _note_of_row(row: re.Match[str]) -> Fields:
    """Return in words what a row of the table says of its communicators."""
    count = int(row[2])
    ranks = int(row[4])
    status = row[5]
    errors = row[6]
    state = "all ranks have launched equally many collectives" if errors == "OK" else errors
    counted = pluralize_count(count, "communicator")
    words = f"RAS: {counted} of {ranks:,} ranks, {status.lower()}: {state}."
    return {"source": NAME, "level": "STATE", "text": words}


def _parse_line(match: re.Match[str], first: int) -> Fields:
    """Return what a line says of a rank or of several: a count, a status or an error."""
    count, none, status, error = match.groups()[first - 1 : first + 3]
    if count or none:
        return {"count": int(count or 0)}
    if status:
        return {"status": status.lower()}
    return {"status": f"error: {error}"} if error else {}


LINES = LineFormat(NAME, _MARK, _Reader)
