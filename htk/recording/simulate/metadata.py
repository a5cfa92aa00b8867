"""The metadata that c10d writes of a collective, on its record and on its kernel."""

import json
from collections.abc import Sequence
from hashlib import blake2b

from htk.base.mappings import Fields
from htk.recording.simulate.groups import Group
from htk.recording.simulate.instructions import Collective, RankMessage

_NAMES = {"float": "Float", "c10::BFloat16": "BFloat16"}


def write_collective_metadata(
    what: Collective, group: Group, rank: int, number: int, kind: str, *, host: bool
) -> str:
    """Return what c10d says of a collective, as JSON without braces.

    `number`: of the collective in its group, from 1; `kind`: type of its elements.
    """
    own = group.of_rank[rank]
    name = group.names[own]
    ranks = tuple(member % group.job_ranks for member in group.members[own])
    first, *others = ranks
    stride = others[0] - first if others else 1
    into, out = what.elements(rank)
    facts: Fields = {
        "Collective name": what.record,
        "dtype": _NAMES[kind],
        "In msg nelems": into,
        "Out msg nelems": out,
        "In split size": _shorten_ranks(what.splits.sent[rank].tolist() if what.splits else ()),
        "Out split size": _shorten_ranks(
            what.splits.received[rank].tolist() if what.splits else ()
        ),
        "Group size": group.size,
        "Process Group Name": name,
        "Process Group Description": group.description,
        "Process Group Ranks": _shorten_ranks(ranks),
        "Seq": number,
        "Comms Id": _comms_id(name, number, ranks),
    }
    if host:
        facts["Rank"] = ranks.index(rank % group.job_ranks)
        facts["Global rank start"] = first
        facts["Global rank stride"] = stride
        facts["Is asynchronized op"] = not what.synchronous
        values = [
            "", f"[{number}, False]", f"[{name}, {group.description}]", str(facts["Rank"]),
            what.record, "[]", "[]", str(first), str(stride), str(group.size),
            str(not what.synchronous),
        ]  # fmt: skip
        scalars = ["Scalar"] * 4
        types = [kind, "", "", "Scalar", "", "ScalarList", "ScalarList", *scalars]
        empty: list[list[int]] = [[]] * 10
        facts["Concrete Inputs"] = values
        facts["Input type"] = types
        facts["Input Strides"] = [[1], *empty]
        facts["Input Dims"] = [[into], *empty]
    return json.dumps(facts)[1:-1]


def message_metadata(
    what: RankMessage, group: Group, rank: int, number: int, kind: str, *, host: bool
) -> str:
    """Return what c10d says of a message, as JSON without braces.

    `number`: of the rank's calls with messages in the group, from 1, which its peers count apart.
    """
    ranks = group.members[group.of_rank[rank]]
    first = ranks[0]
    position = ranks.index(rank)
    other = (position + what.shift) % len(ranks)
    stride = ranks[1] - first
    facts: Fields = {
        "Collective name": what.kind,
        "dtype": _NAMES[kind],
        "In msg nelems": what.elements,
        "Out msg nelems": what.elements,
        "In split size": "[]",
        "Out split size": "[]",
        "Group size": len(ranks),
        "Process Group Name": group.names[group.of_rank[rank]],
        "Process Group Description": group.description,
        "Process Group Ranks": _shorten_ranks(ranks),
        "Dst Rank" if what.kind == "send" else "Src Rank": ranks[other],
        "Seq": number,
        "Comms Id": _comms_id(f"{group.names[group.of_rank[rank]]},p2p", number, ranks),
    }
    if host:
        facts["Rank"] = other
        facts["Global rank start"] = first
        facts["Global rank stride"] = stride
        facts["Is asynchronized op"] = True
    return json.dumps(facts)[1:-1]


def write_unnamed_metadata(what: Collective | RankMessage, group: Group, kind: str) -> str:
    """Return what c10d said before PyTorch 2.3: neither the group nor the call's number in it."""
    if isinstance(what, RankMessage):
        named = what.kind
        into = what.elements
        out = what.elements
    else:
        named = what.record
        into = what.in_elements
        out = what.out_elements
    facts: Fields = {
        "Collective name": named,
        "dtype": _NAMES[kind],
        "In msg nelems": into,
        "Out msg nelems": out,
        "In split size": "[]",
        "Out split size": "[]",
        "Group size": group.size,
    }
    return json.dumps(facts)[1:-1]


def _shorten_ranks(ranks: Sequence[int]) -> str:
    """Return a list as PyTorch shows it: cut above thirty."""
    if len(ranks) <= 30:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[:29]))}, ..., {ranks[-1]}]"


def _comms_id(name: str, number: int, ranks: tuple[int, ...]) -> int:
    text = f"{name},{number},{ranks[0]},{len(ranks)}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
