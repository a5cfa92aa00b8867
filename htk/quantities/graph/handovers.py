"""Threads that wait for each other: one pauses while another that it started works.

Nothing records this. It is inferred from when each ran, and counts as observed where operators of
the other thread are tied to forward ones, as autograd's are.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from htk.base.columns.arrow import codes_of, mark_valid, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.mappings import NamedTables
from htk.quantities.graph.nodes import LaunchCalls
from htk.quantities.graph.shared_tables import find_once

_HANDED_NS = 100_000  # shorter pauses of a thread are not looked at for a handover
# Of the pause, in which the other thread was at work; autograd's threads work for no one else,
# however long one of the two was held up.
_HANDED_SHARE = 0.5


@dataclass(frozen=True)
class Handovers:
    """Call `dst` of one thread begins once call `src` of another is done."""

    src: Ints
    dst: Ints
    observed: Mask
    cut: Ints  # calls that no longer follow the one before on their own thread


@dataclass(frozen=True)
class _Threads:
    """Calls of each thread, which are ordered by thread and start."""

    calls: LaunchCalls
    of_rank: dict[int, list[int]]
    rows: dict[int, tuple[int, int]]  # from the first to behind the last of each thread

    @classmethod
    def from_calls(cls, calls: LaunchCalls) -> "_Threads":
        lanes, first = np.unique(calls.lane, return_index=True)
        of_rank: dict[int, list[int]] = defaultdict(list)
        for lane, rank in zip(lanes.tolist(), calls.rank[first].tolist(), strict=True):
            of_rank[rank].append(lane)
        over = np.append(first[1:], len(calls.lane))[: len(first)].tolist()
        bounds = zip(first.tolist(), over, strict=True)
        return cls(calls, of_rank, dict(zip(lanes.tolist(), bounds, strict=True)))

    def between(self, lane: int, left: int, again: int) -> Ints:
        """Return the calls of a thread that begin and end between two times."""
        first, over = self.rows[lane]
        low, high = np.searchsorted(self.calls.start[first:over], [left, again + 1])
        inside = np.arange(first + low, first + high)
        return inside[self.calls.end[inside] <= again]


def find_handovers(tables: NamedTables, calls: LaunchCalls) -> Handovers:
    """Return a thread pauses while another works: it started that one and waits for its end.

    Main and autograd threads in backward; observed where the other thread runs operators that
    autograd tied to a forward one; a rank of which that is known waits for no other thread.
    """
    backward = _backward_threads(tables, calls)
    src = []
    dst = []
    seen = []
    cut = []
    pause = calls.start[1:] - calls.end[:-1]
    same = calls.lane[1:] == calls.lane[:-1]
    threads = _Threads.from_calls(calls)
    for before in np.flatnonzero(same & (pause > _HANDED_NS)).tolist():  # some tens in a step
        left = int(calls.end[before])
        again = int(calls.start[before + 1])
        rank = int(calls.rank[before])
        for lane in backward.get(rank, threads.of_rank[rank]):
            if lane == calls.lane[before]:
                continue
            others = threads.between(lane, left, again)
            if not len(others):
                continue
            worked = int(calls.end[others[-1]] - calls.start[others[0]])
            if rank not in backward and worked < _HANDED_SHARE * (again - left):
                continue
            src += [before, int(others[-1])]
            dst += [int(others[0]), before + 1]
            seen += [rank in backward] * 2
            cut += [int(others[0]), before + 1]
    return Handovers(
        np.array(src, np.int64),
        np.array(dst, np.int64),
        np.array(seen, bool),
        np.array(cut, np.int64),
    )


def _backward_threads(tables: NamedTables, calls: LaunchCalls) -> dict[int, list[int]]:
    """Lanes of the calls, by rank, whose threads run backward operators."""
    wanted = find_once(tables, "backward threads", lambda: _of_backward(tables))
    launches = tables["launches"]
    thread, names = codes_of(launches["thread"])
    rank = read_numbers(launches["rank"], NONE)
    lanes: dict[int, list[int]] = defaultdict(list)
    for lane in np.unique(calls.lane).tolist():  # a few threads
        row = calls.row[int(np.argmax(calls.lane == lane))]
        if thread[row] == NONE:  # a call of a thread that the file does not name
            continue
        if (int(rank[row]), names[int(thread[row])].as_py()) in wanted:
            lanes[int(rank[row])].append(int(lane))
    return dict(lanes)


def _of_backward(tables: NamedTables) -> set[tuple[int, str]]:
    """Return rank and name of each thread that runs backward operators."""
    ops = tables["cpu_ops"]
    links = tables["op_links"]
    tied = mark_valid(links["forward_row"])
    op_thread, op_names = codes_of(ops["thread"])
    op_rank = read_numbers(ops["rank"], NONE)
    return {
        (int(r), op_names[int(t)].as_py())
        for r, t in Groups.by_keys([op_rank[tied], op_thread[tied]]).keys.tolist()
    }
