"""Mismatches: whether the members of a collective made the same call, and who did not.

A majority says what the call was; who says otherwise is the culprit. Without a majority nobody is.
Sizes are elements, as they are to the communication library; shapes do not matter to it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from htk.quantities.measures.call_history import CallSite, Histories, RecordedCall

_SIZE_FREE = ("all_to_all", "barrier", "coalesced", "unknown", "send_recv")


@dataclass(frozen=True)
class Mismatch:
    """Members of one collective that did not make the same call."""

    call_site: CallSite
    what: str  # type, size, dtype, order
    culprits: tuple[int, ...]
    decided: bool  # a majority tells who is wrong
    words: str


def find_mismatch(history: Histories, call_site: CallSite) -> Mismatch | None:
    """Return how the calls made at a place disagree; None: they do not, or there is one only."""
    calls = {r: c for r, c in history.by_site.get(call_site, {}).items() if c.operations}
    if call_site.pair:
        return _find_message_mismatch(call_site, calls)
    uneven = _is_uneven(history, call_site, calls)
    inconsistent = None if uneven else _find_inconsistent(call_site, calls)
    if inconsistent:
        return inconsistent
    for what, facet in _FACETS.items():
        if what == "size" and uneven:
            continue
        facets = {r: facet(c) for r, c in calls.items()}
        recorded = {r: s for r, s in facets.items() if s is not None}
        if len(set(recorded.values())) > 1:
            return _in_order(history, _vote_on_facet(call_site, what, recorded))
    return _find_exchange_mismatch(history, call_site, calls)


def _is_uneven(history: Histories, call_site: CallSite, calls: Mapping[int, RecordedCall]) -> bool:
    """Return whether members may differ in size: each gives or takes a part of its own length."""
    alone = [c.operations[0] for c in calls.values() if len(c.operations) == 1]
    if len(alone) < len(calls):
        return False
    if all(_VARIABLE.search(o["raw_name"] or "") for o in alone):
        return True
    if len(alone) != len(history.members(call_site)):
        return False
    if all(o["type"] == "all_gather" for o in alone):
        parts = "in_shapes"
        wholes = "out_shapes"
    elif all(o["type"] == "reduce_scatter" for o in alone):
        parts = "out_shapes"
        wholes = "in_shapes"
    else:
        return False
    total = sum(sum(_count_elements(o[parts])) for o in alone)
    return total > 0 and all(sum(_count_elements(o[wholes])) == total for o in alone)


# all_gather_v, reduce_scatterv, all_to_all_v_single, …
_VARIABLE = re.compile(r"(?:gather|scatter|all|tensor)_?v(?:_single|_2d)?$", re.IGNORECASE)


def _vote_on_facet(call_site: CallSite, what: str, facets: Mapping[int, Hashable]) -> Mismatch:
    sides: dict[Hashable, list[int]] = defaultdict(list)
    for rank, saying in sorted(facets.items()):
        sides[saying].append(rank)
    ranked = sorted(sides.items(), key=lambda side: -len(side[1]))
    decided = len(ranked[0][1]) > len(ranked[1][1])
    wrong = ranked[1:] if decided else ranked
    culprits = tuple(sorted(r for _, ranks in wrong for r in ranks))
    words = "; ".join(
        f"{name_ranks(ranks)} {'calls' if len(ranks) == 1 else 'call'} {saying}"
        for saying, ranks in ranked[:4]
    )
    return Mismatch(call_site, what, culprits, decided, words)


def _spell_type(call: RecordedCall) -> str | None:
    return " + ".join(str(o["type"]) for o in call.operations)


def _spell_size(call: RecordedCall) -> str | None:
    parts = []
    for operation in call.operations:
        kind = operation["type"]
        if kind in _SIZE_FREE:
            continue
        into = "" if kind == "scatter" else f"in {spell_elements(operation['in_shapes'])}"
        out = "" if kind == "gather" else f"out {spell_elements(operation['out_shapes'])}"
        parts.append(f"{kind} of {' '.join(p for p in (into, out) if p)} elements")
    return " + ".join(parts) or None


def _spell_dtype(call: RecordedCall) -> str | None:
    parts = []
    for operation in call.operations:
        into = None if operation["type"] in ("scatter", "broadcast") else operation["dtype"]
        out = None if operation["type"] == "gather" else operation["out_dtype"]
        parts += [part for part in (into, out) if part]
    return f"{_spell_type(call)} of {'/'.join(dict.fromkeys(parts))}" if parts else None


_FACETS: dict[str, Callable[[RecordedCall], str | None]] = {
    "type": _spell_type,
    "size": _spell_size,
    "dtype": _spell_dtype,
}


def spell_elements(shapes: str | None) -> str:
    """Return the elements of each tensor: "[[4096,64]]" is 262144."""
    counts = _count_elements(shapes)
    return "+".join(str(n) for n in counts) or "no"


@lru_cache(maxsize=100_000)
def _count_elements(shapes: str | None) -> list[int]:
    parsed = json.loads(shapes or "[]")
    counts = []
    for shape in parsed:
        total = 1
        for size in shape:
            total *= size
        counts.append(total)
    return counts


# Elements in and out, in a group of n.
_CONSISTENT: dict[str, Callable[[int, int, int], bool]] = {
    "all_reduce": lambda into, out, n: into == out,
    "all_gather": lambda into, out, n: out == into * n,
    "reduce_scatter": lambda into, out, n: into == out * n,
}


def _find_inconsistent(call_site: CallSite, calls: Mapping[int, RecordedCall]) -> Mismatch | None:
    """Return the calls that contradict themselves: nobody else is needed to tell."""
    size = len(call_site.group.ranks)
    wrong = [r for r, call in sorted(calls.items()) if size and _is_contradictory(call, size)]
    if not wrong or len(wrong) == len(calls):
        return None
    operation = calls[wrong[0]].operations[0]
    words = (
        f"{name_ranks(wrong)}: {operation['type']} with {spell_elements(operation['in_shapes'])} "
        f"elements in and {spell_elements(operation['out_shapes'])} out, in a group of {size}"
    )
    return Mismatch(call_site, "size", tuple(wrong), True, words)


def _is_contradictory(call: RecordedCall, size: int) -> bool:
    if len(call.operations) != 1:
        return False
    operation = call.operations[0]
    rule = _CONSISTENT.get(operation["type"])
    into = _count_elements(operation["in_shapes"])
    out = _count_elements(operation["out_shapes"])
    return bool(rule and into and out and not rule(sum(into), sum(out), size))


def _find_exchange_mismatch(
    history: Histories, call_site: CallSite, calls: Mapping[int, RecordedCall]
) -> Mismatch | None:
    """Return a mismatch if all ranks of an all-to-all send more or less than all receive. Who is
    wrong cannot be told from sums."""
    alone = [c.operations[0] for c in calls.values() if len(c.operations) == 1]
    if len(alone) != len(history.members(call_site)):
        return None
    if any(o["type"] != "all_to_all" for o in alone):
        return None
    sent = sum(sum(_count_elements(o["in_shapes"])) for o in alone)
    received = sum(sum(_count_elements(o["out_shapes"])) for o in alone)
    if sent == received or not sent or not received:
        return None
    words = f"all ranks send {sent} elements and receive {received}"
    return Mismatch(call_site, "size", tuple(sorted(calls)), False, words)


def _find_message_mismatch(
    call_site: CallSite, calls: Mapping[int, RecordedCall]
) -> Mismatch | None:
    if len(calls) < 2 or call_site.pair is None:
        return None
    sender, receiver = call_site.pair
    sent = spell_elements(calls[sender].operations[0]["in_shapes"])
    received = spell_elements(calls[receiver].operations[0]["out_shapes"])
    if sent == received:
        return None
    words = f"rank {sender} sends {sent} elements, rank {receiver} expects {received}"
    return Mismatch(call_site, "size", (sender, receiver), False, words)


def _in_order(history: Histories, vote: Mismatch) -> Mismatch:
    """Return the mismatch, as one of order if a culprit swapped, skipped or added a call.

    It is so only where its calls match those of the others shifted by one, and do not match
    unshifted: in a loop of calls that are all alike, one that differs is a mismatch and moves
    nothing.
    """
    if not vote.decided:
        return vote
    calls = history.by_site[vote.call_site]
    others = [r for r in sorted(calls) if r not in vote.culprits and calls[r].operations]
    theirs = _list_sayings(history, vote.call_site, others[0])
    for rank in vote.culprits:
        own = _list_sayings(history, vote.call_site, rank)
        if not own or own[0] == theirs[0] or _compare_calls(own[1:], theirs[1:]) is not False:
            continue
        swapped = own[:2] == theirs[1::-1] and _compare_calls(own[2:], theirs[2:]) is not False
        early = _compare_calls(own, theirs[1:])
        late = _compare_calls(own[1:], theirs)
        if not (swapped or early or late):
            continue
        how = (
            "swaps two calls"
            if swapped
            else "skips or adds one call"
            if early and late
            else "skips one call"
            if early
            else "makes a call that the others do not"
        )
        words = f"rank {rank} {how}; {vote.words}"
        return Mismatch(vote.call_site, "order", vote.culprits, True, words)
    return vote


_COMPARED = 8  # calls behind one that differs


def _list_sayings(history: Histories, call_site: CallSite, rank: int) -> list[tuple[Any, ...]]:
    """Return type, size and dtype of a rank's call and those behind it, until one is unrecorded."""
    sayings = []
    for seq in range(call_site.seq, call_site.seq + _COMPARED):
        call = history.by_site.get(CallSite(call_site.group, seq), {}).get(rank)
        if call is None or not call.operations:
            break
        sayings.append((_spell_type(call), _spell_size(call), _spell_dtype(call)))
    return sayings


def _compare_calls(own: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool | None:
    """Return whether calls are alike one by one; None: no two can be compared."""
    pairs = list(zip(own, theirs, strict=False))
    return all(a == b for a, b in pairs) if pairs else None


def name_ranks(ranks: list[int] | tuple[int, ...]) -> str:
    """Return ranks in words: rank 3; ranks 0-2,7."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {list_ranks(ranks)}"


def list_ranks(ranks: list[int] | tuple[int, ...]) -> str:
    """Return ranks, neighbours joined, and four or more at even distance: 0-2,7 and 0..504:8."""
    left = sorted(ranks)
    parts = []
    while left:
        step = left[1] - left[0] if len(left) > 1 else 1
        count = 1
        while count < len(left) and left[count] - left[count - 1] == step:
            count += 1
        if step > 1 and count < _EVEN:
            count = 1
        first = left[0]
        last = left[count - 1]
        joined = f"{first}-{last}" if step == 1 else f"{first}..{last}:{step}"
        parts.append(str(first) if count == 1 else joined)
        left = left[count:]
    return ",".join(parts)


_EVEN = 4  # ranks at even distance that are worth a pattern
