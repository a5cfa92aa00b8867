"""Experts by hand: two of 1024 by 512 on a rank of four, 2 MiB of gradients in 16 bits."""

import numpy as np
import pytest

from htk.whatif.experts import exchanges, fullest_over_mean, spread_gradients
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

MIB = 1 << 20


def exchange(name: str, rank: int, into: int, out: int) -> Act:
    return comm(
        name, 50, "all_to_all", rank=rank, in_bytes=into, out_bytes=out, group=2, per_node=2,
        joined=name,
    )  # fmt: skip


def test_the_fullest_member_over_the_mean() -> None:
    """Three quarters of the tokens go to the second rank; the third call tells no sizes."""
    acts = [
        *(exchange("there", 0, 4, 2), exchange("there", 1, 4, 6)),
        *(exchange("back", 0, 2, 4), exchange("back", 1, 6, 4)),
        *(exchange("unknown", 0, -1, -1), exchange("unknown", 1, -1, -1)),
        Act("a", 10),
    ]
    model = small_model(acts)
    names = [model.graph.activities.names[n] for n in model.graph.activities.name]
    ratio = dict(zip(names, fullest_over_mean(model).tolist(), strict=True))
    assert ratio == {"there": 1.5, "back": 1.5, "unknown": 1.0, "a": 1.0}
    assert exchanges(model).sum() == 6


def step(experts: int, *more: Act) -> StepModel:
    """A step of experts over so many of four ranks: what others share is 4 MiB of gradients."""
    stacked = f"[[64, 1024], [{8 // experts}, 1024, 512], []]"
    grouped = {"op": "aten::_grouped_mm", "dims": stacked, "family": "gemm"}
    return small_model(
        [
            Act("forward", 1000, **grouped),  # type: ignore[arg-type]
            Act("backward", 2000, backward=True, **grouped),  # type: ignore[arg-type]
            *more,
            comm("rest", 300_000, "all_reduce", in_bytes=4 * MIB, group=4, per_node=4,
                 waits=("backward",)),
            Act("update", 6000, family="optimizer", waits=("rest",)),
        ]
    )  # fmt: skip


def test_fewer_ranks_hold_more_and_reduce_it() -> None:
    """Of four ranks none shares an expert with another; of two, two hold the same 4 MiB each."""
    changed, words = spread_gradients(step(4), 4, 2)
    assert length(changed, "update") == 6000 * (4 + 4) // (4 + 2)
    added = np.flatnonzero(changed.is_collective("all_reduce"))[1:]
    assert changed.facts.in_bytes[added].tolist() == [4 * MIB]
    assert changed.facts.group_size[added].tolist() == [2]
    assert changed.lengths()[added].min() > 0
    assert words == ["each rank holds 4 MB of experts' weights in place of 2, which 2 ranks reduce"]


def test_on_as_many_ranks_as_there_are_nothing_is_reduced() -> None:
    own = comm("experts", 200_000, "all_reduce", in_bytes=4 * MIB, group=2, per_node=2,
               waits=("backward",))  # fmt: skip
    changed, _ = spread_gradients(step(2, own), 2, 4)
    assert length(changed, "experts") == 0
    assert length(changed, "rest") == 300_000
    assert length(changed, "update") == 6000 * (4 + 2) // (4 + 4)


def test_what_shapes_do_not_tell_stays() -> None:
    model = small_model([Act("a", 10), comm("d", 5, "all_to_all", group=2)])
    changed, words = spread_gradients(model, 2, 4)
    assert changed is model
    assert "not known" in words[0]
    assert length(model, "d") == pytest.approx(5)
