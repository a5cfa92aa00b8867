"""Ranks that behave alike: a figure of each rank, parted where the figures lie far apart."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Floats, Ints
from htk.base.core.humanize import format_int_ranges, pluralize_count

_WIDE = 0.25  # of the range: a gap this wide parts groups, and in none of many equal ranks is one
_ALIKE = 0.03  # of the median of all: figures closer than this are of one group
_NEAR = 0.2  # of the median: more is told by its ends
_MOST_GROUPS = 6
_MOST_NAMED = 3  # ranks of a group; more are told by their node or their number
MOST_ROWS = 25  # of a table of ranks: more have no room for their names
_LEAST_FAR = 0.05  # of the rank that is least like the others: who is nearer is one of these
_USUAL_NODE = 8  # GPUs, where the recordings do not tell


class AlikeRanks(NamedTuple):
    """Ranks whose figures are alike."""

    ranks: list[int]
    least: float
    middle: float
    most: float


@dataclass(frozen=True)
class NodePlaces:
    """The node of each rank and the rank's place in it, both counted from zero."""

    node: Mapping[int, int]
    place: Mapping[int, int]
    are_told: bool  # by the recordings; else ranks stand in rows of eight


def find_nodes(ranks: Sequence[int], devices: Sequence[int | None]) -> NodePlaces:
    """Return the nodes of ranks by their GPUs' numbers, which begin anew in each node.

    >>> find_nodes([0, 1, 2, 3], [0, 1, 0, 1]).node
    {0: 0, 1: 0, 2: 1, 3: 1}
    """
    device_of = {rank: device for rank, device in zip(ranks, devices, strict=True)}
    are_told = len(device_of) == len(ranks) and len({*devices} - {None}) > 1
    if not are_told or None in device_of.values():
        in_rows = {rank: divmod(rank, _USUAL_NODE) for rank in sorted(device_of)}
        node = {rank: row for rank, (row, _) in in_rows.items()}
        return NodePlaces(node, {rank: gpu for rank, (_, gpu) in in_rows.items()}, False)
    node = {}
    number = 0
    before = -1
    for rank in sorted(device_of):
        device = int(device_of[rank] or 0)
        number += device <= before
        node[rank] = number
        before = device
    return NodePlaces(node, {rank: int(device or 0) for rank, device in device_of.items()}, True)


def group_ranks(ranks: Ints, values: Floats) -> list[AlikeRanks]:
    """Return the groups of ranks whose values lie together, the largest group first.

    Values in order are parted at their widest gap, then each part likewise:

        3.0 3.1 3.1 3.2 ────────── 5.0 5.1      a gap of 1.8 in a range of 2.1: two groups
    """
    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    least_gap = _ALIKE * abs(float(np.median(values)))
    parts = [order]
    done: list[Ints] = []
    while parts:
        part = parts.pop()
        gaps = np.diff(values[part])
        cut = int(np.argmax(gaps)) if len(gaps) else 0
        widest = gaps[cut] if len(gaps) else 0.0
        is_wide = widest > least_gap and widest >= _WIDE * gaps.sum()
        if is_wide and len(parts) + len(done) + 2 <= _MOST_GROUPS:
            parts += [part[: cut + 1], part[cut + 1 :]]
        else:
            done.append(part)
    done.sort(key=lambda part: -len(part))
    return [
        AlikeRanks(
            sorted(ranks[part].tolist()),
            float(values[part[0]]),
            float(np.median(values[part])),
            float(values[part[-1]]),
        )
        for part in done
    ]


def describe_groups(
    groups: Sequence[AlikeRanks], nodes: NodePlaces, say: Callable[[float], str]
) -> str:
    """Return a line: how alike most ranks are, and which are unlike them, by how much."""
    most, *others = groups
    far = max(most.most - most.middle, most.middle - most.least)
    words = f"{pluralize_count(len(most.ranks), 'rank')} "
    if not far:
        words += f"at {say(most.middle)}"
    elif far <= _NEAR * abs(most.middle):
        words += f"within {100 * far / abs(most.middle):.1f} % of {say(most.middle)}"
    else:
        words += f"from {say(most.least)} to {say(most.most)}"
    others.sort(key=lambda group: -abs(group.middle - most.middle))
    for group in others:
        apart = say(group.middle)
        if most.middle:
            apart = f"{group.middle / most.middle:.2f}×"
        words += f"; {name_ranks(group.ranks, nodes)} at {apart}"
    return words


def name_ranks(ranks: Sequence[int], nodes: NodePlaces) -> str:
    """Return what a few ranks are called: by their numbers, or by the node that holds them."""
    if len(ranks) <= _MOST_NAMED:
        return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    within = {nodes.node[rank] for rank in ranks}
    if nodes.are_told and len(within) == 1:
        (node,) = within
        return f"{len(ranks)} of node {node}"
    numbers = format_int_ranges(list(ranks))
    return f"ranks {numbers}" if numbers.count(",") < _MOST_NAMED else f"{len(ranks)} ranks"


def condense_ranks(ranks: Sequence[int], cells: Floats) -> tuple[list[str], Floats]:
    """Return a table of ranks by columns in few rows: the ranks that are least like the median of
    all, each by its name, and under them the median of the others.

    >>> names, cells = condense_ranks(range(40), np.repeat([[1.0], [9.0]], [39, 1], axis=0))
    >>> names[0], names[-1], cells[:, 0].tolist()[-1]
    ('rank 39', 'median of 39', 1.0)
    """
    if len(ranks) <= MOST_ROWS:
        return [f"rank {rank}" for rank in ranks], cells
    usual = _middle_of(cells)
    far = np.nansum(np.abs(cells - usual), axis=1)
    order = np.argsort(-far, kind="stable")
    is_unlike = far[order] >= _LEAST_FAR * far[order[0]]
    count = min(int(is_unlike.sum()), MOST_ROWS - 1)
    named = order[:count]
    rest = order[count:]
    names = [f"rank {ranks[row]}" for row in named.tolist()]
    return [*names, f"median of {len(rest)}"], np.vstack([cells[named], _middle_of(cells[rest])])


def _middle_of(cells: Floats) -> Floats:
    """Return the median of each column; of one without a value none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns that are empty
        return np.asarray(np.nanmedian(cells, axis=0))
