"""Several recorded processes in one file: which event belongs to which.

Correlation ids, thread numbers and streams belong to a process. A file that holds several, as
`htk convert --format chrome` and scripts that put ranks together write them, is read as one
recording per process. htk's own files say which processes are which rank's (`htk_ranks`); in others
the ids tell.
"""

from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.mappings import Facts
from htk.parsers.kineto.raw import RawEvents
from htk.parsers.kineto.sorting import Columns, Sorted

KEY = "htk_ranks"
_MOST = 4096  # processes of one file


@dataclass(frozen=True)
class Process:
    """The rows of one process, and what the file says of it."""

    events: Sorted
    header: Facts


def list_processes(raw: RawEvents, events: Sorted) -> list[Process]:
    """Return the processes of a file in order; a file of one is returned as it is."""
    listed = _list_written(raw.header)
    if listed:
        code, names = _read_pids(raw, np.arange(raw.rows))
        owner_of = {pid: k for k, (pids, _) in enumerate(listed) for pid in pids}
        owner = np.array([*(owner_of.get(name, NONE) for name in names), NONE], np.int64)[code]
        headers = [{**raw.header, **header} for _, header in listed]
        return [select_process(events, owner == k, header) for k, header in enumerate(headers)]
    owner = _by_ids(raw, events)
    count = int(owner.max(initial=0)) + 1
    if count == 1:
        return [Process(events, raw.header)]
    return [select_process(events, (owner == k) | ((owner == NONE) & (k == 0)), raw.header)
            for k in range(count)]  # fmt: skip


def select_process(events: Sorted, is_own: Mask, header: Facts) -> Process:
    """Return the process, or the part of one, whose raw rows are marked."""
    rows = {name: table[is_own[table]] for name, table in events.of.items()}
    losses = {name: getattr(events, name) for name in ("untimed", "strays")}
    return Process(
        replace(
            events,
            complete=events.complete[is_own[events.complete]],
            of=rows,
            **{name: lost[is_own[lost]] for name, lost in losses.items()},
        ),
        header,
    )


def _list_written(header: Facts) -> list[tuple[frozenset[str], Facts]]:
    """Return what htk wrote of the processes it put together; nothing in it is trusted."""
    listed = header.get(KEY)
    if not isinstance(listed, list) or len(listed) > _MOST:
        return []
    ranks: list[tuple[frozenset[str], Facts]] = []
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("processes"), list):
            return []
        own = entry.get("header")
        pids = frozenset(str(pid) for pid in entry["processes"])
        ranks.append((pids, own if isinstance(own, dict) else {}))
    return ranks


def _read_pids(raw: RawEvents, rows: Ints) -> tuple[Ints, list[str]]:
    code, names = Columns(raw, rows, 0).codes("pid")
    return code.astype(np.int64), [str(name) for name in names.to_pylist()]


def _by_ids(raw: RawEvents, events: Sorted) -> Ints:
    """Number the processes whose launching calls share correlation ids, and their GPU rows.

    Rows of a GPU are listed under a process number of their own: they go with the process whose
    calls precede most of them, and of equals with the one at the same place.
    """
    owner = fill_none(raw.rows)
    launches = events.of["launches"]
    kernels = events.of["kernels"]
    pid, names = _read_pids(raw, launches)
    ids, there = Columns(raw, launches, 0).values("correlation")
    usable = there & (ids > 0)
    callers = np.unique(pid[usable])
    if len(callers) < 2 or not _share_ids(pid[usable], ids[usable]):
        return owner
    all_pids, all_names = _read_pids(raw, np.arange(raw.rows))
    start = Columns(raw, launches, 0).times()[0]
    wanted, _ = Columns(raw, kernels, 0).values("correlation")
    begin = Columns(raw, kernels, 0).times()[0]
    gpu, gpu_names = _read_pids(raw, kernels)
    number = {names[p]: k for k, p in enumerate(callers.tolist())}
    for position, g in enumerate(np.unique(gpu).tolist()):  # a few GPUs
        rows = np.flatnonzero(gpu == g)
        fit = []
        for k, p in enumerate(callers.tolist()):  # and processes
            calls = np.flatnonzero(usable & (pid == p))
            last = SegmentTimes(ids[calls], start[calls]).last(wanted[rows], begin[rows])
            hit = last != NONE
            fit.append((int(hit.sum()), k == position))
        if gpu_names[g] in number:
            return fill_none(raw.rows)  # the GPU's rows are no process of their own
        number[gpu_names[g]] = fit.index(max(fit))
    if len(set(number.values()) & {number[gpu_names[g]] for g in np.unique(gpu).tolist()}) < 2:
        return owner  # one process did all the GPU's work
    of_name = np.array([*(number.get(name, NONE) for name in all_names), NONE], np.int64)
    return of_name[all_pids]


def _share_ids(pid: Ints, ids: Ints) -> bool:
    """Return whether an id is used by calls of more than one process."""
    order = order_by(ids, pid)
    same = (ids[order][1:] == ids[order][:-1]) & (pid[order][1:] != pid[order][:-1])
    return bool(same.any())
