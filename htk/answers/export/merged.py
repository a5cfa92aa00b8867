"""All ranks in one Chrome trace: on one clock, with counters and the critical path.

Opens in Perfetto, chrome://tracing or any other viewer of such files. Events are copied as they
were recorded, but for their times (from the first event of the trace on, with three decimals),
process numbers and arrow ids, which are made different for each rank.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk.answers.export.microseconds import as_microseconds, as_nanoseconds
from htk.answers.export.overlay import draw_path_slices
from htk.answers.export.pieces import EventPieces, cut_pieces, splice_text
from htk.answers.export.rewrite import kineto_parts, part_of, quickly_packed
from htk.base.columns.arrow import build_numbers, read_numbers, with_column
from htk.base.columns.types import Ints, Mask
from htk.base.core.parser import Source
from htk.base.errors import HtkError
from htk.base.io.decompress import open_stream
from htk.base.mappings import Fields
from htk.base.schema import INT64, STRING
from htk.parsers.kineto import scan
from htk.parsers.kineto.processes import KEY
from htk.parsers.kineto.text import copy_runs
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.graph.fidelity import draw_path
from htk.quantities.measures.counter_series import counter_series
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace

_BORDER = b", \t\r\n"  # what stands between events
_CHANGED = ("pid", "id", "ts", "dur")  # members of events
_DROPPED = {"process_name", "process_sort_index", "process_labels"}
_ZEROS = (b"0", b"0.0", b"0.000")
_PATH_PROCESS = 1  # first of all
_PROCESSES = 1000  # each file's begin at a multiple of it, which a reader sees at a glance
_MOST_NUMBERED = 1 << 13  # files whose arrows have numbers: a viewer's hold 53 bits, 40 for its own


@dataclass(frozen=True)
class Merged:
    """The written file, and what could not be drawn in."""

    file: Path
    events: int
    aligned: bool
    without: tuple[str, ...]


def write_merged(trace: Trace, sources: dict[str, Source], folder: Path) -> Merged:
    """Write folder/merged.json.gz."""
    parts = kineto_parts(trace.files)
    clocks = _read_clocks(trace)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "merged.json.gz"
    count, without = 0, []
    ranks: list[_Rank] = []
    with part_of(target) as raw, quickly_packed(raw) as out:
        write = _build_list_writer(out.write)
        out.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        for number, part in enumerate(parts):
            bases = read_numbers(part.table("ranks")["base_time_ns"])
            base = int(bases[0]) if len(bases) else 0
            clock = clocks.get(part.rank or 0, _AS_IS)
            rank = _Rank(number, _next_process(ranks), part, base, trace.origin_ns, clock)
            with sources[part.file].open() as file, open_stream(file) as stream:
                copy_runs(
                    stream, _write_nowhere, lambda *_: None, _build_passing_writer(rank, write)
                )
            for text in (*rank.counted(), *rank.described()):
                write(text)
            count += rank.events
            ranks.append(rank)
        try:
            for text in _draw_path(trace):
                write(text)
        except HtkError as error:
            without.append(f"critical path: {error}")
        out.write(b"\n]," + _told_apart(ranks, trace.origin_ns) + b"}\n")
    aligned = any(clock != _AS_IS for clock in clocks.values())
    return Merged(target, count, aligned, tuple(without))


def _build_list_writer(write: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Return a function that writes items of a JSON list, one after the other."""
    first = True

    def write_item(text: bytes) -> None:
        nonlocal first
        write(b"\n" if first else b",\n")
        write(text)
        first = False

    return write_item


def _build_passing_writer(
    rank: "_Rank", write: Callable[[bytes], None]
) -> Callable[[bytes], bytes]:
    def rewrite_piece(text: bytes) -> bytes:
        for moved in rank.run(text):
            write(moved)
        return b""

    return rewrite_piece


def _write_nowhere(_: bytes) -> None:
    """Write nothing: whoever changes the events writes them."""


_Clock = tuple[int, float, int]  # offset, drift in parts per million, and the time they are for
_AS_IS: _Clock = (0, 0.0, 0)


def _read_clocks(trace: Trace) -> dict[int, _Clock]:
    """Return what to add to each rank's times; nothing where its clock could not be compared."""
    clocks: dict[int, _Clock] = {}
    for row in trace.tables["rank_clocks"].to_pylist():
        if row["rank"] is not None and row["aligned"]:
            drift = row["drift_ppm"] or 0.0
            clocks[row["rank"]] = (row["offset_ns"], drift, row["reference_ns"] or 0)
    return clocks


@dataclass
class _Rank:
    """One file's part of the merged trace: its clock, and numbers of its own."""

    place: int
    first_process: int
    part: TraceFile
    base_ns: int
    origin_ns: int
    clock: _Clock
    events: int = 0
    processes: dict[bytes, int] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def run(self, text: bytes) -> Iterator[bytes]:
        """Yield events with this rank's process numbers, arrow ids and clock."""
        for events, pieces in self._without_names(text):
            own = pieces.is_own_key
            spans = {key: pieces.values(own & pieces.equal(key)) for key in _CHANGED}
            recorded = {key: cut_pieces(events, *span) for key, span in spans.items()}
            self.events += len(pieces.events()[0])
            starts_ns = _in_nanoseconds(recorded["ts"])
            start_of_event = np.zeros(len(pieces.events()[0]), np.int64)
            start_of_event[pieces.event_at(spans["ts"][0])] = starts_ns
            begun = start_of_event[pieces.event_at(spans["dur"][0])]
            describes = np.zeros(len(start_of_event), bool)
            describes[_metadata_of(pieces)] = True
            describing = describes[pieces.event_at(spans["ts"][0])]
            replaced = [
                _map_values(
                    recorded["pid"], lambda value: str(self._number_process(value)).encode()
                ),
                _map_values(recorded["id"], self._renumber_arrow),
                self._align_moments(recorded["ts"], starts_ns, describing),
                self._align_durations(recorded["dur"], begun),
            ]
            starts, ends = map(np.concatenate, zip(*spans.values(), strict=True))
            yield splice_text(events, starts, ends, pa.concat_arrays(replaced))

    def _without_names(self, text: bytes) -> Iterator[tuple[bytes, EventPieces]]:
        """Yield the events, except the names of processes, which are written anew."""
        pieces = EventPieces(text)
        metadata = _metadata_of(pieces)
        if not len(metadata):
            yield text, pieces
            return
        starts, ends = pieces.events()
        begin = 0
        for index in metadata.tolist():  # some ten a file
            event = text[starts[index] : ends[index]]
            members = scan.scan_members(event, 0)[0]
            if self._note_name(
                {scan.unquote_string(member.key): member.value for member in members}
            ):
                before = text[begin : starts[index]].strip(_BORDER)
                begin = int(ends[index])
                if before:
                    yield before, EventPieces(before)
        if rest := text[begin:].strip(_BORDER):
            yield rest, EventPieces(rest)

    def described(self) -> Iterator[bytes]:
        """Yield what the viewer shows of the processes: names, rank first, and their order."""
        who = "rank ?" if self.part.rank is None else f"rank {self.part.rank}"
        for recorded, process in self.processes.items():
            text = recorded.decode("utf8", "replace").strip('"')
            name = f"{who}: {self.names.get(recorded) or text or 'process'}"
            yield _encode_event(ph="M", name="process_name", pid=process, args={"name": name})
            order = {"sort_index": process}
            yield _encode_event(ph="M", name="process_sort_index", pid=process, args=order)

    def counted(self) -> Iterator[bytes]:
        """Yield the counters of this rank, as a process of their own."""
        process = self._number_process(b'"counters"')
        tables = (self.part.table(name) for name in ("kernels", "kernel_links", "memory"))
        for series in counter_series(*tables):
            name = f"{series.name}, {series.unit}" if series.unit else series.name
            moments = as_microseconds(self.shifted(series.time) - self.origin_ns)
            distinct, codes = np.unique(series.value, return_inverse=True)
            numerals = pa.array([json.dumps(value) for value in distinct.tolist()], STRING)
            counter = _encode_event(ph="C", name=name, pid=process)[1:-1].decode()
            middle = f', {counter}, "args": {{"value": '
            parts = ('{"ts": ', moments, middle, numerals.take(pa.array(codes)), "}}", "")
            yield ",\n".join(pc.binary_join_element_wise(*parts).to_pylist()).encode()

    def shifted(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return absolute times of this rank on the common clock, in ns."""
        offset, drift, reference = self.clock
        grown = np.rint((times - reference) * (drift / 1e6)).astype(np.int64)
        return np.asarray(times + offset + grown)

    def _number_process(self, recorded: bytes) -> int:
        return self.processes.setdefault(recorded, self.first_process + len(self.processes))

    def _align_moments(self, recorded: pa.Array, times: Ints, describing: Mask) -> pa.Array:
        """Return times on the common clock; what describes a process has none, and no more has what
        is not a number."""
        moved = as_microseconds(self.shifted(times + self.base_ns) - self.origin_ns)
        untold = (times == 0) & ~np.asarray(pc.is_in(recorded, pa.array(_ZEROS, pa.binary())))
        return pc.if_else(pa.array(describing | untold), recorded, moved.cast(pa.binary()))

    def _align_durations(self, recorded: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
        """Return durations between ends on the common clock: calls stay within their callers."""
        if self.clock[1] == 0:
            return recorded
        durations = _in_nanoseconds(recorded)
        begin = starts + self.base_ns
        moved = as_microseconds(self.shifted(begin + durations) - self.shifted(begin))
        return pc.if_else(pa.array(durations == 0), recorded, moved.cast(pa.binary()))

    def _note_name(self, value_of: dict[str, bytes]) -> bool:
        """Keep what a process is called for later; return true for what is written anew then."""
        what = scan.unquote_string(value_of.get("name", b'""'))
        key = {"process_name": "name", "process_labels": "labels"}.get(what)
        if key and value_of.get("args", b"").startswith(b"{"):
            inner = {
                scan.unquote_string(m.key): m.value
                for m in scan.scan_members(value_of["args"], 0)[0]
            }
            names = [
                self.names.get(value_of.get("pid", b""), ""),
                scan.unquote_string(inner.get(key, b'""')),
            ]
            self.names[value_of.get("pid", b"")] = " ".join(filter(None, names))
        return what in _DROPPED

    def _renumber_arrow(self, value: bytes) -> bytes:
        if value.isdigit() and len(value) < 13 and self.place < _MOST_NUMBERED:
            return str((self.place << 40) + int(value)).encode()
        return msgspec.json.encode(f"{self.place}.{value.decode('utf8', 'replace')}")


def _metadata_of(pieces: EventPieces) -> Ints:
    """Return the numbers of the events that describe a process or thread."""
    phases = pieces.is_own_key & pieces.equal("ph")
    return pieces.event_of(phases & np.append(pieces.equal("M")[1:], False))


def _next_process(ranks: list[_Rank]) -> int:
    """Return the number of a file's first process: behind all those of the files before it."""
    if not ranks:
        return _PROCESSES
    used = ranks[-1].first_process + max(len(ranks[-1].processes), 1)
    return -(-used // _PROCESSES) * _PROCESSES


def _in_nanoseconds(recorded: pa.Array) -> NDArray[np.int64]:
    """Return texts of microseconds in ns; 0: that is no time. Convert one by one if any has more
    decimals, an exponent or quotes."""
    try:
        return as_nanoseconds(recorded)
    except pa.ArrowInvalid:
        literals = (value.strip(b'"').decode("utf8", "replace") for value in recorded.to_pylist())
        return np.array([scan.scale_decimal(literal, 3) or 0 for literal in literals], np.int64)


def _map_values(values: pa.Array, to: Callable[[bytes], bytes]) -> pa.Array:
    """Return each value changed, equal ones once."""
    encoded = values.dictionary_encode()
    changed = [to(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, pa.binary()).take(encoded.indices)


def _told_apart(ranks: list[_Rank], origin_ns: int) -> bytes:
    """Return what a reader needs to tell the ranks apart again: their processes and headers."""
    listed = [
        {"processes": list(rank.processes.values()), "header": describe_rank(rank.part)}
        for rank in ranks
    ]
    members = {"baseTimeNanoseconds": origin_ns, KEY: listed}
    return json.dumps(members, ensure_ascii=False).encode()[1:-1]


def describe_rank(part: TraceFile) -> Fields:
    """Return what a file said of its rank, job and GPUs, under the keys of Kineto's header."""
    facts = part.entry.parsed.facts
    groups = facts.get("groups")
    devices = facts.get("device_properties")
    job = {
        "rank": part.rank,
        "world_size": facts.get("world_size"),
        "backend": facts.get("backend"),
        "pg_config": json.loads(str(groups)) if groups else None,
    }
    return {
        "distributedInfo": {k: v for k, v in job.items() if v is not None},
        "deviceProperties": json.loads(str(devices)) if devices else [],
        "host_name": facts.get("host"),
    }


def _draw_path(trace: Trace) -> Iterator[bytes]:
    """Yield the critical path of the steadiest step, on the common clock."""
    path = draw_path(trace.tables).pieces
    ranks = read_numbers(path["rank"])
    for name in ("start_ns", "end_ns"):
        times = read_numbers(path[name])
        times = times + compute_corrections(trace.tables["rank_clocks"], ranks, times)
        path = with_column(path, name, build_numbers(times, INT64))
    yield ",\n".join(draw_path_slices(path, trace, trace.origin_ns, _PATH_PROCESS)).encode()
    named = {"name": "critical path"}
    yield _encode_event(ph="M", name="process_name", pid=_PATH_PROCESS, args=named)


def _encode_event(**event: Any) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode()
