"""Process groups of a profile, and the lists it writes as text: by hand."""

from typing import Any

import pytest

from htk.parsers.kineto.process_groups import (
    comm_groups,
    listed_ranks,
    parse_split_sizes,
    seq_of,
    value_at,
)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("[0, 4]", "[0,4]"), ("[ 3 ]", "[3]"), ("", "[]"), ("[]", "[]"), ("0,1,", "[0,1]"),
        ("[0, 1, ..., 63]", None), ("[0, -1]", None), ("[0, x]", None), ("[1234567890]", None),
    ],
)  # fmt: skip
def test_ranks_as_text(text: str, ranks: str | None) -> None:
    assert listed_ranks(text) == ranks


@pytest.mark.parametrize(
    ("text", "elements"),
    [("[12, 0, 3]", "[12,0,3]"), ("[]", None), ("[1, ..., 2]", None), ("[1,,2]", None),
     ("[-1]", None)],
)  # fmt: skip
def test_splits_are_whole_or_none(text: str, elements: str | None) -> None:
    assert parse_split_sizes(text) == elements


@pytest.mark.parametrize(
    ("concrete", "seq"),
    [
        ('["[7, False]", ""]', 7), ('["", "(12, True)"]', 12), ('["3,True"]', 3),
        ('["", "", "[7, False]"]', -1), ("[7, false]", -1), ('["[x, False]"]', -1),
        (f'["[{10**19}, False]"]', -1), ("{}", -1), ("[", -1), ("[" * 100_000, -1),
    ],
)  # fmt: skip
def test_sequence_numbers_stand_among_the_first_two_values(concrete: str, seq: int) -> None:
    assert seq_of(concrete) == seq


@pytest.mark.parametrize(
    ("concrete", "position", "value"),
    [('["", "5"]', 1, 5), ("[6]", 0, 6), ('["5"]', 1, -1), ('["-5"]', 0, -1), (None, 0, -1),
     ('{"a": 1}', 0, -1), ('["1234567890"]', 0, -1), ("[", 0, -1)],
)  # fmt: skip
def test_a_whole_number_among_values(concrete: str | None, position: int, value: int) -> None:
    assert value_at(concrete, position) == value


def test_groups_of_the_job() -> None:
    listed: list[Any] = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2,
         "backend_config": "cuda:nccl"},
        {"pg_name": "7", "ranks": "[0, 8]", "pg_size": 0},
        {"pg_name": 3, "ranks": [0, "1"], "pg_size": 2**31},
        {"pg_name": "8", "ranks": [True, False], "pg_size": True},
        {"pg_name": "9", "ranks": [-1, 0], "pg_size": -2},
        {"pg_name": "10", "ranks": []},
        {"pg_name": "11", "ranks": [0, True]},
        {"pg_name": "12", "ranks": [0, 1.0]},
        {"pg_name": "13", "ranks": [0, 2**20]},
        {"pg_name": "14", "ranks": [2**20 + 1, 0]},
        "no group",
    ]  # fmt: skip
    groups = comm_groups({"distributedInfo": {"pg_config": listed}}).to_pylist()
    columns = ("group", "group_desc", "group_ranks", "group_size", "backend")
    assert [tuple(g[c] for c in columns) for g in groups] == [
        ("0", "default_pg", "[0,1]", 2, "cuda:nccl"),
        ("7", None, "[0,8]", None, None),
        (None, None, None, None, None),
        ("8", None, None, None, None),
        ("9", None, None, None, None),
        ("10", None, "[]", None, None),
        ("11", None, None, None, None),
        ("12", None, None, None, None),
        ("13", None, "[0,1048576]", None, None),
        ("14", None, None, None, None),
    ]


@pytest.mark.parametrize("job", [None, [], {"pg_config": None}, {"pg_config": {"0": {}}}])
def test_without_a_list_there_are_none(job: object) -> None:
    assert comm_groups({"distributedInfo": job}).num_rows == 0
