"""Where the call trees of two recordings differ: operators that stand in one only, others in
their place, and the GPU time and kernels of each place on both sides."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints
from htk.base.core.analysis import with_coverage
from htk.base.core.humanize import shorten_text
from htk.base.core.label import Label
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.quantities.measures.call_tree import CallTree, Paths
from htk.traces.compare.call_forest import OUTSIDE, THREAD, CallForest, build_forests
from htk.traces.compare.items import Tables
from htk.traces.compare.tree_alignment import (
    Forest,
    Matches,
    Sites,
    find_difference_sites,
    match_forests,
)

_NAMES, _LETTERS = 5, 80  # named of a list, and of a name

RETURNS = table(
    change=(TEXT, "only in base, only in new, replaced, other kernels, or same kernels."),
    path=(TEXT, "Modules and operators round the place: the lowest caller that both have."),
    base_ops=(TEXT, "Outermost operators there that the new tree lacks, in order."),
    new_ops=(TEXT, "Those that stand there in the new tree alone."),
    count=(INT64, "Places of the step that differ alike."),
    base_ns=(
        FLOAT64,
        "GPU time launched there, at any depth; null without GPU work recorded.",
    ),
    new_ns=(FLOAT64, "The same, in new."),
    diff_ns=(FLOAT64, "New less base."),
    base_kernel_names=(TEXT, "GPU activities behind it in base, the longest first."),
    new_kernel_names=(TEXT, "The same, in new."),
)
DIFF_TREE = Label("diff_tree", "Where do the call trees of two recordings differ?")


class _Place(NamedTuple):
    """What is told apart: rows of one key are one row of the answer."""

    change: str
    path: str
    base_ops: tuple[str, ...]
    new_ops: tuple[str, ...]


class _Cost:
    """GPU activities of places that differ alike."""

    def __init__(self) -> None:
        self.count = 0
        self.ns: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self.calls: tuple[Counter[str], Counter[str]] = Counter(), Counter()

    def add(self, side: int, forest: CallForest, first: Ints, last: Ints) -> None:
        """Add activities `first` to `last` of a side."""
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            for row in range(begin, end):  # each activity stands in one place
                self.ns[side][forest.kernel_name[row]] += int(forest.kernel_ns[row])
                self.calls[side][forest.kernel_name[row]] += 1

    def total(self, side: int) -> int:
        return sum(self.ns[side].values())

    def names(self, side: int) -> str:
        kept = [
            _spell_repeats(shorten_text(name, _LETTERS), self.calls[side][name])
            for name, _ in self.ns[side].most_common(_NAMES)
        ]
        return _join_some(kept, len(self.ns[side]) - len(kept))


def compare_trees(base: Tables, new: Tables, n: int = 20) -> pa.Table:
    """Return the places that differ, those that changed GPU time most first; n rows (0: all)."""
    sides = CallForest.from_tables(base), CallForest.from_tables(new)
    trees = build_forests(*sides)
    matches = match_forests(*trees)
    costs: dict[_Place, _Cost] = {}
    _add_sites(costs, sides, trees, find_difference_sites(*trees, matches))
    _add_matched(costs, sides, trees, matches)
    _add_outside(costs, sides)
    rows = sorted(
        costs.items(),
        key=lambda row: (
            -abs(row[1].total(1) - row[1].total(0)),
            -row[1].total(0) - row[1].total(1),
            -row[1].count * (len(row[0].base_ops) + len(row[0].new_ops)),
        ),
    )
    matched = int((matches.of_base != NONE).sum())
    return with_coverage(
        _build_site_table(rows[: n or None], (sides[0].has_gpu, sides[1].has_gpu)),
        **_collect_facts(sides, matched),
        places=len(rows),
        **({"aligned_in_blocks": matches.blocks} if matches.blocks else {}),
    )


def _collect_facts(sides: tuple[CallForest, CallForest], matched: int) -> dict[str, object]:
    facts: dict[str, object] = {"matched_nodes": matched}
    for name, side in zip(("base", "new"), sides, strict=True):
        facts |= {f"{name}_nodes": len(side.name), f"{name}_rank": side.rank}
        facts[f"{name}_step"] = "all" if side.step is None else str(side.step)
    return facts


def _add_sites(
    costs: dict[_Place, _Cost],
    sides: tuple[CallForest, CallForest],
    trees: tuple[Forest, Forest],
    different: Sites,
) -> None:
    """Add places where operators stand in one tree only."""
    if not len(different.caller):
        return
    path_of, path_text = _spell_paths(sides[0], trees[0])
    listed: list[list[tuple[int, ...]]] = []
    for rows, site_of in (
        (different.base_row, different.base_site),
        (different.new_row, different.new_site),
    ):
        order = order_by(site_of)
        cuts = np.searchsorted(site_of[order], np.arange(1, len(different.caller)))
        listed.append([tuple(part.tolist()) for part in np.split(rows[order], cuts)])
    for caller, base_rows, new_rows in zip(different.caller.tolist(), *listed, strict=True):
        path = path_text(int(path_of[caller])) if caller != NONE else ""
        change = "replaced" if base_rows and new_rows else "only in base"
        ops = [
            tuple(side.names[side.name[row]] for row in rows)
            for side, rows in zip(sides, (base_rows, new_rows), strict=True)
        ]
        site = _Place(change if base_rows else "only in new", path, ops[0], ops[1])
        cost = costs.setdefault(site, _Cost())
        cost.count += 1
        for k, rows in enumerate((base_rows, new_rows)):
            row = np.array(rows, np.int64)
            cost.add(k, sides[k], *sides[k].kernels(row, row + trees[k].size[row]))


def _add_matched(
    costs: dict[_Place, _Cost],
    sides: tuple[CallForest, CallForest],
    trees: tuple[Forest, Forest],
    matches: Matches,
) -> None:
    """Add operators that both trees have and that launch work themselves."""
    path_of, path_text = _spell_paths(sides[0], trees[0])
    both = np.flatnonzero(matches.of_base != NONE)
    nodes = both, matches.of_base[both]
    spans = [side.kernels(row, row + 1) for side, row in zip(sides, nodes, strict=True)]
    launches = (spans[0][1] > spans[0][0]) | (spans[1][1] > spans[1][0])
    order = np.flatnonzero(launches)[order_by(path_of[both[launches]])]
    cuts = np.flatnonzero(np.diff(path_of[both[order]])) + 1
    for rows in np.split(order, cuts) if len(order) else ():  # a path each
        cost = _Cost()
        cost.count = len(rows)
        for k, (first, last) in enumerate(spans):
            cost.add(k, sides[k], first[rows], last[rows])
        same = cost.calls[0] == cost.calls[1]
        change = "same kernels" if same else "other kernels"
        costs[_Place(change, path_text(int(path_of[both[rows[0]]])), (), ())] = cost


def _add_outside(costs: dict[_Place, _Cost], sides: tuple[CallForest, CallForest]) -> None:
    """Add GPU activities of the step that no operator launched."""
    cost = _Cost()
    for k, side in enumerate(sides):
        cost.add(k, side, np.array([0]), np.searchsorted(side.kernel_node, [0]))
    if any(cost.calls):
        cost.count = 1
        same = cost.calls[0] == cost.calls[1]
        change = "same kernels" if same else "other kernels"
        costs[_Place(change, OUTSIDE, (), ())] = cost


def _spell_paths(side: CallForest, tree: Forest) -> "tuple[Ints, _Texts]":
    nothing = np.zeros(len(tree.name), np.int64)
    calls = CallTree(tree.parent, tree.depth, nothing, nothing, nothing)
    paths = Paths.from_tree(calls, side.name)
    return paths.of_row, _Texts(paths, side.names)


class _Texts:
    """Paths in words, each made once."""

    def __init__(self, paths: Paths, names: Sequence[str]) -> None:
        self._paths = paths
        self._names = names
        self._made: dict[int, str] = {}

    def __call__(self, path: int) -> str:
        if path not in self._made:
            words = self._paths.text(path, self._names)
            self._made[path] = words.removeprefix(f"{THREAD} > ")
        return self._made[path]


def _build_site_table(rows: Sequence[tuple[_Place, _Cost]], has_gpu: tuple[bool, bool]) -> pa.Table:
    return pa.Table.from_pylist([_build_site_row(*row, *has_gpu) for row in rows], schema=RETURNS)


def _build_site_row(site: _Place, cost: _Cost, had_gpu: bool, has_gpu: bool) -> dict[str, object]:
    was = cost.total(0)
    now = cost.total(1)
    return {
        "change": site.change,
        "path": site.path or None,
        "base_ops": _list_runs(site.base_ops) or None,
        "new_ops": _list_runs(site.new_ops) or None,
        "count": cost.count,
        "base_ns": was if had_gpu else None,
        "new_ns": now if has_gpu else None,
        "diff_ns": now - was if had_gpu and has_gpu else None,
        "base_kernel_names": cost.names(0) or None,
        "new_kernel_names": cost.names(1) or None,
    }


def _list_runs(names: Sequence[str]) -> str:
    """Return names in order, runs of one as `name ×3`."""
    runs = [(name, len(list(alike))) for name, alike in groupby(names)]
    kept = [_spell_repeats(shorten_text(name, _LETTERS), times) for name, times in runs[:_NAMES]]
    return _join_some(kept, len(runs) - len(kept))


def _spell_repeats(name: str, times: int) -> str:
    return f"{name} ×{times}" if times > 1 else name


def _join_some(kept: Sequence[str], others: int) -> str:
    return "; ".join([*kept, *([f"{others} more"] if others > 0 else [])])
