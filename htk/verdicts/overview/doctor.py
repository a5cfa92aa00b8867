"""What a trace holds: recorded, missing, damaged, linked; and what would record the rest."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa

from htk import analyses
from htk.answers.output.result import Result
from htk.base.columns.arrow import build_texts, codes_of, mark_valid, read_numbers
from htk.base.columns.groups import Groups
from htk.base.core.engine import SLOW_READER, load_core
from htk.base.core.humanize import command_name, format_bytes, format_duration, pluralize_count
from htk.base.core.label import Label
from htk.base.mappings import Fields
from htk.base.schema import TABLES, TEXT, table
from htk.quantities.graph.gate import LATE_NS, describe_late_start
from htk.traces.trace.coverage import describe_coverage, gpu_coverage
from htk.traces.trace.trace import Trace

RETURNS = table(
    section=(TEXT, "files, recorded, links, clocks, damage, missing."),
    item=(TEXT, "What is looked at."),
    state=(TEXT, "ok, note, warning or missing."),
    finding=(TEXT, "What was seen."),
    advice=(TEXT, "What to do about it."),
)

_MOST_KEYS = 12  # that are named
_MOST_BYTES = 16 << 20  # of tables beside a recording, which take a second to read
_DAY_NS = 86_400_000_000_000
_YEAR_2000_NS = 946_684_800_000_000_000

LATE_LAUNCHES = "launches of rank"  # whose GPU starts nothing for long: another clock, perhaps

Row = tuple[str, str, str, str, str | None]


LABEL = Label(
    "doctor", "What was recorded, what is missing for which question, and what is damaged?"
)


def check_recording(trace: Trace) -> Result:
    """Return what was recorded, what is missing for which question, and what is damaged."""
    rows = [
        *_check_files(trace),
        *_log_lines(trace),
        *_check_ranks(trace),
        *_check_recorded(trace),
        *_check_unread(trace),
        *_check_links(trace),
        *_check_clocks(trace),
        *_check_damage(trace),
        *_tables_beside(trace.everything),
        *_check_missing(trace),
    ]
    columns = zip(*rows, strict=True)
    table_ = pa.table([build_texts(list(column)) for column in columns], schema=RETURNS)
    return Result(LABEL, table_, describe_coverage(trace, ()))


def find_footing(trace: Trace) -> list[Fields]:
    """Return what `doctor` says of ranks, links, clocks and damage: all numbers rest on them."""
    rows = [
        *_check_ranks(trace),
        *_check_links(trace),
        *_check_clocks(trace),
        *_check_damage(trace),
    ]
    return [dict(zip(RETURNS.names, row, strict=True)) for row in rows]


def _check_files(trace: Trace) -> Iterator[Row]:
    unread: Counter[str] = Counter()
    for issue in trace.tables["parse_issues"].to_pylist():  # a few for each file
        unread[issue["file"]] += issue["count"] * (issue["kind"] == "unread_events")
    for row in trace.tables["ranks"].to_pylist():  # a row for each file
        span = (row["end_ns"] or 0) - (row["start_ns"] or 0)
        whose = row["rank"] is not None and f"rank {row['rank']} ({row['rank_from'] or 'many'})"
        finding = ", ".join(
            [
                whose or "not of one rank",
                row["format"],
                format_bytes(row["file_bytes"] or 0),
                pluralize_count(row["events"] or 0, "event"),
                *([f"over {format_duration(span)}"] if span else []),
                *([row["device_name"]] if row["device_name"] else []),
                *([f"read by the {row['engine']} engine"] if row["engine"] else []),
            ]
        )
        advice = None
        if row["truncated"]:
            advice = "ends early: let what writes it finish"
        elif not row["events"]:
            advice = "nothing in it could be read"
        elif 2 * unread[row["file"]] > row["events"]:
            advice = "most of its events are of kinds that are not read"
        state = "warning" if advice else "ok"
        yield "files", row["file"].rsplit("/", 1)[-1], state, finding, advice
    slow = trace.tables["ranks"]["engine"].to_pylist().count("pure")
    if slow and load_core() is None:
        finding = (
            f"{pluralize_count(slow, 'file')} read by the slow reader, in Python: same results"
        )
        yield "files", "reader", "note", finding, SLOW_READER
    for name, why in trace.failed:
        yield "files", name.rsplit("/", 1)[-1], "warning", why.removeprefix(f"{name}: "), "left out"
    if trace.unread:
        some = ", ".join(n.rsplit("/", 1)[-1] for n in trace.unread[:5])
        others = pluralize_count(len(trace.unread), "other")
        yield "files", others, "note", f"no trace: {some}", None


_UNRECOGNISED = "lines of the program itself, or of a format that htk does not read"


def _log_lines(trace: Trace) -> Iterator[Row]:
    """Yield, for each file with lines not read (blank ones apart), how many were read, skipped and
    not recognised."""
    lines: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in trace.tables["log_lines"].to_pylist():  # a few for each file
        lines[row["file"]][row["reading"], row["source"] or "blank"] += row["lines"]
    for file, counts in lines.items():
        total: Counter[str] = Counter()
        for (reading, _), count in counts.items():
            total[reading] += count
        if total["read"] == counts.total() - counts["skipped", "blank"]:
            continue
        whose = ", ".join(f"{s} {n:,}" for (r, s), n in sorted(counts.items()) if r == "read")
        finding = (
            f"{total['read']:,} lines read ({whose or 'none'}), {total['skipped']:,} known and "
            f"skipped, {total['unknown']:,} not recognised"
        )
        grade, hint = ("note", _UNRECOGNISED) if total["unknown"] else ("ok", None)
        yield "files", f"lines of {file.rsplit('/', 1)[-1]}", grade, finding, hint


def _check_ranks(trace: Trace) -> Iterator[Row]:
    sizes = {v for v in trace.tables["ranks"]["world_size"].to_pylist() if v}
    if not sizes:
        return
    if len(sizes) > 1:
        seen = ", ".join(map(str, sorted(sizes)))
        yield "files", "world size", "warning", f"files disagree: {seen}", "files of several jobs?"
    missing = sorted(set(range(max(sizes))) - set(trace.ranks))
    if missing:
        text = f"{len(missing)} of {max(sizes)} ranks have no file"
        yield (
            "files",
            "ranks",
            "warning",
            f"{text}: {_list_few(missing)}",
            "waiting for a missing rank cannot be told from transfer: record all ranks",
        )
    else:
        extent = f"all {max(sizes)} ranks" if max(sizes) > 1 else "the only one"
        yield "files", "ranks", "ok", extent, None


def _list_few(values: list[int]) -> str:
    return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "")


def _check_recorded(trace: Trace) -> Iterator[Row]:
    recorded = trace.tables["ranks"]["recorded"].to_pylist()
    options = {option for value in recorded for option in (value or "").split(",")} - {""}
    text = ", ".join(sorted(options)) or "not recorded"
    yield "recorded", "profiler options", "ok" if options else "note", text, None
    for name in TABLES:
        if name in ("ranks", "parse_issues", "log_lines"):
            continue
        table = trace.tables[name]
        if table.num_rows:
            yield (
                "recorded",
                name,
                "ok",
                f"{table.num_rows:,} rows, {format_bytes(table.nbytes)}",
                None,
            )


def _check_unread(trace: Trace) -> Iterator[Row]:
    """Yield the tables of files that are not read, and the arguments of events where these were
    kept."""
    for file in trace.files:
        unread = file.entry.parsed.facts.get("unread_tables")
        if isinstance(unread, dict) and unread:
            rows = ", ".join(f"{name} {count:,}" for name, count in sorted(unread.items()))
            yield (
                "recorded",
                "tables not read",
                "note",
                f"rows of {_name_base(file.file)}: {rows}",
                None,
            )
    keys: Counter[str] = Counter()
    for text, count in _count_texts(trace.tables["events"]["arguments"]):
        with suppress(ValueError):
            keys.update(dict.fromkeys(json.loads(text), count))
    if keys:
        some = ", ".join(f"{key} {count:,}" for key, count in keys.most_common(_MOST_KEYS))
        more = f" and {len(keys) - _MOST_KEYS} others" if len(keys) > _MOST_KEYS else ""
        yield "recorded", "arguments not read", "note", f"of events: {some}{more}", None


def _count_texts(column: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    """Yield each text of a column and how often it is there."""
    codes, dictionary = codes_of(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(dictionary))
    yield from zip(dictionary.to_pylist(), counts.tolist(), strict=True)


def _name_base(file: str) -> str:
    return file.rsplit("/", 1)[-1]


def _check_links(trace: Trace) -> Iterator[Row]:
    if not trace.tables["kernels"].num_rows:
        return
    facts = gpu_coverage(trace)
    share = facts["gpu_activities_linked_pct"]
    carried = facts["carry_in_activities"]
    yield (
        "links",
        "GPU time linked to launches",
        "ok" if (share or 0) > 95 else "warning",
        "unknown" if share is None else f"{share if share == 100 else min(share, 99.9):.3g} %",
        None if (share or 0) > 95 else "operators are told for the linked part only",
    )
    if carried:
        yield (
            "links",
            "carried in",
            "note",
            f"{carried:,} GPU activities, {format_duration(facts['carry_in_ns'])}, "
            "launched before recording",
            "counted as busy; synchronise before the profiler starts to avoid them",
        )
    if facts["unlinked_activities"]:
        count = facts["unlinked_activities"]
        time = format_duration(facts["unlinked_ns"])
        lost = f"{count:,} GPU activities, {time}"
        yield "links", "unlinked", "warning", lost, "no launch with their correlation id"
    ops = trace.tables["kernel_links"]["op_by"]
    codes, names = codes_of(ops)
    for code, name in enumerate(names.to_pylist()):
        yield "links", f"operator by {name}", "ok", f"{int((codes == code).sum()):,}", None


def _check_clocks(trace: Trace) -> Iterator[Row]:
    """Yield how late all GPU work starts, how far apart the ranks begin, and where collectives
    tell, their clocks' offsets."""
    yield from _check_origins(trace)
    yield from _late_starts(trace)
    if len(trace.ranks) < 2:
        return
    starts = read_numbers(trace.tables["ranks"]["start_ns"].drop_null())  # a log of a job has none
    spread = int(np.ptp(starts)) if len(starts) else 0
    far = spread > _DAY_NS
    yield (
        "clocks",
        "first events",
        "warning" if far else "ok",
        f"ranks begin within {format_duration(spread)}",
        "more than a day apart: files of several runs, or of a clock of its own" if far else None,
    )
    clocks = trace.tables["rank_clocks"].to_pylist()
    compared = [c for c in clocks if c["offset_ns"] is not None]
    if len(compared) < 2:
        advice = "no collective that ends on all ranks at once was recorded"
        yield "clocks", "alignment", "note", "cannot be told", advice
        return
    offset = format_duration(max(abs(c["offset_ns"]) for c in compared))
    residual = format_duration(round(max(c["residual_ns"] or 0 for c in compared)))
    groups = len({c["aligned_with"] for c in compared})
    apart = any(c["aligned"] for c in compared)
    text = f"offsets up to {offset}, residual up to {residual}: "
    text += "put on one clock (--no-align: not)" if apart else "no more than is uncertain, kept"
    if groups > 1:
        text += f"; {groups} sets of ranks share no collective and cannot be compared"
    yield "clocks", "alignment", "ok" if groups == 1 else "warning", text, None


def _check_origins(trace: Trace) -> Iterator[Row]:
    """Yield from when the files' times count: the clock of a machine that booted tells no date."""
    formats: dict[bool, set[str]] = defaultdict(set)
    for row in trace.tables["ranks"].to_pylist():
        if row["start_ns"] is not None:
            formats[row["start_ns"] > _YEAR_2000_NS].add(row["format"])
    named = {is_date: ", ".join(sorted(names)) for is_date, names in formats.items()}
    words = {True: "since 1970", False: "since a boot or the recording's start"}
    text = "; ".join(f"{words[is_date]} ({names})" for is_date, names in sorted(named.items()))
    if len(named) > 1:
        yield "clocks", "times", "warning", text, "files of two clocks have no common time"
    elif text:
        yield "clocks", "times", "ok", text, None


def _late_starts(trace: Trace) -> Iterator[Row]:
    """Yield ranks of which no GPU activity starts soon after its launch."""
    kernels = trace.tables["kernels"]
    links = trace.tables["kernel_links"]
    rows = np.flatnonzero(mark_valid(links["launch_start_ns"]) & mark_valid(kernels["start_ns"]))
    delays = read_numbers(kernels["start_ns"])[rows] - read_numbers(links["launch_start_ns"])[rows]
    ranks = Groups.by_keys([read_numbers(kernels["rank"], -1)[rows]])
    least_delays = ranks.min(delays).tolist()
    for rank, least in zip(ranks.keys[:, 0].tolist(), least_delays, strict=True):
        if least > LATE_NS:
            what = describe_late_start(least)
            advice = "times on the GPU alone are right; delays and queues of launches may not be"
            yield "clocks", f"{LATE_LAUNCHES} {rank}", "note", what, advice


def _check_damage(trace: Trace) -> Iterator[Row]:
    issues = trace.tables["parse_issues"]
    for kind in dict.fromkeys(issues["kind"].to_pylist()):  # a few kinds
        of_kind = issues.filter(pa.array(np.array(issues["kind"].to_pylist()) == kind))
        first = of_kind.slice(0, 1).to_pylist()[0]
        files = of_kind["file"].unique().drop_null().to_pylist()
        where = "" if not files else f" in {files[0].rsplit('/', 1)[-1]}"
        where += f" and {pluralize_count(len(files) - 1, 'other file')}" if len(files) > 1 else ""
        where += "" if first["offset"] is None else f", first at byte {first['offset']:,}"
        times = int(read_numbers(of_kind["count"], 1).sum())
        text = f"{pluralize_count(times, 'time')}{where}: {first['text']}"
        yield "damage", kind, "warning", text, "what was whole is kept"
    if not issues.num_rows:
        yield "damage", "parse issues", "ok", "none", None


def _tables_beside(trace: Trace) -> Iterator[Row]:
    """Yield in what answers differ from the tables that a profiler wrote beside its recording."""
    formats = trace.tables["ranks"]["format"].to_pylist()
    if not any("ascend" in name for name in formats):
        return
    from htk.verdicts.verify import tables_beside
    from htk.verdicts.verify.tally import NotApplicable, Tally

    item = "tables beside"
    size = tables_beside.measure_tables(trace)
    if size > _MOST_BYTES:
        text = f"{format_bytes(size)} of Ascend's tables, not read here"
        yield "damage", item, "note", text, "htk verify holds the recording to them"
        return
    tally = Tally()
    with suppress(NotApplicable):
        tables_beside.compare_with_tally(trace, tally)
    if tally.different:
        advice = "tables of another recording? htk verify counts all that differ"
        yield "damage", item, "warning", tally.finding, advice
    elif tally.compared:
        yield "damage", item, "ok", tally.finding, None


def _check_missing(trace: Trace) -> Iterator[Row]:
    wanting: dict[str, list[str]] = defaultdict(list)
    for name, needs in analyses.needed_tables():
        for need in needs:
            if not trace.tables[need].num_rows:
                wanting[need].append(name)
    for need, names in wanting.items():
        text = f"not answerable: {', '.join(map(command_name, names))}"
        how = trace.what_records(need)
        if need == "step_windows" and trace.has_steps:
            how = f"steps of the host were recorded: htk step-times; for those of the GPU, {how}"
        yield "missing", need, "missing", text, how
