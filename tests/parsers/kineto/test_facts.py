"""What a file says of its recording; whatever else stands in those keys is no fact."""

import json
from typing import Any

import pytest

from htk.parsers.kineto.facts import base_ns, read_facts, read_integer, read_rank


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0), (7, 7), ("12", 12), (2**62 - 1, 2**62 - 1),
        (-1, None), (2**62, None), ("-1", None), ("1.5", None), ("٣", None), ("", None),
        ("9" * 19, None), (True, None), (1.0, None), (None, None), ([1], None),
    ],
)  # fmt: skip
def test_whole_numbers_also_as_text(value: object, number: int | None) -> None:
    assert read_integer(value) == number
    assert read_rank({"distributedInfo": {"rank": value}}) == number
    assert base_ns({"baseTimeNanoseconds": value}) == (number or 0)


def test_facts_of_a_job() -> None:
    header: dict[str, Any] = {
        "host_name": "node3",
        "distributedInfo": {
            "rank": 5, "world_size": 16, "backend": "nccl", "nccl_version": "2.21.5",
            "pg_config": [{"pg_name": "0"}],
        },
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}, "no device", {"id": 1}],
        "cuda_runtime_version": 12040,
        "schemaVersion": 1,
        "record_shapes": 1,
        "with_stack": True,
        "profile_memory": 0,
        "with_flops": "1",
        "baseTimeNanoseconds": 10**18,
    }  # fmt: skip
    told = read_facts(header)
    assert (told["host"], told["world_size"], told["backend"]) == ("node3", 16, "nccl")
    assert (told["device_name"], told["device_count"]) == ("NVIDIA H100 80GB HBM3", 2)
    assert json.loads(str(told["versions"])) == {
        "cuda_runtime_version": 12040, "schemaVersion": 1, "nccl_version": "2.21.5",
    }  # fmt: skip
    assert told["recorded"] == "record_shapes,with_stack"
    assert (told["groups"], told["base_time_ns"]) == ('[{"pg_name":"0"}]', 10**18)


@pytest.mark.parametrize("value", [None, 1.5, [], ["text"], {}])
def test_values_of_other_types_tell_nothing(value: object) -> None:
    keys = ("host_name", "distributedInfo", "deviceProperties", "cuda_runtime_version")
    told = read_facts(dict.fromkeys(keys, value))
    assert (told.pop("recorded"), told.pop("base_time_ns")) == ("", 0)
    assert {v for v in told.values() if v} == set()
