"""Two forests of named nodes, matched node by node: by name and order, callers first.

Callees of a matched pair are aligned by a longest common subsequence of their names, and among
those by one with most subtrees that are alike in full. What is alike in full is matched at once,
so that work grows with what differs; where lists are so long that it would grow too far they are
aligned block by block, which is counted.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none, take_or

_CELLS = 1 << 24  # of a table that is kept; a longer pair of lists is cut in two
_MOST_CELLS = 1 << 29  # of all tables of two forests
_LEAST_CELLS = 64  # for each node, whatever its share
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(29))


@dataclass(frozen=True)
class Forest:
    """Nodes in the order of calls: a caller stands before its callees, siblings by time.

    `name` numbers names, the same in both forests; a root has the parent NONE and the depth 0.
    """

    name: Ints
    parent: Ints
    depth: Ints

    @cached_property
    def size(self) -> Ints:
        """Nodes of each subtree: rows `row` to `row + size` are those of it."""
        size = np.ones(len(self.parent), np.int64)
        for rows in reversed(self._levels[1:]):
            np.add.at(size, self.parent[rows], size[rows])
        return size

    @cached_property
    def _levels(self) -> list[Ints]:
        order = order_by(self.depth)
        ends = np.cumsum(np.bincount(self.depth, minlength=1))
        return np.split(order, ends[:-1])

    @cached_property
    def _by_parent(self) -> tuple[Ints, Ints]:
        """Rows by parent in order, and where those of each parent begin; roots come first."""
        order = order_by(self.parent)
        count = np.bincount(self.parent + 1, minlength=len(self.parent) + 1)
        return order, np.append(0, np.cumsum(count))

    def below(self, row: int) -> Ints:
        """Return the direct callees of a row; of NONE, the roots."""
        order, begin = self._by_parent
        return order[begin[row + 1] : begin[row + 2]]

    @cached_property
    def shape(self) -> Ints:
        """A number of each subtree: equal where names and structure are, hardly ever elsewhere."""
        order, begin = self._by_parent
        position = np.empty(len(order), np.uint64)
        position[order] = np.arange(len(order)) - np.repeat(begin[:-1], np.diff(begin))
        shape = _mix_numbers(self.name.astype(np.uint64))
        for rows in reversed(self._levels[1:]):
            np.add.at(
                shape, self.parent[rows], _mix_numbers(shape[rows] + position[rows] * _MIX[0])
            )
        return shape.view(np.int64)

    def matched_before(self, partner: Ints) -> Ints:
        """Return how many earlier siblings of each row have a partner."""
        order, begin = self._by_parent
        counted = np.append(0, np.cumsum(partner[order] != NONE))
        before = np.empty(len(order), np.int64)
        before[order] = counted[:-1] - np.repeat(counted[begin[:-1]], np.diff(begin))
        return before


@dataclass(frozen=True)
class Matches:
    """The partner of each node in the other forest, or NONE."""

    of_base: Ints
    of_new: Ints
    blocks: int  # into which lists that are too long were cut; 0: none was


@dataclass(frozen=True)
class Sites:
    """Places that differ: neighbouring nodes without a partner below a matched pair.

    Rows are the outermost nodes without a partner, in order; their callees are below them.
    """

    caller: Ints  # base node of the pair above each site, or NONE
    base_row: Ints
    base_site: Ints
    new_row: Ints
    new_site: Ints


def find_difference_sites(base: Forest, new: Forest, matches: Matches) -> Sites:
    """Return where two matched forests differ."""
    rows = []
    keys = []
    for forest, partner, base_of in (
        (base, matches.of_base, np.arange(len(base.name))),
        (new, matches.of_new, matches.of_new),
    ):
        with_partner = np.append(partner != NONE, True)  # the last one for no caller
        row = np.flatnonzero((partner == NONE) & with_partner[forest.parent])
        caller = take_or(base_of, forest.parent[row])
        rows.append(row)
        keys.append(np.column_stack([caller, forest.matched_before(partner)[row]]))
    groups = Groups.by_keys(np.concatenate(keys))
    base_site, new_site = np.split(groups.group_ids, [len(rows[0])])
    return Sites(groups.keys[:, 0], rows[0], base_site, rows[1], new_site)


def match_forests(base: Forest, new: Forest) -> Matches:
    """Return which nodes of two forests belong together."""
    of_base = fill_none(len(base.name))
    of_new = fill_none(len(new.name))
    nodes = max(len(base.name) + len(new.name), 1)
    blocks = 0
    waiting = [(NONE, NONE)]
    while waiting:  # a matched pair each that differs below
        above, partner = waiting.pop()
        ours = base.below(above)
        theirs = new.below(partner)
        share = (len(ours) + len(theirs)) / nodes
        limit = int(_MOST_CELLS * share) + _LEAST_CELLS * (len(ours) + len(theirs))
        i, j, cut = align_lists(
            np.column_stack([base.name[ours], base.shape[ours]]),
            np.column_stack([new.name[theirs], new.shape[theirs]]),
            limit,
        )
        blocks += cut
        for row, other in zip(ours[i].tolist(), theirs[j].tolist(), strict=True):
            end = row + int(base.size[row])
            other_end = other + int(new.size[other])
            if _is_alike(base, new, (row, end), (other, other_end)):
                of_base[row:end] = np.arange(other, other_end)
                of_new[other:other_end] = np.arange(row, end)
            else:
                of_base[row] = other
                of_new[other] = row
                waiting.append((row, other))
    return Matches(of_base, of_new, blocks)


def _is_alike(base: Forest, new: Forest, rows: tuple[int, int], others: tuple[int, int]) -> bool:
    (a, a_end) = rows
    (b, b_end) = others
    if base.shape[a] != new.shape[b] or a_end - a != b_end - b:
        return False
    same_names = np.array_equal(base.name[a:a_end], new.name[b:b_end])
    depth = base.depth[a:a_end] - base.depth[a]
    other_depth = new.depth[b:b_end] - new.depth[b]
    return same_names and np.array_equal(depth, other_depth)


def align_lists(a: Ints, b: Ints, limit: int) -> tuple[Ints, Ints, int]:
    """Return positions of two lists of (name, shape) that belong together, and blocks used."""
    if len(a) == len(b) and (a[:, 0] == b[:, 0]).all():
        both = np.arange(len(a))
        return both, both, 0
    short = min(len(a), len(b))
    alike = (a[:short] == b[:short]).all(axis=1)
    head = int(np.argmin(np.append(alike, False)))
    ends_alike = (a[len(a) - short + head :] == b[len(b) - short + head :]).all(axis=1)[::-1]
    tail = int(np.argmin(np.append(ends_alike, False)))
    i = head + np.flatnonzero(np.isin(a[head : len(a) - tail, 0], b[head : len(b) - tail, 0]))
    j = head + np.flatnonzero(np.isin(b[head : len(b) - tail, 0], a[head : len(a) - tail, 0]))
    blocks = -(-len(i) * len(j) // max(limit, 1)) if len(i) * len(j) > limit else 1
    cuts = np.linspace(0, 1, blocks + 1)[1:-1]
    pairs = [
        (rows[x], others[y])
        for rows, others in zip(
            np.split(i, (cuts * len(i)).astype(int)),
            np.split(j, (cuts * len(j)).astype(int)),
            strict=True,
        )
        for x, y in [_find_subsequence(a[rows], b[others])]
    ]
    middle_i, middle_j = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return (
        np.concatenate([np.arange(head), middle_i, np.arange(len(a) - tail, len(a))]),
        np.concatenate([np.arange(head), middle_j, np.arange(len(b) - tail, len(b))]),
        blocks if blocks > 1 else 0,
    )


def _find_subsequence(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Return the best common subsequence, in linear memory (after Hirschberg)."""
    if len(a) * len(b) <= _CELLS or len(a) < 2:
        return _trace_subsequence(a, b)
    half = len(a) // 2
    weight = min(len(a), len(b)) + 1
    before = _score_all(a[:half], b, weight)
    after = _score_all(a[: half - 1 : -1], b[::-1], weight)[::-1]
    cut = int(np.argmax(before + after))
    i, j = _find_subsequence(a[:half], b[:cut])
    k, m = _find_subsequence(a[half:], b[cut:])
    return np.append(i, half + k), np.append(j, cut + m)


def _score_row(score: Ints, item: Ints, b: Ints, weight: int) -> tuple[Ints, Ints]:
    """Return the next row of scores, and what a match at each place would score."""
    gain = np.where(b[:, 0] == item[0], weight + (b[:, 1] == item[1]), -1)
    matched = np.where(gain > 0, score[:-1] + gain, -1)
    return np.maximum.accumulate(np.maximum(score, np.append(0, matched))), matched


def _score_all(a: Ints, b: Ints, weight: int) -> Ints:
    score = np.zeros(len(b) + 1, np.int64)
    for item in a:  # a row of the table each
        score = _score_row(score, item, b, weight)[0]
    return score


def _trace_subsequence(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Return the best common subsequence, by the whole table of scores."""
    weight = min(len(a), len(b)) + 1
    score = np.zeros(len(b) + 1, np.int64)
    from_left = np.zeros((len(a), len(b)), bool)
    from_match = np.zeros((len(a), len(b)), bool)
    for k, item in enumerate(a):  # a row of the table each
        above = score
        (score, matched) = _score_row(score, item, b, weight)
        from_match[k] = (matched == score[1:]) & (matched > above[1:])
        from_left[k] = (score[1:] > above[1:]) & ~from_match[k]
    i = len(a) - 1
    j = len(b) - 1
    pairs: list[tuple[int, int]] = []
    while i >= 0 and j >= 0:
        if from_match[i, j]:
            pairs.append((i, j))
            i = i - 1
            j = j - 1
        elif from_left[i, j]:
            j -= 1
        else:
            i -= 1
    both = np.array(pairs[::-1], np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _mix_numbers(values: "np.typing.NDArray[np.uint64]") -> "np.typing.NDArray[np.uint64]":
    """Return well-spread numbers of numbers."""
    values = (values + _MIX[0]) * _MIX[1]
    return np.asarray(values ^ (values >> _MIX[2]))
