"""Buckets put together and split. Each of four takes 20 + 80 us and is ready every 1000."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import bucket
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

K = 1000


def step(value: str) -> float:
    return period(bucket.apply(MODEL, value)) / K


def reduce(name: str, after: str) -> Act:
    return comm(
        name,
        100 * K,
        "all_reduce",
        waits=(after,),
        in_bytes=10 << 20,
        group=8,
        per_node=8,
        backward=True,
    )


MODEL = small_model(
    [
        Act("f", 500 * K),
        *(Act(f"b{k}", 1000 * K, backward=True) for k in range(3)),
        *(Act(f"b3{half}", 500 * K, backward=True) for half in "xy"),
        comm("short", 20 * K, "all_reduce", in_bytes=1 << 20, group=8, per_node=8, backward=True),
        *(reduce(f"r{k}", f"b{k}") for k in range(3)),
        reduce("r3", "b3y"),
    ]
)


def test_today() -> None:
    assert period(MODEL) == 4600 * K


def test_two_put_together_end_later() -> None:
    # the short one, r0 and r1 in one, r2 and r3 in another: 20 + 160 after the last kernel
    assert step("21MB") == 4500 + 180


def test_all_in_one() -> None:
    assert step("1GB") == 4500 + 20 + 4 * 80


def test_halves_start_earlier() -> None:
    # half of the last one is ready after b3x; 20 + 40 remain at the end
    assert step("5MB") == 4500 + 60


def test_pieces_are_sent_one_after_the_other() -> None:
    slow = MODEL.with_lengths(MODEL.is_comm, 3000 * K)
    small = bucket.apply(slow, "2MB")
    sent = small.is_comm & (small.lengths() > 0)
    assert sent.sum() > slow.is_comm.sum()
    assert period(small) >= small.lengths()[sent].sum() > 10_000 * K


def test_nonsense() -> None:
    with pytest.raises(UsageError, match="size"):
        step("many")
    with pytest.raises(UsageError, match="no buckets"):
        bucket.apply(small_model([Act("a", 1)]), "25MB")
