"""Where the host's time goes: the verdict on a recording without GPU work."""

from typing import NamedTuple

from htk.answers.ask import ask_trace
from htk.base.core.humanize import format_bytes
from htk.quantities.measures import host_time as measure
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.parts import Share

_LEAST_OWN = 0.01  # of the time: what operators take by themselves, where they are worth a look


class HostVerdict(NamedTuple):
    """What the host did: shares that add up to 100 %, what to ask next."""

    window_ns: int  # mean over ranks
    shares: tuple[Share, ...]
    next: tuple[tuple[str, str], ...]


def host_time(trace: Trace) -> HostVerdict:
    """Divide the complete steps on the host, or without steps all that was recorded."""
    ranks = max(len(trace.ranks), 1)
    spent = measure.host_time(*(trace.tables[name] for name in measure.NEEDED))
    shares = tuple(
        Share(name, ns // ranks, 100.0 * ns / spent.window_ns, "phase_breakdown")
        for name, ns in spent.phases.items()
        if ns
    )
    return HostVerdict(spent.window_ns // ranks, shares, _suggest_next(trace, spent))


def _suggest_next(trace: Trace, spent: measure.HostTime) -> tuple[tuple[str, str], ...]:
    """Return what else the recording answers."""
    tables = trace.tables
    wanted: dict[str, str] = {}
    ops = ask_trace(trace, "op_breakdown", n=0).to_pylist()
    own = sum(row["cpu_self_ns"] or 0 for row in ops)
    if own >= _LEAST_OWN * spent.window_ns:
        top = max(ops, key=lambda row: row["cpu_self_ns"] or 0)
        pct = 100.0 * top["cpu_self_ns"] / own
        wanted["op_breakdown"] = f"{top['op']} takes {pct:.0f} % of the operators' own time"
    if tables["collectives"].num_rows:
        wanted["comm_summary"] = _describe_collectives(trace, spent)
    if tables["python_calls"].num_rows:
        wanted["python_hotspots"] = "Python functions by their own time"
    if tables["memory"].num_rows:
        wanted["memory_peaks"] = _describe_peak(trace)
    if len(trace.ranks) > 1:
        wanted["stragglers"] = "who holds the others up"
    if tables["annotations"].num_rows:
        wanted["phase_breakdown"] = "forward, backward, optimizer, rank by rank and step by step"
    return tuple(wanted.items())


def _describe_collectives(trace: Trace, spent: measure.HostTime) -> str:
    """Return how much of the time nothing but collectives runs."""
    libraries = sorted(
        {name for name in trace.tables["collectives"]["library"].to_pylist() if name}
    )
    named = f"collectives ({', '.join(libraries)})" if libraries else "collectives"
    share = 100.0 * spent.phases[measure.COLLECTIVES] / spent.window_ns
    if share < 1:
        return f"{named} by type and size"
    return f"{named} run beside no operator in {share:.0f} % of the time"


def _describe_peak(trace: Trace) -> str:
    rows = ask_trace(trace, "memory_peaks").to_pylist()
    if not rows:
        return "when memory is at its highest, and what holds it"
    top = max(rows, key=lambda row: row["peak_bytes"] or 0)
    return f"peak {format_bytes(top['peak_bytes'] or 0)}, most of it held by {top['holder']}"
