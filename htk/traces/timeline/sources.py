"""The spans that the timeline shows of each table: whose they are, and on which track."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    match_texts,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, number_hosts
from htk.base.columns.intervals import ConcatenatedTimeline, Spans, merge_spans, subtract_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints
from htk.base.names.phases import OTHER, PHASES
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.measures.passes import phase_codes
from htk.traces.trace.trace import Trace

KINDS = (
    "compute",
    "comm",
    "memory",
    "cpu",
    "launch",
    "range",
    "phase",
    "python",
    "idle",
    "overhead",
    "pending",  # communication that had not ended when it was written down
)
# Of a rank, from top to bottom.
SECTIONS = (
    "node",
    "busy",
    "query",
    "phases",
    "ranges",
    "streams",
    "idle",
    "groups",
    "counters",
    "gpu ranges",
    "threads",
    "python",
    "profiler",
)
# `busy` and `phases` are made here, their spans are rows of no table; `rows` are an answer's.
TABLES = (
    "kernels",
    "cpu_ops",
    "launches",
    "annotations",
    "collectives",
    "python_calls",
    "idle_causes",
    "overheads",
    "phases",
    "busy",
    "rows",
)
_GPU = ("compute", "comm", "memory")
_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SpanSource:
    """Spans of one table, a row each."""

    table: str
    section: str
    rank: Ints
    track: Ints  # into tracks
    tracks: list[str]
    kind: Ints  # into KINDS
    name: Ints  # into names
    names: list[str]
    start: Ints  # absolute, on the clock that was asked for
    end: Ints
    row: Ints  # of the table; -1: of none

    def __len__(self) -> int:
        return len(self.start)


class DisplayClock:
    """The clock that times are told on: each rank's own, or one for all."""

    def __init__(self, trace: Trace, aligned: bool) -> None:
        self._clocks = trace.tables["rank_clocks"] if aligned else None

    def __call__(self, rank: Ints, time: Ints) -> Ints:
        if self._clocks is None or not len(time):
            return time
        return time + compute_corrections(self._clocks, rank, time)

    def span(self, rank: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        shift = self(rank, start) - start
        return start + shift, end + shift


def list_span_sources(trace: Trace, aligned: bool) -> list[SpanSource]:
    """Return everything that has a start and an end."""
    clock = DisplayClock(trace, aligned)
    kernels = _list_kernel_spans(trace, clock)
    filled = [kernels, *(make(trace, clock) for make in _MAKERS)]
    filled.append(build_busy_spans(kernels))
    return [source for source in filled if len(source)]


def _build_spans(
    table: pa.Table,
    clock: DisplayClock,
    rows: Ints,
    name: str,
    section: str,
    kind: Ints | int,
    track: tuple[Ints, list[str]],
    named: str = "name",
) -> SpanSource:
    """Return the spans of chosen rows of a table."""
    codes, names = codes_of(table[named])
    rank = read_keys(table["rank"])[rows]
    start, end = read_times(table, rows)
    start, end = clock.span(rank, start, end)
    kinds = np.full(len(rows), kind, np.int64) if isinstance(kind, int) else kind
    texts = [*names.to_pylist(), "(no name)"]
    code = codes[rows].astype(np.int64)
    code[code < 0] = len(texts) - 1
    return SpanSource(
        name,
        section,
        rank,
        track[0],
        track[1],
        kinds,
        code,
        texts,
        start,
        np.maximum(start, end),
        rows,
    )


def _list_kernel_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["kernels"]
    rows = np.arange(table.num_rows)
    codes, words = codes_of(table["kind"])
    kind_codes = [KINDS.index(w) if w in _GPU else 0 for w in words.to_pylist()]
    kind = np.array([*kind_codes, 0], np.int64)[codes]
    return _build_spans(
        table, clock, rows, "kernels", "streams", kind, _number_streams(table, rows)
    )


def _number_streams(table: pa.Table, rows: Ints) -> tuple[Ints, list[str]]:
    device = read_keys(table["device"])[rows]
    stream = read_keys(table["stream"])[rows]
    pairs = Groups.by_keys([device, stream])
    owned = Groups.by_keys([read_numbers(table["rank"], NONE)[rows], device]).keys[:, 0]
    several = len(np.unique(owned)) < len(owned)  # some rank has more than one GPU

    def label_stream(gpu: int, number: int) -> str:
        where = f"GPU {gpu} " if several and gpu >= 0 else ""
        return where + (f"stream {number}" if number >= 0 else "GPU")

    return pairs.group_ids, [label_stream(*pair) for pair in pairs.keys.tolist()]


def _number_threads(table: pa.Table, rows: Ints, prefix: str = "thread ") -> tuple[Ints, list[str]]:
    codes, texts = codes_of(table["thread"])
    code = codes[rows].astype(np.int64)
    labels = [prefix + str(t) for t in texts.to_pylist()] + [prefix.strip()]
    code[code < 0] = len(labels) - 1
    return code, labels


def _list_operator_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["cpu_ops"]
    rows = np.arange(table.num_rows)
    cpu = KINDS.index("cpu")
    return _build_spans(table, clock, rows, "cpu_ops", "threads", cpu, _number_threads(table, rows))


def _list_launch_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["launches"]
    rows = np.arange(table.num_rows)
    launch = KINDS.index("launch")
    return _build_spans(
        table, clock, rows, "launches", "threads", launch, _number_threads(table, rows)
    )


def _list_range_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["annotations"]
    rows = np.flatnonzero(~read_booleans(table["on_gpu"]))
    track = _number_threads(table, rows, "ranges, thread ")
    return _build_spans(table, clock, rows, "annotations", "ranges", KINDS.index("range"), track)


def _gpu_ranges(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["annotations"]
    rows = np.flatnonzero(read_booleans(table["on_gpu"]))
    code, labels = _number_streams(table, rows)
    track = code, [f"ranges on {label}" for label in labels]
    return _build_spans(
        table, clock, rows, "annotations", "gpu ranges", KINDS.index("range"), track
    )


def _list_group_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    """Return the collectives of each process group, as the GPU ran them."""
    table = trace.tables["collectives"]
    on_gpu = match_texts(table["timing"], "gpu".__eq__) & mark_valid(table["start_ns"])
    on_gpu &= mark_valid(table["end_ns"]) & mark_valid(table["rank"])
    rows = np.flatnonzero(on_gpu)
    comm = KINDS.index("comm")
    track = _group_labels(table, rows)
    return _build_spans(table, clock, rows, "collectives", "groups", comm, track, "type")


def _group_labels(table: pa.Table, rows: Ints, noted: str = "") -> tuple[Ints, list[str]]:
    groups, names = codes_of(table["group"])
    descriptions, words = codes_of(table["group_desc"])
    pairs = Groups.by_keys([groups[rows].astype(np.int64), descriptions[rows].astype(np.int64)])
    labels = []
    for group, description in pairs.keys.tolist():
        name = (description >= 0 and words[description].as_py()) or (
            group >= 0 and names[group].as_py()
        )
        labels.append((f"group {name}" if name else "collectives") + noted)
    unique = sorted(set(labels))
    track = np.array([unique.index(label) for label in labels], np.int64)
    return track[pairs.group_ids], unique


def _flight_records(trace: Trace, clock: DisplayClock) -> SpanSource:
    """Return the collectives of each process group, as the host noted them: from when they were
    seen to start, else from when they were enqueued. What had not ended lasts beyond all others."""
    table = trace.tables["collectives"]
    noted = match_texts(table["source"], "flight_recorder".__eq__) & mark_valid(table["enqueue_ns"])
    rows = np.flatnonzero(noted & mark_valid(table["rank"]))
    enqueued = read_numbers(table["enqueue_ns"])[rows]
    start = np.where(
        mark_valid(table["start_ns"])[rows], read_numbers(table["start_ns"])[rows], enqueued
    )
    has_end = mark_valid(table["end_ns"])[rows]
    end = np.where(has_end, read_numbers(table["end_ns"])[rows], start)
    completed = match_texts(table["state"], "completed".__eq__) | read_booleans(table["retired"])
    pending = ~has_end & ~completed[rows]
    last = int(end.max(initial=0))
    first = int(start.min(initial=2**62))
    end[pending] = last + max((last - first) // 8, 1000)
    rank = read_keys(table["rank"])[rows]
    start, end = clock.span(rank, start, end)
    codes, types = codes_of(table["type"])
    texts = [*types.to_pylist(), "(no name)"]
    code = codes[rows].astype(np.int64)
    code[code < 0] = len(texts) - 1
    # An unfinished one has a name of its own: a search for it leads to where the job hangs.
    code[pending] += len(texts)
    texts += [f"{text}, not ended" for text in texts]
    track, labels = _group_labels(
        table, rows, ", noted by the host" if trace.tables["kernels"].num_rows else ""
    )
    kind = np.where(pending, KINDS.index("pending"), KINDS.index("comm"))
    ends = np.maximum(start, end)
    return SpanSource(
        "collectives", "groups", rank, track, labels, kind, code, texts, start, ends, rows
    )


def _list_python_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["python_calls"]
    rows = np.arange(table.num_rows)
    track = _number_threads(table, rows, "python, thread ")
    return _build_spans(table, clock, rows, "python_calls", "python", KINDS.index("python"), track)


def _list_idle_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["idle_causes"]
    rows = np.flatnonzero(~mark_valid(table["stream"]))
    device = read_keys(table["device"])[rows]
    devices, track_of_row = np.unique(device, return_inverse=True)
    labels = [f"GPU {d} idle" if len(devices) > 1 else "idle" for d in devices.tolist()]
    track = track_of_row.ravel(), labels
    return _build_spans(
        table, clock, rows, "idle_causes", "idle", KINDS.index("idle"), track, "cause"
    )


def _list_overhead_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    table = trace.tables["overheads"]
    rows = np.arange(table.num_rows)
    track = np.zeros(len(rows), np.int64), ["profiler's own work"]
    return _build_spans(table, clock, rows, "overheads", "profiler", KINDS.index("overhead"), track)


def _list_phase_spans(trace: Trace, clock: DisplayClock) -> SpanSource:
    """Return runs of outermost operators of one phase, cut at the steps."""
    ops = trace.tables["cpu_ops"]
    links = trace.tables["op_links"]
    outer = np.flatnonzero(read_numbers(links["depth"]) == 0)
    host = number_hosts(ops)[outer]
    start, end = read_times(ops, outer)
    step = read_numbers(links["step"], NONE)[outer]
    phase = phase_codes(trace.tables["op_passes"])[outer]
    order = order_by(host, start)
    host = host[order]
    start = start[order]
    end = end[order]
    step = step[order]
    phase = phase[order]
    new = np.ones(len(host), bool)
    new[1:] = (host[1:] != host[:-1]) | (step[1:] != step[:-1]) | (phase[1:] != phase[:-1])
    first = np.flatnonzero(new)
    last = np.maximum.reduceat(end, first) if len(first) else end[:0]
    rank = read_keys(ops["rank"])[outer][order][first]
    keep = phase[first] != OTHER
    first = first[keep]
    last = last[keep]
    rank = rank[keep]
    low, high = clock.span(rank, start[first], last)
    count = len(first)
    kind = np.full(count, KINDS.index("phase"))
    none = np.zeros(count, np.int64)
    names = [p.replace("dataloader", "data loading") for p in PHASES]
    return SpanSource(
        "phases", "phases", rank, none, ["phases"], kind, phase[first], names, low, high, none - 1
    )


def build_busy_spans(kernels: SpanSource) -> SpanSource:
    """Return when each rank's GPUs are busy, on any stream: with compute; exposed communication;
    copies that neither overlaps. The three do not overlap each other."""
    ranks, owner = np.unique(kernels.rank, return_inverse=True)
    low = np.full(len(ranks), _LATEST)
    high = np.full(len(ranks), -_LATEST)
    np.minimum.at(low, owner, kernels.start)
    np.maximum.at(high, owner, kernels.end)
    axis = ConcatenatedTimeline.from_bounds(low, high)  # one union for all ranks
    begin = axis.point(owner, kernels.start)
    until = axis.point(owner, kernels.end)
    covered = merge_spans(begin[:0], until[:0])
    parts: list[Spans] = []
    for number in range(len(_GPU)):
        of_kind = kernels.kind == number
        spans = merge_spans(begin[of_kind], until[of_kind])
        parts.append(subtract_spans(spans, covered))
        covered = _join_spans(covered, spans)
    start, end = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    kind = np.repeat(np.arange(len(_GPU)), [len(spans.start) for spans in parts])
    window = axis.window(start)
    zeros = np.zeros(len(kind), np.int64)
    return SpanSource(
        "busy", "busy", ranks[window], zeros, ["busy"], kind, kind, list(_GPU),
        axis.time(window, start), axis.time(window, end), zeros - 1,
    )  # fmt: skip


def _join_spans(these: Spans, those: Spans) -> Spans:
    starts = [s.start for s in (these, those)]
    ends = [s.end for s in (these, those)]
    return merge_spans(np.concatenate(starts), np.concatenate(ends))


_MAKERS: tuple[Callable[[Trace, DisplayClock], SpanSource], ...] = (
    _list_operator_spans,
    _list_launch_spans,
    _list_range_spans,
    _gpu_ranges,
    _list_group_spans,
    _flight_records,
    _list_python_spans,
    _list_idle_spans,
    _list_overhead_spans,
    _list_phase_spans,
)
