"""Find where members of a communicator call different collectives, by the calls in NCCL's log."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.post_mortem.counts import NCCL_LOG, Counts, logged_calls, member_codes
from htk.quantities.measures.post_mortem.finding import Finding

_COMPARED = 8  # calls behind one that differs


class _Facets:
    """The facts of each call, column by column, and one number for each distinct call."""

    def __init__(self, calls: pa.Table) -> None:
        self.types, self._type_names = codes_of(calls["type"])
        self._dtypes, self._dtype_names = codes_of(calls["dtype"])
        into = read_numbers(calls["in_elements"], NONE)
        out = read_numbers(calls["out_elements"], NONE)
        self._elements = np.where(into >= 0, into, out)
        self._roots = read_numbers(calls["root"], NONE)
        columns = (self.types, self._dtypes, self._elements, self._roots)
        self.codes = Groups.by_keys(columns).group_ids

    def type(self, row: int) -> str:
        return str(self._type_names[int(self.types[row])].as_py())

    def difference(self, right: int, wrong: int) -> str:
        """Return in what two calls differ first."""
        columns = (self.types, self._dtypes, self._elements, self._roots)
        each = zip(("type", "dtype", "size", "root"), columns, strict=True)
        return next(what for what, column in each if column[right] != column[wrong])

    def words(self, row: int) -> str:
        dtype = int(self._dtypes[row])
        root = int(self._roots[row])
        unit = self._dtype_names[dtype].as_py() if dtype >= 0 else "elements"
        rooted = f" with root {root}" if root >= 0 else ""
        return f"called {self.type(row)} of {int(self._elements[row]):,} {unit}{rooted}"


def differing_calls(collectives: pa.Table, counts: Counts) -> list[Finding]:
    """Return the first call of each communicator that its members made differently."""
    calls = logged_calls(collectives)
    if not calls.num_rows or not counts.members:
        return []
    comms, names = member_codes(calls)
    facets = _Facets(calls)
    lanes: dict[int, dict[int, Ints]] = defaultdict(dict)
    for comm, rank, rows in _list_member_calls(comms, read_numbers(calls["comm_rank"])):
        lanes[comm][rank] = rows
    findings = []
    for comm, members in lanes.items():
        finding = _first_difference(names[comm], members, facets)
        if finding is not None:
            findings.append(finding)
    return findings


def _list_member_calls(comms: Ints, ranks: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Yield the rows of each member's calls, in the order logged."""
    order = order_by(comms, ranks)
    changes = (np.diff(comms[order]) != 0) | (np.diff(ranks[order]) != 0)
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        yield int(comms[rows[0]]), int(ranks[rows[0]]), np.sort(rows)


def _first_difference(
    name: str,
    members: dict[int, Ints],
    facets: _Facets,
) -> Finding | None:
    codes = facets.codes
    reference = codes[max(members.values(), key=len)]
    firsts = []
    for rows in members.values():
        differs = np.flatnonzero(codes[rows] != reference[: len(rows)])
        firsts += [int(differs[0])] if len(differs) else []
    if not firsts:
        return None
    index = min(firsts)
    sides: dict[int, list[int]] = defaultdict(list)
    for rank, rows in members.items():
        if len(rows) > index:
            sides[int(codes[rows[index]])].append(rank)
    usual, *others = sorted(sides.values(), key=len, reverse=True)
    sure = len(usual) > len(others[0])
    wrong = sorted(rank for side in others for rank in side)
    right_row = int(members[usual[0]][index])
    wrong_row = int(members[wrong[0]][index])
    what = facets.difference(right_row, wrong_row)
    if _is_shifted(codes, members[wrong[0]][index:], members[usual[0]][index:]):
        what = "order"
    calls = "; ".join(
        f"{name_ranks(sorted(side))} {facets.words(int(members[side[0]][index]))}"
        for side in (usual, *others)[:4]
    )
    blame = f"{name_ranks(wrong)} at fault" if sure else "no majority: cannot say who"
    words = f"Collective number {index + 1:,} of communicator {name} differs: {calls}; {blame}."
    ranks = tuple(wrong if sure else sorted([*usual, *wrong]))
    kind = facets.type(right_row)
    return Finding(f"{what}_mismatch", ranks, None, kind, words, None, sure, source=NCCL_LOG)


def _is_shifted(codes: Ints, own: Ints, theirs: Ints) -> bool:
    """Return whether a member skipped or added a call: its calls match others' shifted by one."""
    own_codes = codes[own[:_COMPARED]]
    usual = codes[theirs[:_COMPARED]]
    return any(
        len(a) > 1 and bool(np.array_equal(a[: len(b)], b[: len(a)]))
        for a, b in ((own_codes, usual[1:]), (own_codes[1:], usual))
        if len(b) > 1
    )
