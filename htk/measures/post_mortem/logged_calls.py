"""Where members of a communicator call different collectives, as NCCL's log lists their calls."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers
from htk.measures.desync import named
from htk.measures.post_mortem.counts import NCCL_LOG, Counts, logged_calls, member_codes
from htk.measures.post_mortem.finding import Finding

_COMPARED = 8  # calls behind one that differs
_WHAT = ("type", "dtype", "size", "root")


def differing_calls(collectives: pa.Table, counts: Counts) -> list[Finding]:
    """Return the first call of each communicator that its members made differently."""
    calls = logged_calls(collectives)
    if not calls.num_rows or not counts.members:
        return []
    comms, names = member_codes(calls)
    facets, codes = _facets(calls)
    lanes: dict[int, dict[int, np.ndarray[Any, Any]]] = defaultdict(dict)
    for comm, rank, rows in _lanes(comms, numbers(calls["comm_rank"])):
        lanes[comm][rank] = rows
    findings = []
    for comm, members in lanes.items():
        finding = _first_difference(names[comm], members, facets, codes)
        if finding is not None:
            findings.append(finding)
    return findings


def _facets(calls: pa.Table) -> tuple[list[list[Any]], np.ndarray[Any, Any]]:
    """Return what each call is, column by column, and one number for each distinct call."""
    columns = [calls[name].to_pylist() for name in ("type", "dtype")]
    inputs, outputs = calls["in_elements"].to_pylist(), calls["out_elements"].to_pylist()
    columns.append([a if a is not None else b for a, b in zip(inputs, outputs, strict=True)])
    columns.append(calls["root"].to_pylist())
    numbered: dict[tuple[Any, ...], int] = {}
    each = zip(*columns, strict=True)
    return columns, np.array([numbered.setdefault(call, len(numbered)) for call in each], np.int64)


def _lanes(
    comms: np.ndarray[Any, Any], ranks: np.ndarray[Any, Any]
) -> Iterator[tuple[int, int, np.ndarray[Any, Any]]]:
    """Yield the rows of each member's calls, in the order logged."""
    order = np.lexsort((ranks, comms))
    changes = (np.diff(comms[order]) != 0) | (np.diff(ranks[order]) != 0)
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        yield int(comms[rows[0]]), int(ranks[rows[0]]), np.sort(rows)


def _first_difference(
    name: str,
    members: dict[int, np.ndarray[Any, Any]],
    facets: list[list[Any]],
    codes: np.ndarray[Any, Any],
) -> Finding | None:
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
    right_row, wrong_row = (int(members[rank][index]) for rank in (usual[0], wrong[0]))
    what = _difference(facets, right_row, wrong_row)
    if _shifted(codes, members[wrong[0]][index:], members[usual[0]][index:]):
        what = "order"
    calls = "; ".join(
        f"{named(sorted(side))} {_call(facets, int(members[side[0]][index]))}"
        for side in (usual, *others)[:4]
    )
    blame = f"{named(wrong)} at fault" if sure else "no majority: cannot say who"
    words = f"Collective number {index + 1:,} of communicator {name} differs: {calls}; {blame}."
    ranks = tuple(wrong if sure else sorted([*usual, *wrong]))
    kind = facets[0][right_row]
    return Finding(f"{what}_mismatch", ranks, None, kind, words, None, sure, source=NCCL_LOG)


def _difference(facets: list[list[Any]], right: int, wrong: int) -> str:
    return next(
        w for w, column in zip(_WHAT, facets, strict=True) if column[right] != column[wrong]
    )


def _call(facets: list[list[Any]], row: int) -> str:
    kind, dtype, elements, root = (column[row] for column in facets)
    rooted = f" with root {root}" if root is not None else ""
    return f"called {kind} of {elements:,} {dtype or 'elements'}{rooted}"


def _shifted(
    codes: np.ndarray[Any, Any], own: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]
) -> bool:
    """Whether a member left a call out or made one more: its calls fit those of others shifted."""
    own_codes, usual = codes[own[:_COMPARED]], codes[theirs[:_COMPARED]]
    return any(
        len(a) > 1 and bool(np.array_equal(a[: len(b)], b[: len(a)]))
        for a, b in ((own_codes, usual[1:]), (own_codes[1:], usual))
        if len(b) > 1
    )
