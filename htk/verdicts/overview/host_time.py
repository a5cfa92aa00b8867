"""Where the host's time goes: the verdict on a recording without GPU work."""

from typing import NamedTuple

import pyarrow as pa

from htk.answers.ask import ask
from htk.base.columns.arrow import read_times, valid
from htk.base.columns.groups import Groups, hosts
from htk.base.columns.intervals import union_lengths
from htk.base.core.humanize import format_bytes
from htk.quantities.measures import host_time as measure
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.parts import Share


class HostVerdict(NamedTuple):
    """What the host did: shares that add up to 100 %, what to ask next."""

    window_ns: int  # mean over ranks
    shares: tuple[Share, ...]
    next: tuple[tuple[str, str], ...]


def host_time(trace: Trace) -> HostVerdict:
    """Divide the complete steps on the host, or without steps all that was recorded."""
    ranks = max(len(trace.ranks), 1)
    names = ("cpu_ops", "op_links", "op_passes", "annotations", "step_marks")
    window, phases = measure.host_time(*(trace.tables[name] for name in names))
    shares = tuple(
        Share(name, ns // ranks, 100.0 * ns / window, "phase_breakdown")
        for name, ns in phases.items()
        if ns
    )
    return HostVerdict(window // ranks, shares, _next(trace))


def _next(trace: Trace) -> tuple[tuple[str, str], ...]:
    """Return what else the recording answers."""
    tables = trace.tables
    wanted: dict[str, str] = {}
    ops = ask(trace, "op_breakdown", n=0).to_pylist()
    own = sum(row["cpu_self_ns"] or 0 for row in ops)
    if own:
        top = max(ops, key=lambda row: row["cpu_self_ns"] or 0)
        pct = 100.0 * top["cpu_self_ns"] / own
        wanted["op_breakdown"] = f"{top['op']} takes {pct:.0f} % of the operators' own time"
    if tables["collectives"].num_rows:
        wanted["comm_summary"] = _collectives(trace)
    if tables["python_calls"].num_rows:
        wanted["python_hotspots"] = "Python functions by their own time"
    if tables["memory"].num_rows:
        wanted["memory_peaks"] = _peak(trace)
    if len(trace.ranks) > 1:
        wanted["stragglers"] = "who holds the others up"
    if tables["annotations"].num_rows:
        wanted["phase_breakdown"] = "forward, backward, optimizer, rank by rank and step by step"
    return tuple(wanted.items())


def _collectives(trace: Trace) -> str:
    """Return the collectives' time of what was recorded, no instant of a rank counted twice."""
    rows = trace.tables["collectives"]
    timed = valid(rows["start_ns"]) & valid(rows["end_ns"])
    rows = rows.filter(pa.array(timed))
    libraries = sorted({name for name in rows["library"].to_pylist() if name})
    rank = Groups.by_keys(hosts(rows))
    start, end = read_times(rows)
    spent = int(union_lengths(rank.group_ids, start, end, len(rank)).sum())
    extent = ("rank", "cycle", "start_ns", "end_ns")  # collectives go on where no operator runs
    spans = pa.concat_tables([trace.tables["cpu_ops"].select(extent), rows.select(extent)])
    total = measure.host_extent(spans, trace.tables["step_marks"])
    share = 100.0 * spent / max(total, 1)
    named = f"collectives ({', '.join(libraries)})" if libraries else "collectives"
    return f"{named} run in {share:.0f} % of the time"


def _peak(trace: Trace) -> str:
    rows = ask(trace, "memory_peaks").to_pylist()
    if not rows:
        return "when memory is at its highest, and what holds it"
    top = max(rows, key=lambda row: row["peak_bytes"] or 0)
    return f"peak {format_bytes(top['peak_bytes'] or 0)}, most of it held by {top['holder']}"
