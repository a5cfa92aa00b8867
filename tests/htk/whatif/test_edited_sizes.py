"""Sizes in the text of events, by hand."""

import json
from typing import Any

from htk.physics.hardware import gpu
from htk.whatif.edited_memory import Allocation
from htk.whatif.edited_sizes import EditedSizes

SIZES = EditedSizes(
    tokens=2048,
    ratio=1.5,
    launched=frozenset({1}),
    copied=frozenset({2}),
    sent=frozenset({1000}),
    allocations={3: Allocation(150, 1150, 2150)},
    gpu=gpu("h100"),
)


def rewritten(event: int, sizes: EditedSizes = SIZES, **args: Any) -> dict[str, Any] | None:
    text = sizes.rewrite(event, json.dumps({"name": args.pop("name", "x"), "args": args}).encode())
    return None if text is None else json.loads(text)["args"]


def test_a_launch_has_more_blocks_along_the_side_that_tokens_are_cut_on() -> None:
    launch = {"grid": [18, 16, 1], "blocks per SM": 2.0, "warps per SM": 8.0}
    more = {"grid": [18, 24, 1], "blocks per SM": 3.0, "warps per SM": 12.0}
    assert rewritten(1, **launch) == more
    assert rewritten(1, grid=[3000, 1, 1]) == {"grid": [4500, 1, 1]}
    assert rewritten(1, grid=[18, 5, 1]) == {"grid": [27, 5, 1]}, "neither divides the tokens"
    assert rewritten(4, **launch) == launch


def test_messages_of_activations_and_copies_of_samples_are_longer() -> None:
    message = {"In msg nelems": 1000, "Out msg nelems": 2000}
    assert rewritten(4, **message) == {"In msg nelems": 1500, "Out msg nelems": 2000}
    assert rewritten(2, bytes=16) == {"bytes": 24} and rewritten(4, bytes=16) == {"bytes": 16}


def test_allocations_are_as_edited_or_not_told() -> None:
    event = {"name": "[memory]", "Bytes": -100, "Total Allocated": 1000, "Total Reserved": 2000}
    told = rewritten(3, **event)
    assert told == {"Bytes": 150, "Total Allocated": 1150, "Total Reserved": 2150}
    assert rewritten(4, **event) == {name: event[name] for name in told}
    assert rewritten(3, EditedSizes(allocations=None), **event) is None


def test_the_header_names_the_edited_gpu() -> None:
    before = b'[{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 1, "numSms": 108}]'
    (device,) = json.loads(SIZES.entry("deviceProperties", before))
    assert (device["id"], device["totalGlobalMem"]) == (0, round(gpu("h100").memory_bytes))
    assert "H100" in device["name"]
    assert SIZES.entry("distributedInfo", before) == before
    assert EditedSizes().entry("deviceProperties", before) == before
