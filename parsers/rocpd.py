"""rocprofv3: its SQLite database, `rocprofv3 --output-format rocpd` (ROCm 7; schemas 3 and 4).

A database may hold several processes (each with tables of its own, named by an id, once databases
were joined): each is a recording of its own. Read: kernel dispatches, memory copies, regions
(calls of HIP and HSA, ranges of roctx, calls of RCCL), GPUs, the environment. Not read: counters,
samples, allocations, arguments of calls. The file's own views are not used. In schema 4 rows name a
track, which has the process, thread, agent, queue and stream, and categories have their own table.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, decode_texts, mark_valid, read_numbers
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Facts, Fields
from htk.base.schema import INT64, STRING
from htk.parsers.common.log_records import Issues, compact_json, whole_number
from htk.parsers.common.rocprof_tables import (
    ApiCalls,
    GpuWork,
    kernel_name,
    name_codes,
    one_process,
)
from htk.parsers.common.span_tables import mark_timed
from htk.parsers.common.sqlite_file import MAGIC, Database, open_database
from htk.quantities.derived.links import look_up

NAME = "rocpd"

_SUFFIX = re.compile(r"^rocpd_(?:kernel_dispatch|region|memory_copy)(.*)$")
_WORK = ("start", "end", "pid", "tid", "event_id", "track_id")
_TRACK = ("pid", "tid", "agent_id", "queue_id", "stream_id")
_DISPATCH = (*_WORK, "agent_id", "kernel_id", "queue_id", "stream_id", "group_segment_size")
_AXES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz")
_COPY = (*_WORK, "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id", "queue_id")
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def sniff(head: Head) -> bool:
    return head.data.startswith(MAGIC) and b"rocpd_" in head.data


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues(options.keep_overruns)
    with open_database(source, issues, options.progress) as database:
        suffixes = {m[1] for name in database.columns if (m := _SUFFIX.match(name))}
        sets = [_Set.from_database(database, suffix, issues) for suffix in sorted(suffixes)]
    recordings = [
        parsed
        for of in sets
        for pid in of.processes()
        if (parsed := of.recording(pid, options)) is not None
    ]
    if not recordings:
        raise MalformedTrace(
            f"{source.name}: a database of rocprofv3 without dispatches, copies or regions "
            "(schemas 3 and 4 are read); record with: rocprofv3 --kernel-trace --hip-trace -- …"
        )
    first, *others = recordings
    tables_of = {**first.tables, "parse_issues": issues.table()}
    return Parsed(tables_of, first.rank, first.world_size, first.facts, tuple(others))


@dataclass(frozen=True)
class _Set:
    """The tables of one id: rows of one or more processes of one run."""

    dispatches: pa.Table
    copies: pa.Table
    regions: pa.Table
    strings: Mapping[int, str]
    categories: Mapping[int, str]
    symbols: pa.Table
    events: pa.Table
    agents: pa.Table
    threads: Mapping[int, int]  # number of the row -> thread id
    owners: Mapping[int, dict[str, object]]  # number of the row -> process
    hosts: Mapping[int, str]
    truncated: bool

    @classmethod
    def from_database(cls, database: Database, suffix: str, issues: Issues) -> "_Set":
        def read_columns(table: str, *integers: str, **others: pa.DataType) -> pa.Table:
            return database.read(f"rocpd_{table}{suffix}", dict.fromkeys(integers, INT64) | others)

        tracks = read_columns("track", "id", *_TRACK)

        def read_spans(table: str, *integers: str) -> pa.Table:
            rows = _with_track(read_columns(table, *integers), tracks)
            usable = mark_timed(rows["start"], rows["end"], f"rocpd_{table}", issues)
            return rows.filter(pa.array(usable))

        threads = read_columns("info_thread", "id", "tid")
        processes = read_columns("info_process", "id", "pid", "nid", environment=STRING)
        nodes = read_columns("info_node", "id", hostname=STRING)
        strings = _map_rows(read_columns("string", "id", string=STRING), "string")
        categories = _map_rows(read_columns("info_category", "id", name=STRING), "name")
        return cls(
            read_spans("kernel_dispatch", *_DISPATCH, *_AXES),
            read_spans("memory_copy", *_COPY),
            read_spans("region", *_WORK, "name_id"),
            strings,
            categories or strings,
            read_columns(
                "info_kernel_symbol",
                "id",
                "arch_vgpr_count",
                "accum_vgpr_count",
                display_name=STRING,
                kernel_name=STRING,
            ),
            read_columns("event", "id", "stack_id", "category_id", extdata=STRING),
            read_columns(
                "info_agent", "id", "type_index", type=STRING, product_name=STRING, name=STRING
            ),
            _map_rows(threads, "tid"),
            {row["id"]: row for row in processes.to_pylist()},
            _map_rows(nodes, "hostname"),
            issues.has("damaged_table"),
        )

    def processes(self) -> list[int]:
        """Return those with GPU work, else those with regions."""
        for sources in ((self.dispatches, self.copies), (self.regions,)):
            owners = np.concatenate([read_numbers(t["pid"], NONE) for t in sources])
            if len(owners):
                return [int(p) for p in np.unique(owners).tolist()]
        return []

    def recording(self, owner: int, options: ParseOptions) -> Parsed | None:
        process = self.owners.get(owner, {})
        pid = whole_number(process.get("pid")) or owner
        calls = self._read_calls(_select_process(self.regions, owner))
        kernels = self._read_kernels(_select_process(self.dispatches, owner))
        copies = self._read_copies(_select_process(self.copies, owner))
        rank, facts = self._read_facts(process)
        parsed = one_process(
            NAME, pid, kernels, copies, calls, facts, rank, Issues(options.keep_overruns)
        )
        return parsed if parsed.tables["events"].num_rows else None

    def _read_kernels(self, rows: pa.Table) -> GpuWork:
        symbols = self.symbols.to_pylist()
        names = {s["id"]: kernel_name(s["display_name"] or s["kernel_name"] or "") for s in symbols}
        registers = np.array([*map(_count_registers, symbols), -1])
        ids = read_numbers(rows["kernel_id"], NONE)
        symbol = look_up(read_numbers(self.symbols["id"], NONE), np.arange(len(symbols)), ids)
        sizes = [read_numbers(rows[name], NONE) for name in _AXES]
        return GpuWork(
            name_codes(ids, names),
            *self._read_common(rows),
            self._read_devices(rows["agent_id"]),
            _read_streams(rows),
            read_numbers(rows["group_segment_size"], NONE),
            registers[symbol],
            (sizes[0], sizes[1], sizes[2]),
            (sizes[3], sizes[4], sizes[5]),
        )

    def _read_copies(self, rows: pa.Table) -> GpuWork:
        """Return a copy belongs to the GPU that it reaches, else to the one that it leaves."""
        to = self._read_devices(rows["dst_agent_id"])
        source = self._read_devices(rows["src_agent_id"])
        nothing = fill_none(len(rows))
        return GpuWork(
            name_codes(read_numbers(rows["name_id"], NONE), self.strings),
            *self._read_common(rows),
            np.where(to >= 0, to, source),
            _read_streams(rows),
            read_numbers(rows["size"], NONE),
            nothing,
            (nothing, nothing, nothing),
            (nothing, nothing, nothing),
        )

    def _read_calls(self, rows: pa.Table) -> ApiCalls:
        """Regions; what roctx marked stands in the event, under `message`."""
        event = self._event_place(rows)
        category = take_or(read_numbers(self.events["category_id"], NONE), event)
        function = name_codes(read_numbers(rows["name_id"], NONE), self.strings)
        messages = self.events["extdata"].combine_chunks().dictionary_encode()
        marks = [_find_message(value) for value in messages.dictionary.to_pylist()]
        codes = take_or(read_numbers(messages.indices, NONE), event)
        message = decode_texts(codes, pa.array([k or "" for k in marks], STRING)).cast(STRING)
        is_marked = pa.compute.not_equal(message, "")
        name = pa.compute.if_else(is_marked, message, function.cast(STRING))
        return ApiCalls(
            name.dictionary_encode().cast(function.type),
            *self._read_common(rows),
            _looked_up(self.threads, read_numbers(rows["tid"], NONE)),
            name_codes(category, self.categories),
        )

    def _read_common(self, rows: pa.Table) -> tuple[Ints, Ints, Ints]:
        """Start, end, and the id that a call shares with what it launched."""
        stack = take_or(read_numbers(self.events["stack_id"], 0), self._event_place(rows), 0)
        return read_numbers(rows["start"]), read_numbers(rows["end"]), stack

    def _event_place(self, rows: pa.Table) -> Ints:
        ids = read_numbers(self.events["id"], NONE)
        return look_up(ids, np.arange(len(ids)), read_numbers(rows["event_id"], -2))

    def _read_devices(self, agent: pa.ChunkedArray) -> Ints:
        """Index among the GPUs."""
        gpus = {
            row["id"]: row["type_index"] if row["type_index"] is not None else number
            for number, row in enumerate(self._gpus)
        }
        return _looked_up(gpus, read_numbers(agent, NONE))

    @property
    def _gpus(self) -> list[Fields]:
        return [row for row in self.agents.to_pylist() if row["type"] == "GPU"]

    def _read_facts(self, process: Mapping[str, object]) -> tuple[int | None, dict[str, object]]:
        variables = _read_variables(process.get("environment"))
        rank = next((whole_number(variables[n]) for n in _RANKS if n in variables), None)
        size = next((whole_number(variables[n]) for n in _SIZES if n in variables), None)
        if rank is not None and not 0 <= rank < (size or 1 << 31):
            rank = size = None
        names = [str(gpu["product_name"] or gpu["name"]) for gpu in self._gpus]
        listed = [{"name": name} for name in names]
        return rank, {
            "host": self.hosts.get(whole_number(process.get("nid")) or -1),
            "world_size": size,
            "rank_from": "environment",
            "device_name": names[0] if names else None,
            "device_count": len(names) or None,
            "device_properties": compact_json(listed) if listed else None,
            "base_time_ns": 0,
        }


def _with_track(rows: pa.Table, tracks: pa.Table) -> pa.Table:
    """Return rows with what their track says of them, where they do not say it themselves."""
    if not tracks.num_rows or "track_id" not in rows.column_names:
        return rows
    ids = read_numbers(tracks["id"], NONE)
    row_of_track = look_up(ids, np.arange(len(ids)), read_numbers(rows["track_id"], -2))
    for name in _TRACK:
        if name in rows.column_names:
            of_track = take_or(read_numbers(tracks[name], NONE), row_of_track)
            has_own = mark_valid(rows[name])
            value = np.where(has_own, read_numbers(rows[name], NONE), of_track)
            column = build_numbers(value, INT64, has_own | (of_track >= 0))
            rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _select_process(rows: pa.Table, owner: int) -> pa.Table:
    return rows.filter(pa.array(read_numbers(rows["pid"], NONE) == owner))


def _count_registers(symbol: Facts) -> int:
    """Return the vector registers of a kernel, of both sorts; -1: not recorded."""
    own = symbol["arch_vgpr_count"]
    accumulated = symbol["accum_vgpr_count"]
    return -1 if own is None or accumulated is None else int(own + accumulated)


def _read_streams(rows: pa.Table) -> Ints:
    """Return the HIP stream, else the queue of the GPU."""
    stream = rows["stream_id"]
    queue = rows["queue_id"]
    return np.where(mark_valid(stream), read_numbers(stream, NONE), read_numbers(queue, NONE))


def _map_rows(rows: pa.Table, value: str) -> dict[int, Any]:
    pairs = zip(rows["id"].to_pylist(), rows[value].to_pylist(), strict=True)
    return {key: entry for key, entry in pairs if key is not None and entry is not None}


def _looked_up(values: Mapping[int, object], keys: Ints) -> Ints:
    """Return the value of each key (-1: none); each distinct key is asked for once."""
    distinct, key_of_row = np.unique(keys, return_inverse=True)
    converted = [whole_number(values.get(key)) for key in distinct.tolist()]
    return np.array([-1 if f is None else f for f in converted], np.int64)[key_of_row]


def _find_message(extdata: str | None) -> str | None:
    try:
        held = json.loads(extdata or "{}")
    except (ValueError, RecursionError):
        return None
    message = held.get("message") if isinstance(held, dict) else None
    return message if isinstance(message, str) else None


def _read_variables(written: object) -> Mapping[str, object]:
    try:
        held = json.loads(written) if isinstance(written, str) else {}
    except (ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
