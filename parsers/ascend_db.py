"""Ascend: the database that torch_npu's profiler exports (`ascend_pytorch_profiler_RANK.db`).

Its rows are told again as Kineto's JSON, which its parser reads: tasks of operators and copies on
the NPU and HCCL's collectives become GPU work, CANN's calls become launching calls, connections
become their ids, PyTorch's calls operators. Not read: the tasks of HCCL's planes, which its
collectives hold, and what the exporter's own analyses sum up.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.base.schema import INT64, STRING
from htk.parsers.common.ascend_tasks import CALL, COPIES, FIRST_GROUP, TASKS_QUEUE, WAITS
from htk.parsers.common.log_records import Issues
from htk.parsers.common.sqlite_file import MAGIC, Database, open_database
from htk.parsers.kineto.retold import parse_retold, to_stamp

NAME = "ascend_db"

_MARK = b"STRING_IDS"  # the table that every export has
_SPAN = ("startNs", "endNs", "connectionId")
_NUMBERED: Mapping[str, tuple[str, ...]] = {  # columns of whole numbers that are read of each table
    "PYTORCH_API": (*_SPAN, "globalTid", "name", "type", "sequenceNumber", "fwdThreadId",
                    "inputShapes"),
    "CANN_API": (*_SPAN, "globalTid", "name", "type"),
    "MSTX_EVENTS": (*_SPAN, "globalTid", "message"),
    "STEP_TIME": (*_SPAN, "id"),
    "TASK": (*_SPAN, "deviceId", "globalTaskId", "taskType", "streamId"),
    "COMPUTE_TASK_INFO": ("globalTaskId", "name"),
    "COMMUNICATION_TASK_INFO": ("globalTaskId",),
    "COMMUNICATION_OP": (*_SPAN, "opName", "groupName", "opType", "count", "dataType"),
    "MEMCPY_INFO": ("globalTaskId", "size", "memcpyOperation"),
    "CONNECTION_IDS": ("id", "connectionId"),
    "RANK_DEVICE_MAP": ("rankId", "deviceId"),
}  # fmt: skip
_NAMED = {  # tables of texts, by the columns of what they are called and say
    "STRING_IDS": ("id", "value"),
    "ENUM_API_TYPE": ("id", "name"),
    "ENUM_HCCL_DATA_TYPE": ("id", "name"),
    "ENUM_MEMCPY_OPERATION": ("id", "name"),
    "META_DATA": ("name", "value"),
}
_TID_BITS = 32
_DTYPES = {
    "INT8": "Char", "INT16": "Short", "INT32": "Int", "INT64": "Long", "UINT8": "Byte",
    "FP16": "Half", "BFP16": "BFloat16", "FP32": "Float", "FP64": "Double",
}  # fmt: skip
_SIDES = re.compile(r"(host|device)\W*(?:to|2)\W*(host|device)", re.IGNORECASE)
_GATHERS = ("allgather", "reducescatter")  # of which one count is of a rank's part
_STEP = "ProfilerStep#"


def sniff(head: Head) -> bool:
    return head.data.startswith(MAGIC) and _MARK in head.data


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    with open_database(source, issues, options.progress) as database:
        export = _Export.from_database(database)
    events = [*export.host(), *export.device(issues)]
    if not events:
        raise MalformedTrace(f"{source.name}: a database of Ascend's without calls or tasks")
    parsed = parse_retold(msgspec.json.encode({"traceEvents": events}), source, options, issues)
    if export.rank is None:
        return parsed
    return replace(parsed, rank=export.rank, facts={**parsed.facts, "rank_from": "RANK_DEVICE_MAP"})


@dataclass(frozen=True)
class _Export:
    """Rows of the tables that hold events, and what their numbers stand for."""

    rows: Mapping[str, list[Fields]]
    strings: Mapping[int, str]
    kinds_of_calls: Mapping[int, str]
    dtypes: Mapping[int, str]
    operator_of: Mapping[int, int]  # connection -> number that its operator has too
    groups: Mapping[str, list[int]]  # ranks of each group
    rank: int | None

    @classmethod
    def from_database(cls, database: Database) -> "_Export":
        rows = {
            table: database.read(table, dict.fromkeys(columns, INT64)).to_pylist()
            for table, columns in _NUMBERED.items()
        }
        for table, columns in _NAMED.items():
            kinds = {name: INT64 if name == "id" else STRING for name in columns}
            rows[table] = database.read(table, kinds).to_pylist()
        ranks = {row["rankId"] for row in rows["RANK_DEVICE_MAP"]} - {None, -1}
        return cls(
            rows,
            _map_rows(rows["STRING_IDS"], "id", "value"),
            _map_rows(rows["ENUM_API_TYPE"], "id", "name"),
            _map_rows(rows["ENUM_HCCL_DATA_TYPE"], "id", "name"),
            _map_rows(rows["CONNECTION_IDS"], "connectionId", "id"),
            _collect_groups(rows["META_DATA"]),
            ranks.pop() if len(ranks) == 1 else None,
        )

    def host(self) -> Iterator[Fields]:
        """Yield what threads did: calls of PyTorch and of CANN, ranges, steps."""
        has_steps = False
        for row in self.rows["PYTORCH_API"]:
            name = self._find_text(row["name"])
            kind = self.kinds_of_calls.get(row["type"], "")
            has_steps |= name.startswith(_STEP)
            arguments = {
                "External id": row["connectionId"],
                "Sequence number": row["sequenceNumber"],
                "Fwd thread id": row["fwdThreadId"],
                "Input Dims": _parse_shapes(self._find_text(row["inputShapes"])),
            }
            yield _build_event(row, name, _find_category(name, kind), arguments)
        for row in self.rows["CANN_API"]:
            kind = self.kinds_of_calls.get(row["type"], "")
            name = (
                f"{kind.title()}@{self._find_text(row['name'])}"
                if kind
                else self._find_text(row["name"])
            )
            yield _build_event(row, name, CALL, {"correlation": row["connectionId"]})
        for row in self.rows["MSTX_EVENTS"]:
            yield _build_event(row, self._find_text(row["message"]), "user_annotation", {})
        thread = next((row["globalTid"] for row in self.rows["PYTORCH_API"]), 0)
        for row in [] if has_steps else self.rows["STEP_TIME"]:
            step = {**row, "globalTid": thread}
            yield _build_event(step, f"{_STEP}{row['id']}", "user_annotation", {})

    def device(self, issues: Issues) -> Iterator[Fields]:
        """Yield what NPUs did: tasks, and collectives."""
        computed = {row["globalTaskId"]: row for row in self.rows["COMPUTE_TASK_INFO"]}
        copied = {row["globalTaskId"]: row for row in self.rows["MEMCPY_INFO"]}
        directions = _map_rows(self.rows["ENUM_MEMCPY_OPERATION"], "id", "name")
        planes = {row["globalTaskId"] for row in self.rows["COMMUNICATION_TASK_INFO"]}
        unread: Counter[str] = Counter()
        for row in self.rows["TASK"]:
            task = row["globalTaskId"]
            kind = self._find_text(row["taskType"])
            arguments: Fields = {"stream": row["streamId"], **self._place(row)}
            if task in computed:
                yield _build_event(
                    row, self._find_text(computed[task]["name"]) or kind, "kernel", arguments
                )
            elif task in planes:
                continue
            elif task in copied or COPIES.search(kind):
                copy = copied.get(task, {})
                arguments["bytes"] = copy.get("size")
                operation = directions.get(copy.get("memcpyOperation") or 0, "")
                name = _copy_name(operation if copy else "", kind)
                yield _build_event(row, name, "gpu_memcpy", arguments)
            elif WAITS.search(kind):
                yield _build_event(row, kind, "cuda_sync", arguments)
            else:
                unread[f"tasks of type {kind or 'unknown'}"] += 1
        streams: dict[int, int] = {}
        device = next((row["deviceId"] for row in self.rows["TASK"]), 0)
        for row in self.rows["COMMUNICATION_OP"]:
            stream = streams.setdefault(row["groupName"], FIRST_GROUP + len(streams))
            arguments = {"stream": stream, **self._place({"deviceId": device, **row})}
            arguments |= self._describe_collective(row)
            yield _build_event(row, self._find_text(row["opName"]), "kernel", arguments)
        for what, count in unread.items():
            issues.add("unread_events", f"{what}, are not read", count=count)

    def _place(self, row: Fields) -> Fields:
        connection = row["connectionId"]
        return {
            "device": row["deviceId"],
            "correlation": connection,
            "External id": self.operator_of.get(connection),
        }

    def _describe_collective(self, row: Fields) -> Fields:
        """Return the facts of a collective by Kineto's names for them."""
        name = self._find_text(row["opType"]) or self._find_text(row["opName"])
        kind = re.sub(r"^hcom_|_", "", name).lower()
        group = self._find_text(row["groupName"])
        ranks = self.groups.get(group, [])
        size = len(ranks)
        count = row["count"]
        part = _GATHERS.index(kind) if kind in _GATHERS else None
        total = None if count is None or (part is not None and not size) else count
        if total is not None and part is not None:
            total *= size
        return {
            "Collective name": kind,
            "In msg nelems": total if part == 1 else count,
            "Out msg nelems": count if part == 1 else total,
            "dtype": _DTYPES.get(self.dtypes.get(row["dataType"], "")),
            "Process Group Name": group,
            "Group size": size or None,
            "Process Group Ranks": json.dumps(ranks) if ranks else None,
        }

    def _find_text(self, number: object) -> str:
        return self.strings.get(number, "") if isinstance(number, int) else ""


def _map_rows(rows: list[Fields], key: str, value: str) -> dict[int, Any]:
    return {row[key]: row[value] for row in rows if None not in (row[key], row[value])}


def _build_event(row: Fields, name: str, category: str, arguments: Fields) -> Fields:
    start = row["startNs"] or 0
    end = row["endNs"] or 0
    thread = row.get("globalTid") or 0
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": thread >> _TID_BITS,
        "tid": thread & (1 << _TID_BITS) - 1,
        "ts": to_stamp(start),
        "dur": to_stamp(max(end - start, 0)),
        "args": {key: value for key, value in arguments.items() if value is not None},
    }


def _find_category(name: str, kind: str) -> str:
    """Return what a call of PyTorch's is to Kineto."""
    if name.startswith(_STEP) or kind == "mstx":
        return "user_annotation"
    if kind == "queue" or name.split("@")[0].lower() in TASKS_QUEUE:
        return CALL
    return "python_function" if kind == "trace" else "cpu_op"


def _copy_name(operation: str, kind: str) -> str:
    sides = _SIDES.search(operation)
    return f"Memcpy {sides[1][0].upper()}to{sides[2][0].upper()}" if sides else kind


def _parse_shapes(text: str) -> list[list[int]] | None:
    """Return `8,64;64,32` as sizes of each argument."""
    shapes = text.strip('"').split(";")
    with suppress(ValueError):
        return [[int(size) for size in shape.split(",") if size.strip()] for shape in shapes]
    return None


def _collect_groups(metadata: list[Fields]) -> dict[str, list[int]]:
    """Return the ranks of each group, by HCCL's name of it."""
    texts = [row["value"] for row in metadata if row["name"] == "parallel_group_info"]
    with suppress(ValueError, TypeError, AttributeError):
        groups = json.loads(texts[0]) if texts else {}
        return {
            name: [rank for rank in group.get("global_ranks", []) if isinstance(rank, int)]
            for name, group in groups.items()
            if isinstance(group, dict)
        }
    return {}
