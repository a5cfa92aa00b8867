"""PyTorch profiler traces: Kineto's JSON, of all ages (2021 on) and vendors.

Written by torch.profiler's export_chrome_trace and tensorboard_trace_handler, by Kineto's daemon
(on demand), and by whatever re-saves such a file. The events lie in `traceEvents`, or are a bare
array. Read: complete events, flows, memory and counter events, and the metadata beside them.
Not read: the viewer's own metadata events (names and order of rows).
"""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts, drop_fields
from htk.base.core.engine import choose_engine
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.io.decompress import open_stream
from htk.base.mappings import Facts
from htk.base.schema import INT64, PARSE_ISSUES
from htk.parsers.common.doubtful import Impossible
from htk.parsers.common.impossible import mend_impossible
from htk.parsers.kineto import facts as header_facts
from htk.parsers.kineto.collectives import join_collectives
from htk.parsers.kineto.cycles import Cycle, split_cycles
from htk.parsers.kineto.metadata import read_metadata
from htk.parsers.kineto.process_groups import comm_groups
from htk.parsers.kineto.processes import list_processes
from htk.parsers.kineto.raw import RawEvents
from htk.parsers.kineto.read import read_events
from htk.parsers.kineto.sorting import (
    DAY_NS,
    PROFILER_RANGE,
    Columns,
    Rows,
    Sorted,
    sort_events,
    unread_events,
    unread_phases,
)
from htk.parsers.kineto.tables import build_tables
from htk.quantities.derived.cut_calls import cut_tables
from htk.quantities.derived.cut_header import BY_ACTIVITY, CutHeader, cut_headers

NAME = "kineto"
_MANY_UNREAD = 20  # events; some programs add one or two of their own
_ISSUES = drop_fields(PARSE_ISSUES, "rank", "cycle", "file")

_HEADER = re.compile(
    rb'"(traceEvents|deviceProperties|baseTimeNanoseconds|schemaVersion|distributedInfo'
    rb'|cuda_runtime_version|cupti_version|displayTimeUnit|record_shapes|with_stack|htk_cut)"\s*:'
)
# NCCL's profiler plugin and timelines of operation-level rows are bare arrays of events too, its
# RAS service writes the same versions; Proton's begins with the stack of a scope, or its
# process; Ascend's times are texts.
_OTHERS = re.compile(
    rb'"communicators(?:_count)?"\s*:|"model_chunk"\s*:|"cat": "(?:GROUP_API|COLL_API|P2P_API'
    rb'|KERNEL_LAUNCH|GROUP|COLL|P2P|PROXY|CE_COLL)", "ph": "[be]"'
    rb'|"traceEvents"\s*:\s*\[\s*\{\s*"args"\s*:\s*\{\s*"(?:call_stack"|name"\s*:\s*"Trace")'
    rb'|\A\[\s*\{[^{}]*"ts"\s*:\s*"'
)
_OF_XLA = "the timeline that JAX draws of its profile: open the HOST.xplane.pb beside it"
_BARE_ARRAY = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}\[\]]*"ph"\s*:')


def sniff(head: Head) -> bool:
    start = head.data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _OTHERS.search(start[:4096]):
        return False
    if _BARE_ARRAY.match(head.data):
        return b'"ts"' in head.data
    return start.startswith(b"{") and _HEADER.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    raw = _read_source(source, options, rest=options.keep_unknown_arguments)
    if not options.keep_unknown_arguments and PROFILER_RANGE in raw.texts("cat"):
        raw = _read_source(source, options, rest=True)  # its arguments are metrics of any names
    if not raw.events_seen:
        raise MalformedTrace(
            f"{source.name}: JSON without traceEvents, expected a PyTorch profiler trace; "
            "was the profiler's export interrupted?"
        )
    base_ns = header_facts.base_ns(raw.header)
    cuts = cut_headers(raw.header)
    of_file = list_processes(raw, sort_events(raw, base_ns))
    is_cut = len(cuts) == len(of_file)  # a file cut to some steps skips others, in one cycle
    recorded = [
        (k, cycle)
        for k, process in enumerate(of_file)
        for cycle in ([Cycle(process)] if is_cut else split_cycles(raw, process))
    ]
    alone = len(recorded) == 1
    chosen = {BY_ACTIVITY: True} if any(BY_ACTIVITY in cut.facts for cut in cuts) else {}
    first, *others = [
        _build_cycle(raw, cycle, chosen, not position, alone, process, options)
        for position, (process, cycle) in enumerate(recorded)
    ]
    if len(cuts) == len(recorded):
        first, *others = map(_as_cut, (first, *others), cuts)
    return replace(first, others=tuple(others))


def _read_source(source: Source, options: ParseOptions, *, rest: bool) -> RawEvents:
    with source.open() as file, open_stream(file) as stream:
        return read_events(stream, rest=rest, progress=options.progress)


def _as_cut(parsed: Parsed, cut: CutHeader) -> Parsed:
    """Return a recording of a file that htk trimmed, its calls cut at the edges of the windows."""
    tables = cut_tables({**parsed.tables, **cut.tables})
    return replace(parsed, tables=tables, facts={**parsed.facts, **cut.facts})


def _build_cycle(
    raw: RawEvents,
    cycle: Cycle,
    chosen: Facts,
    first: bool,
    whole_file: bool,
    process: int,
    options: ParseOptions,
) -> Parsed:
    """Return one cycle of a process; damage to the file as a whole is told with the first."""
    events, header = cycle.process.events, cycle.process.header
    facts = {**header_facts.read_facts(header), **chosen}
    base_ns = header_facts.base_ns(raw.header)
    parsed, impossible = mend_impossible(
        build_tables(raw, events, base_ns, options.keep), facts, keep_overruns=options.keep_overruns
    )
    parsed["comm_groups"] = comm_groups(header)
    parsed["collectives"] = join_collectives(
        parsed["kernels"],
        parsed["cpu_ops"],
        parsed["annotations"],
        parsed["launches"],
        read_metadata(raw, events),
        parsed["comm_groups"],
    )
    parsed["parse_issues"] = _collect_issues(raw, events, first, cycle.uncut, impossible)
    facts |= _find_extent(parsed["events"], raw)
    if not whole_file:
        facts |= {"events": parsed["events"].num_rows, "file_rows": raw.rows, "process": process}
    rank = header_facts.read_rank(header)
    world_size = header_facts.read_integer(facts["world_size"])
    return Parsed(parsed, rank, world_size, facts)


def _find_extent(events: pa.Table, raw: RawEvents) -> dict[str, object]:
    """Return the extent of the recording, in ns, and how it was read.

    The profiler's own span rows (category Trace) count like any other.
    """
    start = events["start_ns"].to_numpy()
    end = events["end_ns"].to_numpy()
    return {
        "start_ns": int(start.min()) if len(start) else None,
        "end_ns": int(end.max()) if len(end) else None,
        "events": raw.rows,
        "truncated": raw.truncated,
        "engine": choose_engine(),
    }


def _collect_issues(
    raw: RawEvents, events: Sorted, whole_file: bool, uncut: int, impossible: list[Impossible]
) -> pa.Table:
    """Return what was lost or mended, a row each; what repeats is one row with its count."""
    rows = [(i.kind, i.offset, i.row, i.text, i.count) for i in raw.issues if whole_file]
    rows += [(seen.kind, None, seen.event, seen.text, seen.times) for seen in impossible]
    if whole_file:
        rows += _without_phase(raw)
    length, there = Columns(raw, events.complete, 0).values("dur")
    for kind, bad, text in (
        ("no_duration", ~there, "complete event without dur, taken as 0"),
        ("negative_duration", length < 0, "taken as 0"),
        ("overflowed_duration", length > DAY_NS, "longer than a day, taken as 0"),
    ):
        if bad.any():
            first = int(events.complete[np.argmax(bad)])
            rows.append((kind, None, first, text, int(bad.sum())))
    if len(empty := _find_lengthless(raw, events)):
        text = "GPU activity of no length, though times are told in ns"
        rows.append(("no_length", None, int(empty[0]), text, len(empty)))
    if len(events.untimed):
        rows.append(
            ("no_time", None, int(events.untimed[0]), "event without ts", len(events.untimed))
        )
    if len(events.strays):
        text = "time more than a day from all others, left out"
        rows.append(("stray_time", None, int(events.strays[0]), text, len(events.strays)))
    unread = unread_events(raw, events)
    if whole_file:
        unread = np.union1d(unread, unread_phases(raw))
    if len(unread) >= _MANY_UNREAD:
        names = ", ".join(sorted({*Columns(raw, unread, 0).text("cat").to_pylist()} - {None})[:5])
        text = f"events of no category or phase that is read: {names or 'they have none'}"
        text = _OF_XLA if header_facts.is_of_xla(raw.header) else text
        rows.append(("unread_events", None, int(unread[0]), text, len(unread)))
    if uncut:
        text = "step numbers begin anew, too often to tell cycles apart: equal numbers are added up"
        rows.append(("repeated_steps", None, None, text, uncut))
    return _issue_table(rows)


def _find_lengthless(raw: RawEvents, events: Sorted) -> Rows:
    """Return GPU work whose length is told as 0 by a clock that tells shorter ones."""
    activities = Columns(raw, events.of["kernels"], 0)
    length, there = activities.values("dur")
    start, _ = activities.values("ts")
    is_coarse = not (start % 1000 != 0).any()
    empty: Rows = activities.rows[:0] if is_coarse else activities.rows[there & (length == 0)]
    return empty


def _without_phase(raw: RawEvents) -> list[tuple[str, int | None, int | None, str, int]]:
    """Return the issue of events that do not say what they are, if there are any."""
    phased = raw.column_rows("ph")
    if phased is None or len(phased) == raw.rows:
        return []
    lacking = np.ones(raw.rows, bool)
    lacking[phased] = False
    text = "event without ph, left out"
    return [("no_phase", None, int(np.argmax(lacking)), text, int(lacking.sum()))]


def _issue_table(rows: list[tuple[str, int | None, int | None, str, int]]) -> pa.Table:
    if not rows:
        return _ISSUES.empty_table()
    kind, offset, event, text, count = zip(*rows, strict=True)
    columns = {
        "kind": build_texts(kind),
        "offset": pa.array(offset, INT64),
        "event": pa.array(event, INT64),
        "text": build_texts(text),
        "count": build_numbers(np.array(count, np.int64), INT64),
    }
    return pa.table(columns, schema=_ISSUES)
