"""Sizes of NCCL calls, as its documentation defines count and buffers."""

import pytest

from htk.base.names.collectives import NCCL_DTYPES
from htk.parsers.common.nccl_calls import (
    bytes_of_rank,
    compute_call_sizes,
    dtype_of,
    find_call_ends,
)

RANKS, COUNT = 6, 1000
# count is of: (elements that a rank hands in, elements that it gets); None: it has no such buffer.
BUFFERS = {
    "all_reduce": (COUNT, COUNT),
    "broadcast": (COUNT, COUNT),
    "reduce": (COUNT, COUNT),
    "all_gather": (COUNT, RANKS * COUNT),
    "gather": (COUNT, RANKS * COUNT),
    "reduce_scatter": (RANKS * COUNT, COUNT),
    "scatter": (RANKS * COUNT, COUNT),
    "all_to_all": (RANKS * COUNT, RANKS * COUNT),
    "send": (COUNT, None),
    "recv": (None, COUNT),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_elements_and_bytes_of_each_call(kind: str) -> None:
    into, out = BUFFERS[kind]
    row = compute_call_sizes(kind, COUNT, "ncclBfloat16", RANKS)
    assert (row["in_elements"], row["out_elements"]) == (into, out)
    assert row["in_bytes"] == (None if into is None else 2 * into)
    assert row["out_bytes"] == (None if out is None else 2 * out)


def test_what_is_not_recorded_is_null() -> None:
    assert compute_call_sizes("all_reduce", None, "ncclInt8", RANKS) == {"dtype": "ncclInt8"}
    assert compute_call_sizes("all_gather", COUNT, "ncclInt8", None)["out_bytes"] is None
    assert compute_call_sizes("all_reduce", COUNT, None, RANKS)["in_bytes"] is None


def test_roots_and_peers() -> None:
    assert find_call_ends("broadcast", 3) == {"root": 3, "peer": None}
    assert find_call_ends("recv", 3) == {"root": None, "peer": 3}
    assert find_call_ends("all_reduce", 0) == {"root": None, "peer": None}


def test_element_types_by_their_numbers() -> None:
    assert [dtype_of(n) for n in (0, 7, 9)] == ["ncclInt8", "ncclFloat32", "ncclBfloat16"]
    assert [dtype_of(n) for n in (None, -1, len(NCCL_DTYPES))] == [None] * 3


def test_bytes_as_the_inspector_counts_them() -> None:
    assert bytes_of_rank("all_gather", 8, 4) == {"in_bytes": 8, "out_bytes": 32}
    assert bytes_of_rank("reduce_scatter", 8, 4) == {"in_bytes": 32, "out_bytes": 8}
    assert bytes_of_rank("send", 8, 2) == {"in_bytes": 8, "out_bytes": None}
    assert bytes_of_rank("recv", 8, 2) == {"in_bytes": None, "out_bytes": 8}
