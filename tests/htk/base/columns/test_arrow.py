import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    decode_texts,
    map_texts,
    mark_valid,
    match_texts,
    number_or_null,
    rank_alphabetically,
    read_keys,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.schema import INT32, TEXT


def test_text_keeps_only_what_occurs_and_nulls() -> None:
    column = decode_texts(np.array([2, -1, 2, 0]), pa.array(["a", "b", "c"]))
    assert column.to_pylist() == ["c", None, "c", "a"]
    assert column.dictionary.to_pylist() == ["a", "c"]
    assert column.type == TEXT


def test_text_of_nothing() -> None:
    assert decode_texts(np.array([-1, -1]), pa.array([], pa.string())).to_pylist() == [None, None]
    assert decode_texts(np.array([], np.int32), pa.array(["a"])).to_pylist() == []


def test_numbers_go_in_and_come_back() -> None:
    column = build_numbers(np.array([1, 2, 3]), pa.int64(), np.array([True, False, True]))
    assert column.to_pylist() == [1, None, 3]
    assert read_numbers(column, -1).tolist() == [1, -1, 3]
    assert mark_valid(column).tolist() == [True, False, True]


def test_codes_of_chunks_with_different_dictionaries() -> None:
    column = pa.chunked_array([build_texts(["x", "y"]), build_texts(["y", None, "z"])])
    codes, dictionary = codes_of(column)
    named = [*dictionary.to_pylist(), None]
    assert [named[c] for c in codes] == ["x", "y", "y", None, "z"]


def test_codes_of_nothing() -> None:
    codes, dictionary = codes_of(pa.chunked_array([], TEXT))
    assert len(codes) == len(dictionary) == 0


def test_a_question_is_asked_once_for_each_text() -> None:
    asked: list[str] = []
    column = build_texts(["a", "b", "a", None])
    assert match_texts(column, lambda v: bool(asked.append(v)) or v == "a").tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert asked == ["a", "b"]
    assert map_texts(column, {"a": "A"}.get).to_pylist() == ["A", None, "A", None]


def test_numbers_of_a_slice_and_of_chunks() -> None:
    column = build_numbers(np.arange(5), pa.int64())
    assert read_numbers(column.slice(2, 2)).tolist() == [2, 3]
    assert read_numbers(pa.chunked_array([column, column.slice(3)])).tolist() == [
        0,
        1,
        2,
        3,
        4,
        3,
        4,
    ]


def test_rows_of_slices_that_hold_nulls() -> None:
    rows = [None if k % 3 == 1 else k for k in range(40)]
    for kind, null in ((pa.int64(), -1), (pa.int32(), 7), (pa.float64(), 0.5), (pa.int16(), 2)):
        whole = pa.array(rows, kind)
        for first, length in ((0, 40), (3, 30), (9, 8), (16, 1), (1, 1), (40, 0)):
            expected = rows[first : first + length]
            for column in (
                whole.slice(first, length),
                pa.chunked_array([whole.slice(first, length)]),
            ):
                assert mark_valid(column).tolist() == [v is not None for v in expected]
                read = read_numbers(column, null)
                assert read.tolist() == [null if v is None else v for v in expected]
                assert read.dtype == kind.to_pandas_dtype()
    assert mark_valid(pa.nulls(3)).tolist() == [False] * 3
    names = pa.array(["a", None, "b", None, "a"]).dictionary_encode().slice(1, 3)
    assert codes_of(names)[0].tolist() == [-1, 1, -1]


def test_places_in_alphabetical_order_do_not_depend_on_what_was_read_first() -> None:
    read = pa.array(["b", None, "c", "a", "b"]).dictionary_encode()
    codes = np.array([0, -1, 1, 2, 0])
    assert read.indices.fill_null(-1).to_pylist() == codes.tolist()
    assert rank_alphabetically(codes, read.dictionary).tolist() == [1, -1, 2, 0, 1]


def test_times_and_lengths_of_rows() -> None:
    table = pa.table({"start_ns": [5, 10, 30], "end_ns": [7, 20, 60]})
    start, end = read_times(table)
    assert start.tolist() == [5, 10, 30]
    assert end.tolist() == [7, 20, 60]
    assert read_lengths(table).tolist() == [2, 10, 30]


def test_times_of_some_rows() -> None:
    table = pa.table({"start_ns": [5, 10, 30], "end_ns": [7, 20, 60]})
    start, end = read_times(table, np.array([2, 0]))
    assert start.tolist() == [30, 5]
    assert end.tolist() == [60, 7]


def test_numbers_that_are_none_below_zero() -> None:
    column = number_or_null(np.array([3, -1, 0]), INT32)
    assert column.type == pa.int32()
    assert column.to_pylist() == [3, None, 0]


def test_keys_of_rows() -> None:
    keys = read_keys(pa.array([3, None, 0], pa.int32()))
    assert keys.dtype == np.int64
    assert keys.tolist() == [3, -1, 0]
