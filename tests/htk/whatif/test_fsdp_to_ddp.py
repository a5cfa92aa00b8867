"""Buckets of gradients: ready with the products that make them, reduced when they are full."""

import numpy as np
import pytest

from htk.whatif.fsdp_to_ddp import BUCKET_BYTES, _element_bytes, _order_ready, to_replicas
from htk.whatif.parallelism import find_sharded
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model

MIB = 1 << 20
EMBEDDING = Act("e", 10, op="aten::embedding", dims="[[100, 512], [4, 16]]", family="other")


def test_gradients_are_ready_with_their_products_and_units_with_their_last_kernel() -> None:
    """Units end at places 3 and 7 of a stream of tens; the root's comes first, two bytes each."""
    lane = np.arange(10) * 10
    sizes = [2 * 900, 2 * 500]
    placed = [(1, 400), (2, 300), (5, 500)]
    assert _order_ready(lane, placed, (0, 3, 7), sizes) == [
        (10, 800),
        (20, 600),
        (30, 400),
        (50, 1000),
    ]
    # what is made in front of the first place, or behind the last, is of no unit
    assert _order_ready(lane, [(0, 900), (9, 8)], (0, 3, 7), sizes) == [(0, 1800), (70, 1000)]
    # in single precision, as most units show
    assert _order_ready(lane, [(1, 400), (5, 250)], (0, 3, 7), [4 * 400, 4 * 250]) == [
        (10, 1600), (50, 1000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        # of the last unit it is more than the embedding could leave: it is the embedding
        (9_000, [(20, 600), (50, 1000), (70, 9_000)]),
        # beside the embedding, with weights of its own
        (12_000, [(10, 8_000), (20, 600), (50, 1000), (70, 4_000)]),
    ],
)
def test_an_output_that_the_root_does_not_hold(last: int, expected: list[tuple[int, int]]) -> None:
    placed = [(1, 4000), (2, 300), (5, 500)]
    assert _order_ready(np.arange(10) * 10, placed, (0, 3, 5, 7), [600, 1000, last]) == expected


@pytest.mark.parametrize(("sizes", "element"), [([200, 400], 2), ([400, 800], 4), ([310, 620], 4)])
def test_bytes_of_an_element_are_what_most_units_show(sizes: list[int], element: int) -> None:
    assert _element_bytes([[(0, 100)], [(1, 150), (2, 50)]], sizes) == element
    assert _element_bytes([[], []], [1, 2]) == 2


def test_to_replicas_by_hand() -> None:
    """Three units of 20 MiB in backward: a bucket is full with the second, the third comes last."""
    units = [20 * MIB] * 3
    acts = [EMBEDDING, Act("f", 1000)]
    acts += [Act(f"b{k}", 1000, backward=True) for k in range(3)]
    acts.append(Act("adam", 400, waits=("r2",), family="optimizer"))
    for k, size in enumerate(units):
        acts.append(comm(f"g{k}", 100, "all_gather", out_bytes=size, group=4, per_node=4))
    for k, size in enumerate(units):
        acts.append(comm(f"r{k}", 100, "reduce_scatter", waits=(f"b{k}",), in_bytes=size, group=4,
                         per_node=4, backward=True))  # fmt: skip
    model = small_model(acts, gpus_per_node=4, scale_up_gbps=400.0)
    now = find_sharded(model)
    assert now is not None and now.world == 4
    found = to_replicas(model, now, np.zeros(len(model.graph.start), bool))
    added = slice(len(model.graph.start), None)
    assert found.facts.collective[added] == ["all_reduce"] * 2
    assert found.facts.in_bytes[added].tolist() == [40 * MIB, 20 * MIB]
    assert BUCKET_BYTES == 25 * MIB
    assert set(found.facts.group_size[added].tolist()) == {4}
    assert length(found, "g0") == length(found, "r0") == 0
    assert length(found, "adam") == 4 * 400, "every rank updates all of it"
    lengths = found.lengths()[added].tolist()
    assert lengths[1] < lengths[0] < 2 * lengths[1]  # twice the bytes, one latency each
    # compute, then the last bucket behind it, then the optimizer
    busy = 10 + 4000
    ready = [10 + 3000, 10 + 4000]
    end = 0
    for at, took in zip(ready, lengths, strict=True):
        end = max(at, end) + took
    assert period(found) == max(end, busy) + 1600
