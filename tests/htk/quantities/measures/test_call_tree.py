"""Sums over call trees against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.nesting import nest_spans
from htk.base.columns.types import NONE
from htk.quantities.measures.call_tree import CallTree, Paths

# Properly nested calls of two threads: each (thread, name, number of callees) opens or closes.
CALLS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans(), st.integers(0, 5)), max_size=30
)


def built(calls: list[tuple[int, int, bool, int]]) -> tuple[CallTree, np.ndarray]:
    """A random forest: each event opens a call, after closing the open one or not."""
    rows: list[list[int]] = []
    open_: dict[int, list[int]] = {0: [], 1: []}
    clock = 0
    for thread, name, close, wait in calls:
        clock += wait
        if close and open_[thread]:
            rows[open_[thread].pop()][2] = clock
        rows.append([thread, clock, -1, name])
        open_[thread].append(len(rows) - 1)
        clock += 1
    for thread in (0, 1):
        for row in reversed(open_[thread]):
            clock += 1
            rows[row][2] = clock
    table = np.array(rows, np.int64).reshape(-1, 4)
    parent, depth = nest_spans(table[:, 0].astype(np.int32), table[:, 1], table[:, 2])
    tree = CallTree(
        parent.astype(np.int64), depth.astype(np.int64), table[:, 0], table[:, 1], table[:, 2]
    )
    return tree, table[:, 3]


def ancestors(tree: CallTree, row: int) -> list[int]:
    found = []
    while (row := int(tree.parent[row])) != NONE:
        found.append(row)
    return found


@given(CALLS)
def test_sums_against_plain_loops(calls: list[tuple[int, int, bool, int]]) -> None:
    tree, name = built(calls)
    rows = range(len(name))
    own = np.arange(1, len(name) + 1)
    above = [ancestors(tree, k) for k in rows]
    children = [[c for c in rows if tree.parent[c] == k] for k in rows]
    length = tree.length.tolist()
    assert tree.self_time.tolist() == [
        length[k] - sum(length[c] for c in children[k]) for k in rows
    ]
    assert tree.subtree(own).tolist() == [
        int(own[k]) + sum(int(own[c]) for c in rows if k in above[c]) for k in rows
    ]
    assert tree.outermost(name).tolist() == [
        all(name[a] != name[k] for a in above[k]) for k in rows
    ]
    chosen = name == 1
    assert tree.roots(chosen).tolist() == [
        next((a for a in [*reversed(above[k]), k] if chosen[a]), NONE) for k in rows
    ]


@given(CALLS)
def test_paths_against_plain_loops(calls: list[tuple[int, int, bool, int]]) -> None:
    tree, name = built(calls)
    paths = Paths.from_tree(tree, name)
    plain = [
        tuple(int(name[a]) for a in [*reversed(ancestors(tree, k)), k]) for k in range(len(name))
    ]
    same = {(int(p), q) for p, q in zip(paths.of_row, plain, strict=True)}
    assert len(same) == len(paths.name) == len(set(plain))
    for number, path in same:
        assert paths.text(number, "xyz") == " > ".join("xyz"[c] for c in path)
    count = np.bincount(paths.of_row, minlength=len(paths.name)).astype(np.int64)
    for number, path in same:
        inside = sum(p[: len(path)] == path for p in plain)
        assert paths.subtree(count)[number] == inside


def test_a_very_long_path_is_cut() -> None:
    deep = 5_000
    tree = CallTree(
        np.arange(-1, deep - 1),
        np.arange(deep),
        np.zeros(deep, np.int64),
        np.arange(deep),
        2 * deep - np.arange(deep),
    )
    paths = Paths.from_tree(tree, np.zeros(deep, np.int64))
    assert paths.text(deep - 1, ["f"], most=3) == "… > f > f > f"
    assert paths.subtree(np.ones(deep, np.int64))[0] == deep


def test_of_equal_calls_of_one_name_the_caller_is_outermost_whichever_row_is_first() -> None:
    """And of two that begin together, the first of which takes no time, both are."""
    parent = np.array([1, NONE, NONE, NONE, 3])
    start, end = np.array([5, 5, 7, 7, 8]), np.array([6, 6, 7, 9, 9])
    depth = np.array([1, 0, 0, 0, 1])
    tree = CallTree(parent, depth, np.zeros(5, np.int64), start, end)
    assert tree.outermost(np.zeros(5, np.int64)).tolist() == [False, True, True, True, False]
    assert tree.outermost(np.array([0, 1, 0, 1, 0])).tolist() == [True] * 5
