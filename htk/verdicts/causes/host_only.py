"""Causes of a recording with next to no GPU work: what the host's own time goes into.

Times are disjoint: what an earlier cause has is left to it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_booleans, read_keys, read_lengths, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.core.humanize import format_duration
from htk.base.names.phases import DATALOADER
from htk.quantities.measures.blame import blame_ranks
from htk.quantities.measures.call_tree import CallTree
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.host_time import (
    COLLECTIVES,
    LOADING,
    NEEDED,
    REST,
    HostTime,
    host_time,
)
from htk.quantities.measures.passes import phase_codes
from htk.quantities.measures.python_time import PythonTime
from htk.verdicts.causes.cause import Cause, Example, find_costliest, find_longest
from htk.verdicts.causes.exposed_communication import tell_undetermined
from htk.verdicts.causes.recorded import CauseEvidence

_WAITS = re.compile(r"\b(wait|acquire|poll|select|sleep)\b")  # for others: no work of its own
_LOADING_PCT, _WAITING_PCT, _FUNCTION_PCT, _REST_PCT, _OPERATOR_PCT = 10.0, 5.0, 10.0, 20.0, 25.0
_COMPUTES = (
    "look at the shapes that it runs at: fewer and larger calls, a type that the CPU computes "
    "faster (bf16)"
)
_IN_TORCH = ", torch.compile; how many threads it may use (torch.get_num_threads())"
_READING = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero")
_READS_BACK = (
    "it reads a value back: of a tensor on a device it waits there for work not recorded; "
    "profile that device too, and read values back less often"
)


def find_host_causes(recorded: CauseEvidence) -> tuple[list[Cause], int]:
    """Return the causes, with times of all ranks together, and the time that they are of."""
    spent = host_time(*(recorded[name] for name in NEEDED))
    causes: list[Cause] = []
    left = spent.window_ns
    for cause in _list_causes(recorded, spent):
        shown = cause.recorded_ns if cause.recorded_ns is None else min(cause.recorded_ns, left)
        left -= shown or 0
        causes.append(replace(cause, recorded_ns=shown))
    return causes, spent.window_ns


def _list_causes(recorded: CauseEvidence, spent: HostTime) -> Iterator[Cause]:
    yield from _blame_loading(recorded, spent)
    yield from _blame_waiting(recorded, spent)
    if recorded["python_calls"].num_rows:
        yield from _blame_function(recorded, spent)
    else:
        yield from _blame_unnamed(recorded, spent)
    yield from _blame_operator(recorded, spent)


def _blame_loading(recorded: CauseEvidence, spent: HostTime) -> Iterator[Cause]:
    loading = spent.phases[LOADING]
    share = 100.0 * loading / spent.window_ns
    if share < _LOADING_PCT:
        return
    ops = recorded["cpu_ops"]
    rows = np.flatnonzero(phase_codes(recorded["op_passes"]) == DATALOADER)
    yield Cause(
        "the step waits for data",
        f"data loading takes {share:.0f} % of the time",
        recorded.program.advise(
            "more DataLoader workers, prefetch_factor, persistent_workers; less work on each item",
            "read and decode ahead, in threads or processes of their own; less work on each item",
        ),
        loading,
        "phase_breakdown",
        _names_of(ops["name"], rows, read_lengths(ops)[rows]),
        _longest_of(ops, rows),
    )


def _blame_waiting(recorded: CauseEvidence, spent: HostTime) -> Iterator[Cause]:
    """Ranks that wait in collectives for one that is late on its own account; where no call is
    matched, time in which nothing but collectives runs."""
    calls = CollectiveCalls.of_one_source(
        recorded["collectives"], recorded["aligned_matches"], recorded["ranks"]
    )
    matched = calls.waits.has_wait
    if not matched.any():
        unknown = spent.phases[COLLECTIVES]
        share = 100.0 * unknown / spent.window_ns
        if share >= _WAITING_PCT:
            shown = f"in {share:.0f} % of the time collectives run, and no operator"
            yield tell_undetermined(recorded["ranks"], shown, unknown)
        return
    blames = blame_ranks(calls, recorded.later("own_times"))
    waited = int(calls.waits.wait[matched].sum())
    by_rank = Groups.by_keys(calls.rows.rank)
    cost = by_rank.sum(blames.cost)
    if 100.0 * waited < _WAITING_PCT * spent.window_ns or not cost.sum():
        return
    worst = int(by_rank.keys[cost.argmax(), 0])
    of_worst = matched & (calls.rows.rank == worst)
    fair = ~read_booleans(calls.matches["before_window"]) & of_worst
    last = int((fair & (calls.waits.last_rank == worst)).sum())
    rows = np.flatnonzero(of_worst & (blames.cost > 0))
    yield Cause(
        "ranks wait for each other",
        f"rank {worst} comes last to {last} of {int(of_worst.sum())} collectives; the others wait "
        f"{format_duration(int(cost.max()))} for it",
        "look at what that rank does before: its loader, its input lengths, its machine",
        waited,
        "stragglers",
        _names_of(calls.table["raw_name"], rows, blames.cost[rows]),
        find_longest(calls.rows.rank[rows], calls.rows.start[rows], calls.rows.end[rows]),
    )


def _names_of(column: pa.ChunkedArray, rows: Ints, cost: Ints) -> list[str]:
    """Return the names that bear most of what some rows cost."""
    codes, names = codes_of(column)
    return find_costliest(names.to_pylist(), codes[rows].astype(np.int64), cost)


def _longest_of(spans: pa.Table, rows: Ints) -> Example | None:
    """Return the longest of some rows."""
    return find_longest(read_keys(spans["rank"])[rows], *read_times(spans, rows))


def _blame_function(recorded: CauseEvidence, spent: HostTime) -> Iterator[Cause]:
    """The Python function that takes most of the time by itself."""
    python = PythonTime.from_tables(
        recorded["python_calls"],
        recorded["python_links"],
        recorded["cpu_ops"],
        recorded["op_links"],
        recorded["op_callers"],
    )
    own = python.functions.sum(python.own)
    for k in order_by(-own).tolist():  # the first that does not just wait
        name = python.names[int(python.functions.keys[k, 0])]
        share = 100.0 * int(own[k]) / spent.window_ns
        if share < _FUNCTION_PCT:
            return
        if _WAITS.search(name):
            continue
        rows = np.flatnonzero(python.functions.group_ids == k)
        yield Cause(
            "one Python function takes much of the time",
            f"{name} takes {share:.0f} % of the time by itself",
            "do it once, before the step, in worker processes, or in compiled code",
            int(own[k]),
            "python_hotspots",
            [name],
            _longest_of(recorded["python_calls"], rows),
        )
        return


def _blame_unnamed(recorded: CauseEvidence, spent: HostTime) -> Iterator[Cause]:
    share = 100.0 * spent.phases[REST] / spent.window_ns
    if share >= _REST_PCT:
        yield Cause(
            "work outside operators",
            f"no operator and no named range runs in {share:.0f} % of the time",
            recorded.program.advise(
                "record with with_stack=True: then Python functions are named",
                "record calls of the program's functions, or mark ranges of it",
            ),
            spent.phases[REST],
            "op_breakdown",
        )


def _blame_operator(recorded: CauseEvidence, spent: HostTime) -> Iterator[Cause]:
    """The operator that most of the operators' own time goes into."""
    selected = read_booleans(recorded["op_links"]["selected"])
    own = np.where(
        selected, CallTree.from_calls(recorded["cpu_ops"], recorded["op_links"]).self_time, 0
    )
    codes, names = codes_of(recorded["cpu_ops"]["name"])
    total = np.zeros(len(names), np.int64)
    np.add.at(total, codes[codes >= 0], own[codes >= 0])
    if not total.sum():
        return
    worst = int(total.argmax())
    share = 100.0 * int(total[worst]) / int(total.sum())
    if share < _OPERATOR_PCT or 100.0 * int(total[worst]) < _FUNCTION_PCT * spent.window_ns:
        return
    name = str(names[worst].as_py())
    computes = _COMPUTES + recorded.program.advise(_IN_TORCH, "; how many threads it may use")
    rows = np.flatnonzero((codes == worst) & selected)
    advice = _READS_BACK if name in _READING else computes
    yield Cause(
        "one operator takes much of the operators' time",
        f"{name} takes {share:.0f} % of it, in {len(rows):,} calls",
        advice,
        None,
        "op_breakdown",
        [name],
        _longest_of(recorded["cpu_ops"], rows),
    )
