"""Two GPUs that take turns as one would."""

import pyarrow as pa
import pytest

from htk.base.schema import TABLES
from htk.parsers.common.mixed_gpus import find_calls, find_mixed_gpus

US = 1000


def found(devices: list[int], starts: list[int], launched: list[int] | None = None) -> list[int]:
    """Return which of some kernels of 100 µs wait for another GPU; all on stream 7."""
    count = len(devices)
    moments = launched or [5 * k for k in range(count)]
    kernels = {
        "device": devices,
        "stream": [7] * count,
        "start_ns": [US * start for start in starts],
        "end_ns": [US * (start + 100) for start in starts],
        "correlation": list(range(1, count + 1)),
        "graph_id": [0] * count,
    }
    launches = {
        "thread": ["main"] * count,
        "start_ns": [US * moment for moment in moments],
        "end_ns": [US * (moment + 4) for moment in moments],
        "correlation": list(range(1, count + 1)),
    }
    first, second = [
        pa.table(
            {
                name: pa.array(values, TABLES[table].field(name).type)
                for name, values in columns.items()
            }
        )
        for table, columns in (("kernels", kernels), ("launches", launches))
    ]
    return find_mixed_gpus(first, second, find_calls(first, second)).tolist()


IN_TURN = [100 + 100 * k for k in range(24)]


def test_gpus_that_wait_for_each_other_are_one() -> None:
    alternating = [k % 2 for k in range(24)]
    assert found(alternating, IN_TURN) == list(range(1, 24))


@pytest.mark.parametrize(
    ("devices", "starts", "launched"),
    [
        ([0] * 24, IN_TURN, None),  # one GPU
        ([0] * 12 + [1] * 12, IN_TURN, None),  # the layers of a model in halves
        ([k % 2 for k in range(24)], [100 + 100 * (k // 2) for k in range(24)], None),  # at once
        ([k % 2 for k in range(24)], IN_TURN, [s - 6 for s in IN_TURN]),  # a slow thread
        ([k % 2 for k in range(8)], IN_TURN[:8], None),  # too few to tell
    ],
)
def test_what_two_gpus_may_do(
    devices: list[int], starts: list[int], launched: list[int] | None
) -> None:
    assert found(devices, starts, launched) == []
