"""Parents and depths of calls, against every pair compared."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk.base.columns import nesting
from htk.base.core.engine import load_core

spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(-2, 8)), max_size=40)


def compiled(threads, starts, ends):
    if load_core() is None:
        pytest.skip("the compiled core is not built here")
    parents, depths = load_core().nest(threads, starts, ends)
    return np.frombuffer(parents, np.int32), np.frombuffer(depths, np.int32)


@pytest.fixture(scope="module", params=[compiled, nesting.nest_pure], ids=["compiled", "pure"])
def nest(request):
    def columns(rows):
        threads, starts, lengths = zip(*rows, strict=True) if rows else ((), (), ())
        starts = np.array(starts, np.int64)
        ends = starts + np.array(lengths, np.int64)
        parents, depths = request.param(np.array(threads, np.int32), starts, ends)
        return parents.tolist(), depths.tolist()

    return columns


def by_all_pairs(rows):
    """The last span, in order of start and row, that is open when this one begins."""

    def place(i):
        return rows[i][1], i

    parents = []
    for i, (thread, *_) in enumerate(rows):
        open_then = [
            j
            for j, (other, began, length) in enumerate(rows)
            if other == thread and place(j) < place(i) and encloses(began, length, rows[i])
        ]
        parents.append(max(open_then, key=place, default=-1))
    return parents, [depth(parents, i) for i in range(len(rows))]


def encloses(began, length, inner):
    _thread, start, inner_length = inner
    at_its_end = inner_length <= 0 and length > 0 and began + length == start
    return began + length > start or at_its_end


def depth(parents, i):
    return 0 if parents[i] < 0 else 1 + depth(parents, parents[i])


@settings(max_examples=5 * settings.default.max_examples)
@given(rows=spans)
def test_as_all_pairs_say(nest, rows):
    assert nest(rows) == by_all_pairs(rows)


def test_calls_within_calls(nest):
    #       thread, start, length
    rows = [(1, 0, 10), (1, 1, 3), (1, 4, 5), (1, 5, 2), (2, 5, 1), (1, 10, 1)]
    assert nest(rows) == ([-1, 0, 0, 2, -1, -1], [0, 1, 1, 2, 0, 0])


def test_rows_in_any_order(nest):
    assert nest([(1, 5, 2), (1, 4, 5), (1, 0, 10)]) == ([1, 2, -1], [2, 1, 0])


def test_an_instant_at_the_end_of_a_call_is_of_the_innermost_that_ends_there(nest):
    """As HTA asserts; in whole microseconds as_strided begins where the transpose round it ends."""
    assert nest([(1, 0, 5), (1, 0, 0), (1, 4, 0), (1, 5, 0)]) == ([-1, 0, 0, 0], [0, 1, 1, 1])
    rows = [(1, 0, 9), (1, 2, 3), (1, 3, 2), (1, 5, 2), (1, 5, 0), (1, 5, 0)]
    assert nest(rows)[0] == [-1, 0, 1, 0, 3, 3], "what begins there and lasts comes first"
    assert nest([*rows[:3], *rows[4:]])[0] == [-1, 0, 1, 2, 2], "and an instant encloses nothing"


def test_of_spans_that_begin_together_the_earlier_row_is_the_parent(nest):
    assert nest([(1, 0, 5), (1, 0, 5)]) == ([-1, 0], [0, 1])
    assert nest([(1, 0, 5), (1, 0, 9), (1, 6, 1)]) == ([-1, 0, 1], [0, 1, 2])


def nested_parents(rows, ids=None):
    threads, starts, lengths = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    ids = None if ids is None else np.array(ids)
    return nesting.Nested(threads, starts, starts + lengths, ids=ids).parent.tolist()


def test_of_spans_that_begin_together_the_longer_is_the_parent():
    assert nested_parents([(1, 0, 5), (1, 0, 9)]) == [1, -1]


def test_of_spans_that_begin_together_the_one_with_the_lower_id_came_first():
    """As `item` follows `as_strided` in one microsecond, and does not call it."""
    rows = [(1, 0, 9), (1, 4, 1), (1, 4, 0), (1, 4, 1)]
    assert nested_parents(rows, ids=[1, 3, 2, 4]) == [-1, 0, 0, 1]
    assert nested_parents(rows, ids=[1, 4, 2, 3]) == [-1, 3, 0, 0], "whichever the file has first"
    assert nested_parents(rows) == [-1, 0, 3, 1]


def test_ids_that_do_not_grow_with_time_tell_nothing():
    rows = [(1, 0, 9), (1, 4, 1), (1, 4, 0), (2, 0, 3), (2, 1, 1), (2, 1, 0)]
    assert nested_parents(rows, ids=[7, 3, 2, 1, 6, 5])[:3] == [-1, 0, 1]
    assert nested_parents(rows, ids=[7, 3, 2, 1, 6, 5])[3:] == [-1, 3, 3], "another thread's do"
    assert nested_parents(rows, ids=[1, 3, -1, 4, 6, 5])[:3] == [-1, 0, 1], "one has none"


def test_a_child_may_end_after_its_parent(nest):
    assert nest([(1, 0, 10), (1, 8, 3), (1, 10, 1)]) == ([-1, 0, 1], [0, 1, 2])


def test_a_span_without_length_encloses_nothing(nest):
    assert nest([(1, 0, 5), (1, 3, 0), (1, 3, 0)]) == ([-1, 0, 0], [0, 1, 1])


def test_nothing(nest):
    assert nest([]) == ([], [])


def test_the_engine_in_use_nests(monkeypatch):
    columns = np.zeros(2, np.int32), np.array([0, 1]), np.array([5, 2])
    for engine in ("pure", "compiled") if load_core() else ("pure",):
        monkeypatch.setenv("HTK_ENGINE", engine)
        parents, depths = nesting.nest_spans(*columns)
        assert parents.tolist() == [-1, 0]
        assert depths.tolist() == [0, 1]


def test_columns_of_unlike_length_are_refused():
    if load_core() is None:
        pytest.skip("the compiled core is not built here")
    with pytest.raises(ValueError, match="equally long"):
        load_core().nest(np.zeros(2, np.int32), np.zeros(2, np.int64), np.zeros(3, np.int64))


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_spans_of_one_time_are_no_chain_of_a_million(engine, monkeypatch):
    monkeypatch.setattr(nesting, "choose_engine", lambda: engine)
    times = np.zeros(10_000, np.int64)
    parents, depths = nesting.nest_spans(times.astype(np.int32), times, times + 5)
    assert parents[:3].tolist() == [-1, 0, 1]
    assert np.flatnonzero(parents == -1).tolist() == [0, 4096, 8192]
    assert (depths.max(), depths[4096], depths[4097], depths[-1]) == (4095, 0, 1, 1807)
