"""Where the host's time goes: the verdict on a recording without GPU work."""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.answers.ask import ask
from htk.columns.arrow import numbers
from htk.columns.groups import Groups, row_of
from htk.columns.intervals import union_lengths
from htk.core.humanize import format_bytes, format_duration
from htk.errors import HtkError
from htk.measures.host_phases import NO_STEP, host_phase_spans
from htk.measures.host_steps import host_steps
from htk.names.phases import BACKWARD, DATALOADER, FORWARD, OPTIMIZER, OTHER
from htk.overview.parts import Cause, Share
from htk.trace.trace import Trace

# Where two threads are in two phases at once, the earlier of these counts.
_PHASES = (
    (FORWARD, "forward"),
    (BACKWARD, "backward"),
    (OPTIMIZER, "optimizer"),
    (DATALOADER, "data loading"),
    (OTHER, "other operators"),
)
REST = "outside operators"
_WAITS = re.compile(r"\b(wait|acquire|poll|select|sleep)\b")  # for others: no work of its own
_LOADING_PCT, _WAITING_PCT, _FUNCTION_PCT, _REST_PCT = 10.0, 5.0, 10.0, 20.0


class HostTime(NamedTuple):
    """What the host did: shares that add up to 100 %, causes, what to ask next."""

    window_ns: int  # mean over ranks
    shares: tuple[Share, ...]
    causes: tuple[Cause, ...]
    next: tuple[tuple[str, str], ...]


def host_time(trace: Trace) -> HostTime:
    """Divide the complete steps on the host, or without steps all that was recorded."""
    ranks = max(len(trace.ranks), 1)
    spent, window = _phase_times(trace)
    total = max(window, sum(spent), 1)
    names = [name for _, name in _PHASES]
    times = dict(zip(names, spent, strict=True)) | {REST: total - sum(spent)}
    shares = tuple(
        Share(name, ns // ranks, 100.0 * ns / total, "phase_breakdown")
        for name, ns in times.items()
        if ns
    )
    causes = _causes(trace, {s.name: s for s in shares}, total // ranks)
    return HostTime(total // ranks, shares, causes, _next(trace))


def _phase_times(trace: Trace) -> tuple[list[int], int]:
    """Time of each of _PHASES, no instant of a rank counted twice, and of all windows."""
    tables = trace.tables
    names = ("cpu_ops", "op_links", "op_passes", "annotations")
    keys, start, end = host_phase_spans(*(tables[name] for name in names))
    steps, complete = host_steps(tables["annotations"])
    steps = steps[complete]
    if len(steps):
        chosen = (keys[:, 1] != NO_STEP) & (row_of(steps[:, [0, 2]], keys[:, :2]) >= 0)
        window = int((steps[:, 4] - steps[:, 3]).sum())
    else:
        chosen, window = np.ones(len(keys), bool), host_extent(trace)
    keys, start, end = keys[chosen], start[chosen], end[chosen]
    rank = Groups.by_keys(keys[:, 0]).group_ids if len(keys) else keys[:, 0]
    many = int(rank.max(initial=-1)) + 1
    before, spent = 0, []
    phases: list[int] = []
    for phase, _ in _PHASES:
        phases.append(phase)
        rows = np.isin(keys[:, 2], phases)
        covered = int(union_lengths(rank[rows], start[rows], end[rows], many).sum())
        spent.append(covered - before)
        before = covered
    return spent, window


def host_extent(trace: Trace) -> int:
    """Time that operators or steps of the host span, added up over recordings."""
    steps = host_steps(trace.tables["annotations"]).keys
    return max(_extent(trace.tables["cpu_ops"]), int((steps[:, 4] - steps[:, 3]).sum()))


def _extent(ops: pa.Table) -> int:
    """First start to last end of each recording, added up."""
    if not ops.num_rows:
        return 0
    columns = [numbers(ops[name], 0).astype(np.int64) for name in ("rank", "cycle")]
    recordings = Groups.by_keys(np.column_stack(columns))
    start, end = numbers(ops["start_ns"]), numbers(ops["end_ns"])
    return int((recordings.max(end) - recordings.min(start)).sum())


def _causes(trace: Trace, shares: dict[str, Share], window: int) -> tuple[Cause, ...]:
    listed = [_loading(shares), _waiting(trace, window), _function(trace, shares, window)]
    causes = [cause for cause in listed if cause is not None]
    return tuple(sorted(causes, key=lambda cause: -(cause.pct or 0.0)))


def _loading(shares: dict[str, Share]) -> Cause | None:
    share = shares.get("data loading")
    if share is None or share.pct < _LOADING_PCT:
        return None
    evidence = f"data loading takes {share.pct:.0f} % of the time"
    advice = "more DataLoader workers, prefetch_factor, persistent_workers; less work on each item"
    finding = "the step waits for data"
    return Cause(finding, evidence, advice, share.time_ns, share.pct, "phase_breakdown")


def _waiting(trace: Trace, window: int) -> Cause | None:
    """Ranks that wait for a late one."""
    if not trace.tables["collectives"].num_rows or len(trace.ranks) < 2:
        return None
    try:
        waits, late = ask(trace, "comm_wait").table, ask(trace, "stragglers").to_pylist()
    except HtkError:
        return None
    waited = int(numbers(waits["wait_ns"], 0).sum()) // max(waits.num_rows, 1)
    pct = 100.0 * waited / max(window, 1)
    if pct < _WAITING_PCT or not late:
        return None
    last = late[0]
    cost = format_duration(last["cost_to_others_ns"] or 0)
    evidence = (
        f"rank {last['rank']} comes last to {last['arrived_last']} of {last['collectives']} "
        f"collectives; the others wait {cost} for it"
    )
    advice = "look at what that rank does before: its loader, its input lengths, its machine"
    return Cause("ranks wait for each other", evidence, advice, waited, pct, "stragglers")


def _function(trace: Trace, shares: dict[str, Share], window: int) -> Cause | None:
    """The Python function that takes most of the time by itself."""
    rest = shares.get(REST)
    if trace.tables["python_calls"].num_rows:
        first = next(iter(ask(trace, "python_hotspots", n=1).to_pylist()), None)
        if first is not None:
            own = int(first["python_ns"] or 0) // max(len(trace.ranks), 1)
            pct = 100.0 * own / max(window, 1)
            name = first["function"]
            if pct >= _FUNCTION_PCT and not _WAITS.search(name):
                evidence = f"{name} takes {pct:.0f} % of the time by itself"
                advice = "do it once, before the step, in worker processes, or in compiled code"
                finding = "one Python function takes much of the time"
                return Cause(finding, evidence, advice, own, pct, "python_hotspots")
    if rest is None or rest.pct < _REST_PCT or trace.tables["python_calls"].num_rows:
        return None
    evidence = f"no operator and no named range runs in {rest.pct:.0f} % of the time"
    advice = "record with with_stack=True: then Python functions are named"
    return Cause("work outside operators", evidence, advice, rest.time_ns, rest.pct, "op_breakdown")


def _next(trace: Trace) -> tuple[tuple[str, str], ...]:
    """What else the recording answers."""
    tables = trace.tables
    wanted: dict[str, str] = {}
    ops = ask(trace, "op_breakdown", n=0).to_pylist()
    own = sum(row["cpu_self_ns"] or 0 for row in ops)
    if own:
        top = max(ops, key=lambda row: row["cpu_self_ns"] or 0)
        pct = 100.0 * top["cpu_self_ns"] / own
        wanted["op_breakdown"] = f"{top['op']} takes {pct:.0f} % of the operators' own time"
    if tables["python_calls"].num_rows:
        wanted["python_hotspots"] = "Python functions by their own time"
    if tables["memory"].num_rows:
        wanted["memory_peaks"] = _peak(trace)
    if len(trace.ranks) > 1:
        wanted["stragglers"] = "who holds the others up"
    if tables["annotations"].num_rows:
        wanted["phase_breakdown"] = "forward, backward, optimizer, rank by rank and step by step"
    return tuple(wanted.items())


def _peak(trace: Trace) -> str:
    rows = ask(trace, "memory_peaks").to_pylist()
    if not rows:
        return "when memory is at its highest, and what holds it"
    top = max(rows, key=lambda row: row["peak_bytes"] or 0)
    return f"peak {format_bytes(top['peak_bytes'] or 0)}, most of it held by {top['holder']}"
