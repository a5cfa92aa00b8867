"""What the analyses of operators share: sums over the call tree, and keys that survive nesting."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    match_texts,
    read_booleans,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads, running_max
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+\b")


@dataclass(frozen=True)
class CallTree:
    """Calls, each with its caller (NONE: none) and depth."""

    parent: Ints
    depth: Ints
    thread: Ints  # number of its (rank, process, thread)
    start: Ints
    end: Ints

    @classmethod
    def from_calls(cls, calls: pa.Table, links: pa.Table) -> "CallTree":
        """Return the tree of a table of calls and its links (parent_row, depth, thread_index)."""
        who = np.stack(
            [
                read_numbers(calls["rank"], NONE),
                read_numbers(calls["cycle"], NONE),
                read_numbers(links["thread_index"], NONE),
            ],
            axis=1,
        )
        return cls(
            read_numbers(links["parent_row"], NONE),
            read_numbers(links["depth"]).astype(np.int64),
            Groups.by_keys(who).group_ids,
            *read_times(calls),
        )

    @property
    def length(self) -> Ints:
        return self.end - self.start

    @cached_property
    def self_time(self) -> Ints:
        """Its time less its callees'."""
        return self.length - self.into_parents(self.length)

    @cached_property
    def levels(self) -> list[Ints]:
        """Rows of each depth, callers first."""
        order = order_by(self.depth)
        ends = np.cumsum(np.bincount(self.depth)) if len(order) else np.empty(0, np.int64)
        return np.split(order, ends[:-1]) if len(ends) else []

    def into_parents(self, values: Ints) -> Ints:
        """Return the sum over the direct callees of each call."""
        inner = self.parent != NONE
        return _sum_by_row(self.parent[inner], values[inner], len(self.parent))

    def subtree(self, own: Ints) -> Ints:
        """Return the sum over each call and all that it calls, at any depth."""
        total = own.astype(np.int64, copy=True)
        for rows in reversed(self.levels[1:]):
            np.add.at(total, self.parent[rows], total[rows])
        return total

    def outermost(self, key: Ints) -> Mask:
        """Calls that lie in no other call of the same key: their totals may be added up."""
        size = self.subtree(np.ones(len(self.parent), np.int64))
        position = self._find_positions(size)
        order = order_by(key, position)
        reach = running_max(mark_heads(key[order]), (position + size)[order])
        outermost = mark_heads(key[order])
        outermost[1:] |= reach[:-1] <= position[order][1:]
        of_call = np.empty(len(order), bool)
        of_call[order] = outermost
        return of_call

    def _find_positions(self, size: Ints) -> Ints:
        """Return a position for each call, what it calls right behind it; `size`: of both."""
        position = np.zeros(len(self.parent) + 1, np.int64)
        position[NONE] = -1  # of no caller
        for rows in self.levels:
            rows = rows[order_by(self.parent[rows])]
            before = np.cumsum(size[rows]) - size[rows]
            first = np.maximum.accumulate(np.where(mark_heads(self.parent[rows]), before, 0))
            position[rows] = position[self.parent[rows]] + 1 + before - first
        return position[:-1]

    def roots(self, chosen: Mask) -> Ints:
        """Return the outermost chosen call round each call (itself too), or NONE."""
        root = fill_none(len(self.parent) + 1)  # the last one for no caller
        for rows in self.levels:
            above = root[self.parent[rows]]
            root[rows] = np.where(above != NONE, above, np.where(chosen[rows], rows, NONE))
        return root[:-1]


def _sum_by_row(where: Ints, values: Ints, length: int) -> Ints:
    total = np.zeros(length, np.int64)
    np.add.at(total, where, values)
    return total


@dataclass(frozen=True)
class Paths:
    """Chains of names from the outermost call inward, numbered; callers come first."""

    of_row: Ints  # path of each call
    above: Ints  # path less its last name, or NONE
    name: Ints  # code of the last name
    depth: Ints

    @classmethod
    def from_tree(cls, tree: CallTree, name: Ints) -> "Paths":
        of_row = fill_none(len(name) + 1)  # the last one for no caller
        above: list[Ints] = []
        names: list[Ints] = []
        depths: list[Ints] = []
        count = 0
        for depth, rows in enumerate(tree.levels):
            groups = Groups.by_keys(np.stack([of_row[tree.parent[rows]], name[rows]], axis=1))
            of_row[rows] = groups.group_ids + count
            above.append(groups.keys[:, 0])
            names.append(groups.keys[:, 1])
            depths.append(np.full(len(groups), depth))
            count += len(groups)
        return cls(of_row[:-1], join_parts(above), join_parts(names), join_parts(depths))

    def subtree(self, own: Ints) -> Ints:
        """Return the sum over each path and all that begin with it."""
        total = own.astype(np.int64, copy=True)
        ends = np.searchsorted(self.depth, np.arange(int(self.depth.max(initial=-1)) + 2))
        for low, high in reversed(list(zip(ends[1:-1].tolist(), ends[2:].tolist(), strict=True))):
            np.add.at(total, self.above[low:high], total[low:high])
        return total

    def text(self, path: int, labels: Sequence[str], most: int = 24) -> str:
        """Return the names of a path, outermost first; of a very long one the last."""
        parts: list[str] = []
        while path != NONE and len(parts) < most:
            parts.append(str(labels[int(self.name[path])]))
            path = int(self.above[path])
        if path != NONE:
            parts.append("…")
        return " > ".join(reversed(parts))


def join_parts(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64)


@dataclass(frozen=True)
class DeviceTimes:
    """GPU time of each operator, by what it launched itself. Sums of durations, not unions."""

    own: Ints
    kernels: Ints
    backward: Ints  # launched by backward operators whose forward one it is
    row: Ints  # operator of each activity, or NONE
    length: Ints  # of each activity

    @classmethod
    def from_kernels(
        cls, operators: int, kernels: pa.Table, kernel_links: pa.Table, op_links: pa.Table
    ) -> "DeviceTimes":
        row = read_numbers(kernel_links["op_row"], NONE)
        length = read_lengths(kernels)
        linked = row != NONE
        forward = take_or(read_numbers(op_links["forward_row"], NONE), row)
        behind = forward != NONE
        return cls(
            _sum_by_row(row[linked], length[linked], operators),
            np.bincount(row[linked], minlength=operators).astype(np.int64),
            _sum_by_row(forward[behind], length[behind], operators),
            row,
            length,
        )

    @property
    def total(self) -> int:
        return int(self.length.sum())


def without_operator(
    kernel_links: pa.Table, times: DeviceTimes, selected: Mask
) -> Iterator[tuple[str, Mask]]:
    """Yield why GPU activities belong to no operator of the selection, and which they are."""
    lost = times.row == NONE
    carried = read_booleans(kernel_links["carry_in"])
    launched = read_numbers(kernel_links["launch_row"], NONE) != NONE
    graph = match_texts(kernel_links["launch_by"], "graph".__eq__)
    for why, rows in (
        ("(launched before the recording)", lost & carried),
        ("(graph launched outside operators)", lost & launched & graph),
        ("(launched outside operators)", lost & launched & ~graph),
        ("(not linked)", lost & ~launched & ~carried),
        ("(operator outside the selection)", ~lost & ~take_or(selected, times.row, True)),
    ):
        if rows.any():
            yield why, rows


def labels_of(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Return the codes of a column of texts, null being '' at the end, and the texts."""
    codes, dictionary = codes_of(column)
    labels = [*dictionary.to_pylist(), ""]
    return np.where(codes < 0, len(labels) - 1, codes).astype(np.int64), labels


def functions_of(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Return codes of Python functions and their names, without addresses of objects in them.

    `mul_ of Parameter object at 0x7f71fc3b5540` is another text in each process, so that neither
    ranks nor runs could be compared.
    """
    codes, labels = labels_of(column)
    bare = [_ADDRESS.sub("", label) for label in labels]
    names = sorted(set(bare))
    code_of = {name: code for code, name in enumerate(names)}
    return np.array([code_of[name] for name in bare], np.int64)[codes], names
