"""Peak memory after an edit: parts that stay, that are gathered, that grow."""

import pytest

from htk.whatif.memory import Held, ShardedUnits, after

GB = 1e9
# 8 layers of 1 GB as gathered and 1 GB beside them: 4.5e9 parameters, 72 GB of state on 4 ranks.
UNITS = ShardedUnits("full_shard", 4, 4, 1 * GB, 1 * GB, 8, 4)
HELD = Held(18 * GB, 10 * GB, UNITS, 80 * GB, 33 * GB)  # gathered: 2 layers, the rest, gradients


def test_nothing_changes_without_an_edit() -> None:
    assert after(HELD, [], 1.0)[0] == 33 * GB


def test_activations_grow_with_the_batch() -> None:
    assert after(HELD, [("batch", "3x")], 3.0)[0] == 53 * GB


@pytest.mark.parametrize(
    ("edit", "peak"),
    [
        (("sharding", "ddp"), 18 * GB + 54 * GB + 10 * GB),  # 16 bytes of 4.5e9 on each
        (("sharding", "shard_grad_op"), 18 * GB + 9 * GB + 2 * GB + 10 * GB),
        (("sharding", "hybrid_shard:1"), 18 * GB + 54 * GB + 10 * GB),
        (("sharding", "hybrid_shard:2"), 18 * GB + 18 * GB + 5 * GB + 10 * GB),
        (("world", "8"), 18 * GB - 9 * GB + 5 * GB + 10 * GB),
        (("world", "2x4"), 18 * GB - 9 * GB + 5 * GB + 10 * GB),
    ],
)
def test_shards_and_what_is_gathered(edit: tuple[str, str], peak: float) -> None:
    assert after(HELD, [edit], 1.0)[0] == pytest.approx(peak)


def test_what_the_parts_miss_of_the_recorded_peak_stays() -> None:
    more = Held(18 * GB, 10 * GB, UNITS, 80 * GB, 35 * GB)
    assert after(more, [("batch", "2x")], 2.0)[0] == 45 * GB


def test_the_probability_not_to_fit_is_even_where_the_peak_fills_what_is_free() -> None:
    free = (80 * GB - 1.5 * GB) / 1.03  # less the context, and what the allocator cannot use
    times = (free - 23 * GB) / (10 * GB)
    assert after(HELD, [("batch", "x")], times)[1] == pytest.approx(0.5)
    assert (after(HELD, [], 1.0)[1] or 0.0) < 1e-6
    assert (after(HELD, [], 9.0)[1] or 0.0) > 0.99


def test_an_unknown_gpu_has_no_probability() -> None:
    assert after(Held(1.0, 1.0, None, None, 2.0), [], 2.0) == (3, None)


def test_without_allocations_the_doubt_is_wider() -> None:
    reckoned = Held(18 * GB, 10 * GB, UNITS, 80 * GB)
    sure, unsure = after(HELD, [], 5.0)[1], after(reckoned, [], 5.0)[1]
    assert sure is not None and unsure is not None
    assert abs(unsure - 0.5) < abs(sure - 0.5)


def test_checkpointing_keeps_inputs_of_layers_and_one_layer() -> None:
    """Eight layers of 34 bytes an element are 272; eight inputs of 2 and one layer are 50."""
    plain = Held(18 * GB, 10 * GB, UNITS, 80 * GB, 33 * GB, layers=8)
    assert after(plain, [("checkpointing", "on")], 1.0)[0] == round(23 * GB + 10 * GB * 50 / 272)
    assert after(plain, [("checkpointing", "off")], 1.0)[0] == 33 * GB
    again = Held(18 * GB, 10 * GB, UNITS, 80 * GB, 33 * GB, layers=8, recomputed=True)
    assert after(again, [("checkpointing", "off")], 1.0)[0] == round(23 * GB + 10 * GB * 272 / 50)
    assert after(again, [("checkpointing", "on")], 1.0)[0] == 33 * GB
