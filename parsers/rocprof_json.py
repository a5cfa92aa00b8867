"""rocprofv3: the JSON that `rocprofv3 --output-format json` writes, one file a process.

Read: kernel dispatches, memory copies, calls of HIP and HSA, ranges of roctx, calls of RCCL, GPUs.
Not read: counters, samples, allocations, code objects. Kernels are tied to the calls that launched
them where those were traced (--hip-trace); the file does not say which rank it is of.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from htk.base.columns.arrow import build_texts
from htk.base.columns.types import Ints
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Facts
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    list_of,
    read_whole,
    salvaged_json,
    text_or_none,
    whole_number,
)
from htk.parsers.common.rocprof_tables import (
    ApiCalls,
    GpuWork,
    kernel_name,
    name_codes,
    one_process,
)
from htk.parsers.common.span_tables import FARTHEST_NS

NAME = "rocprof_json"

_START = re.compile(rb'^\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_GPU = 2  # rocprofiler_agent_type_t
_CALLS = ("hip_api", "hsa_api", "marker_api", "rccl_api")
_BESIDE = ("metadata", "agents", "kernel_symbols", "strings")  # what stands before the records


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int = -1


class _Correlation(msgspec.Struct, frozen=True, gc=False):
    internal: int = 0


class _Size(msgspec.Struct, frozen=True, gc=False):
    x: int = -1
    y: int = -1
    z: int = -1


class _Dispatched(msgspec.Struct, gc=False):
    agent_id: _Handle
    kernel_id: int
    queue_id: _Handle = _Handle()
    group_segment_size: int = -1
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class _Record(msgspec.Struct, gc=False):
    """The fields that every record has."""

    start_timestamp: int
    end_timestamp: int
    correlation_id: _Correlation = _Correlation()
    thread_id: int = 0
    kind: int = -1
    operation: int = -1


class _Dispatch(_Record, kw_only=True, gc=False):
    dispatch_info: _Dispatched
    stream_id: _Handle | None = None


class _Copy(_Record, kw_only=True, gc=False):
    dst_agent_id: _Handle = _Handle()
    src_agent_id: _Handle = _Handle()
    bytes: int = -1
    stream_id: _Handle | None = None


class _Records(msgspec.Struct):
    kernel_dispatch: list[_Dispatch] = []
    memory_copy: list[_Copy] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    marker_api: list[_Record] = []
    rccl_api: list[_Record] = []


class _Process(msgspec.Struct):
    buffer_records: _Records
    metadata: Any = None
    agents: Any = None
    kernel_symbols: Any = None
    strings: Any = None


_SORTS: Mapping[str, type] = {
    "kernel_dispatch": _Dispatch,
    "memory_copy": _Copy,
    **dict.fromkeys(_CALLS, _Record),
}


def sniff(head: Head) -> bool:
    return _START.match(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues(options.keep_overruns)
    processes = _decode_processes(read_whole(source, issues, options.progress), source.name, issues)
    recordings = [
        _build_recording(p, issues if not k else Issues(options.keep_overruns))
        for k, p in enumerate(processes)
    ]
    if not any(sum(t.num_rows for t in r.tables.values()) for r in recordings):
        raise MalformedTrace(
            f"{source.name}: no kernel, copy, call or range was recorded; record with: "
            "rocprofv3 --kernel-trace --hip-trace --output-format json -- …"
        )
    first, *others = recordings
    return Parsed(first.tables, None, None, first.facts, tuple(others))


def _decode_processes(data: bytes, name: str, issues: Issues) -> list[_Process]:
    """Return the processes of a file: record by record where one is damaged, as far as it goes
    where the file was cut."""
    try:
        strict = msgspec.json.decode(data, type=dict[str, list[_Process]])
    except msgspec.ValidationError:
        strict = None
    except (msgspec.DecodeError, RecursionError) as error:
        issues.add("truncated", f"{error}; complete records are kept")
        return [_salvage_file(data.decode("utf8", "replace"), issues)]
    if strict is not None:
        return [process for listed in strict.values() for process in listed]
    try:
        loose = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:  # behind the value of a wrong type
        issues.add("truncated", f"{error}; complete records are kept")
        return [_salvage_file(data.decode("utf8", "replace"), issues)]
    listed = loose.get("rocprofiler-sdk-tool") if isinstance(loose, dict) else None
    listed = listed if isinstance(listed, list) else [listed]
    processes = [
        _read_leniently(process, issues) for process in listed if isinstance(process, dict)
    ]
    if not processes:
        raise MalformedTrace(f"{name}: rocprofv3 JSON without a process")
    return processes


def _read_leniently(process: Facts, issues: Issues) -> _Process:
    held = process.get("buffer_records")
    records = _Records()
    for sort, kind in _SORTS.items():
        listed = held.get(sort) if isinstance(held, dict) else None
        for record in listed if isinstance(listed, list) else []:
            try:
                getattr(records, sort).append(msgspec.convert(record, kind))
            except (msgspec.ValidationError, OverflowError) as error:
                issues.add("broken_event", f"{sort}: {error}")
    return _Process(records, **{key: process.get(key) for key in _BESIDE})


def _salvage_file(written: str, issues: Issues) -> _Process:
    """Return what a truncated file holds before the records, and its complete dispatches."""
    members = salvaged_json(written, "kernel_dispatch", _BESIDE)
    records = _Records()
    for record in members["kernel_dispatch"]:
        try:
            records.kernel_dispatch.append(msgspec.convert(record, _Dispatch))
        except (msgspec.ValidationError, OverflowError):
            continue  # of another list
    return _Process(records, **{key: members.get(key) for key in _BESIDE})


def _build_recording(process: _Process, issues: Issues) -> Parsed:
    metadata = process.metadata if isinstance(process.metadata, dict) else {}
    pid = whole_number(metadata.get("pid")) or 0
    agents = _number_gpus(process.agents)
    records = process.buffer_records
    kinds = _Kinds(process.strings)
    calls = _read_calls(records, kinds, issues)
    used = {r.dispatch_info.agent_id.handle for r in records.kernel_dispatch}
    driven = {agents[handle] for handle in used if handle in agents}
    facts = _collect_facts(metadata, process.agents)
    facts["host_device"] = driven.pop() if len(driven) == 1 else None
    return one_process(
        NAME,
        pid,
        _read_dispatches(
            _select_usable(records.kernel_dispatch, "kernel_dispatch", issues), process, agents
        ),
        _read_copies(_select_usable(records.memory_copy, "memory_copy", issues), kinds, agents),
        calls,
        facts,
        None,
        issues,
    )


def _select_usable(records: list[Any], what: str, issues: Issues) -> list[Any]:
    """Return records with plausible times; rocprofv3 writes 0 for what it could not time."""
    good = [r for r in records if 0 < r.start_timestamp <= r.end_timestamp < FARTHEST_NS]
    if len(good) < len(records):
        issues.add("no_time", f"{what}: without a usable time", count=len(records) - len(good))
    return good


def _read_dispatches(
    records: list[_Dispatch], process: _Process, agents: Mapping[int, int]
) -> GpuWork:
    symbols = _read_symbols(process.kernel_symbols)
    infos = [r.dispatch_info for r in records]
    ids = _build_ints(i.kernel_id for i in infos)
    registers = {k: symbol[1] for k, symbol in symbols.items()}
    return GpuWork(
        name_codes(ids, {k: symbol[0] for k, symbol in symbols.items()}),
        *_read_common(records),
        _build_ints(agents.get(i.agent_id.handle, -1) for i in infos),
        _build_ints(
            (r.stream_id or i.queue_id).handle for r, i in zip(records, infos, strict=True)
        ),
        _build_ints(i.group_segment_size for i in infos),
        _build_ints(registers.get(i.kernel_id, -1) for i in infos),
        tuple(_build_ints(getattr(i.grid_size, a) for i in infos) for a in "xyz"),  # type: ignore[arg-type]
        tuple(_build_ints(getattr(i.workgroup_size, a) for i in infos) for a in "xyz"),  # type: ignore[arg-type]
    )


def _read_copies(records: list[_Copy], kinds: "_Kinds", agents: Mapping[int, int]) -> GpuWork:
    """Return copies; each belongs to the GPU that it reaches, else to the one that it leaves."""
    ends = [(r.dst_agent_id.handle, r.src_agent_id.handle) for r in records]
    nothing = _build_ints(-1 for _ in records)
    return GpuWork(
        build_texts([kinds.operation(r) for r in records]),
        *_read_common(records),
        _build_ints(agents.get(to, agents.get(source, -1)) for to, source in ends),
        _build_ints(r.stream_id.handle if r.stream_id else -1 for r in records),
        _build_ints(r.bytes for r in records),
        nothing,
        (nothing, nothing, nothing),
        (nothing, nothing, nothing),
    )


def _read_calls(records: _Records, kinds: "_Kinds", issues: Issues) -> ApiCalls:
    listed = [r for sort in _CALLS for r in _select_usable(getattr(records, sort), sort, issues)]
    return ApiCalls(
        build_texts([kinds.call(r) for r in listed]),
        *_read_common(listed),
        _build_ints(r.thread_id for r in listed),
        build_texts([kinds.domain(r) for r in listed]),
    )


def _read_common(records: list[Any]) -> tuple[Ints, Ints, Ints]:
    return (
        _build_ints(r.start_timestamp for r in records),
        _build_ints(r.end_timestamp for r in records),
        _build_ints(r.correlation_id.internal for r in records),
    )


def _build_ints(values: Any) -> Ints:
    """Return whole numbers; -1 for what 64 bits cannot hold."""
    return np.array([v if -(2**63) <= v < 2**63 else -1 for v in values], np.int64)


def _is_named(mark: Any) -> bool:
    return isinstance(mark, dict) and isinstance(mark.get("key"), int | str)


class _Kinds:
    """Names of kinds, operations and ranges, which records hold as numbers."""

    def __init__(self, strings: Any) -> None:
        strings = strings if isinstance(strings, dict) else {}
        listed = strings.get("buffer_records")
        self._kinds = [k if isinstance(k, dict) else {} for k in list_of(listed)]
        marked = strings.get("marker_api")
        self._marks = {m.get("key"): m.get("value") for m in list_of(marked) if _is_named(m)}

    def domain(self, record: _Record) -> str:
        kind = self._kinds[record.kind] if 0 <= record.kind < len(self._kinds) else {}
        return text_or_none(kind.get("kind")) or "UNKNOWN"

    def operation(self, record: _Record) -> str:
        kind = self._kinds[record.kind] if 0 <= record.kind < len(self._kinds) else {}
        listed = kind.get("operations")
        if not isinstance(listed, list) or not 0 <= record.operation < len(listed):
            return "unknown call"
        return text_or_none(listed[record.operation]) or "unknown call"

    def call(self, record: _Record) -> str:
        """Return a range by its message, a call by its function."""
        if self.domain(record).startswith("MARKER"):
            message = text_or_none(self._marks.get(record.correlation_id.internal))
            return message or self.operation(record)
        return self.operation(record)


def _read_symbols(listed: Any) -> dict[int, tuple[str, int]]:
    """Return the name and vector registers of each kernel."""
    symbols = {}
    for symbol in listed if isinstance(listed, list) else []:
        if not isinstance(symbol, dict) or not isinstance(symbol.get("kernel_id"), int):
            continue
        keys = ("formatted_kernel_name", "demangled_kernel_name", "kernel_name")
        name = next((symbol[k] for k in keys if text_or_none(symbol.get(k))), None)
        counts = [symbol.get(k) for k in ("arch_vgpr_count", "accum_vgpr_count")]
        registers = sum(c for c in counts if isinstance(c, int)) if None not in counts else -1
        if name is not None:
            symbols[symbol["kernel_id"]] = (kernel_name(name), registers)
    return symbols


def _number_gpus(listed: Any) -> dict[int, int]:
    """Return each GPU's index among the GPUs, by handle."""
    gpus = [a for a in listed or [] if isinstance(a, dict) and a.get("type") == _GPU]
    indices = {}
    for number, agent in enumerate(gpus):
        handle = (
            (agent.get("id") or {}).get("handle") if isinstance(agent.get("id"), dict) else None
        )
        index = agent.get("logical_node_type_id")
        if isinstance(handle, int):
            indices[handle] = index if isinstance(index, int) and 0 <= index < 1 << 16 else number
    return indices


def _collect_facts(metadata: Facts, agents: Any) -> dict[str, object]:
    gpus = [a for a in agents or [] if isinstance(a, dict) and a.get("type") == _GPU]
    node = metadata.get("node") if isinstance(metadata.get("node"), dict) else {}
    properties = [
        {
            "id": a.get("logical_node_type_id"),
            "name": a.get("product_name"),
            "gfx": a.get("name"),
            "numSms": a.get("cu_count"),
        }
        for a in gpus
    ]
    return {
        "host": text_or_none((node or {}).get("hostname")),
        "device_name": text_or_none(gpus[0].get("product_name")) if gpus else None,
        "device_count": len(gpus) or None,
        "device_properties": compact_json(properties) if gpus else None,
        "base_time_ns": 0,
    }
