"""Experts by hand: two of 1024 by 512 on a rank of four, 2 MiB of gradients in 16 bits."""

import numpy as np
import pytest

from htk.whatif.experts import fullest_over_mean, mark_exchanges, spread_gradients
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

MIB = 1 << 20


def exchange(name: str, rank: int, into: int, out: int) -> Act:
    return comm(
        name, 50, "all_to_all", rank=rank, in_bytes=into, out_bytes=out, group=2, per_node=2,
        joined=name,
    )  # fmt: skip


def test_the_fullest_member_over_the_mean() -> None:
    """Three quarters of the tokens go to the second rank; the third call tells no sizes, the fourth
    some. Who sends nothing is a member; where nobody sends, nobody has more."""
    acts = [
        *(exchange("there", 0, 4, 2), exchange("there", 1, 4, 6)),
        *(exchange("back", 0, 2, 4), exchange("back", 1, 6, 4)),
        *(exchange("unknown", 0, -1, -1), exchange("unknown", 1, -1, -1)),
        *(exchange("half", 0, 4, -1), exchange("half", 1, 12, -1)),
        *(exchange("one", 0, 8, 4), exchange("one", 1, 0, 4)),
        *(exchange("none", 0, 0, 0), exchange("none", 1, 0, 0)),
        Act("a", 10),
    ]
    model = small_model(acts)
    names = [model.graph.activities.names[n] for n in model.graph.activities.name]
    ratio = dict(zip(names, fullest_over_mean(model).tolist(), strict=True))
    known = {"there": 1.5, "back": 1.5, "one": 2.0, "none": 1.0}
    assert ratio == known | {"unknown": 1.0, "half": 1.0, "a": 1.0}
    assert mark_exchanges(model).sum() == 12


def step(
    experts: int, *more: Act, ranks: tuple[int, ...] = (0,), of_rank: int = 8, **facts: int
) -> StepModel:
    """A step of experts over so many of four ranks: what others share is 4 MiB of gradients."""
    stacked = f"[[64, 1024], [{of_rank // experts}, 1024, 512], []]"
    grouped = {"op": "aten::_grouped_mm", "dims": stacked, "family": "gemm"}
    return small_model(
        [
            act
            for rank in ranks
            for act in (
                Act("forward", 1000, rank=rank, **grouped),  # type: ignore[arg-type]
                Act("backward", 2000, rank=rank, backward=True, **grouped),  # type: ignore[arg-type]
                *more,
                comm("rest", 300_000, "all_reduce", in_bytes=4 * MIB, group=4, per_node=4,
                     rank=rank, waits=("backward",)),
                Act("update", 6000, rank=rank, family="optimizer", waits=("rest",)),
            )
        ],
        **facts,
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


def test_ranks_that_hold_the_same_experts_reduce_them_together() -> None:
    """Experts of four ranks over two: ranks 0 and 2 hold the same, and ranks 1 and 3."""
    changed, _ = spread_gradients(step(4, ranks=(0, 1, 2, 3)), 4, 2)
    acts = changed.graph.activities
    added = np.flatnonzero(changed.is_collective("all_reduce") & (changed.facts.group_size == 2))
    assert acts.rank[added].tolist() == [0, 1, 2, 3]
    joins = changed.graph.src[changed.run_edge[added]].tolist()
    assert joins[0] == joins[2] != joins[1] == joins[3]


@pytest.mark.parametrize(("products", "buckets"), [(1, 1), (2, 2), (4, 2)])
def test_all_bytes_of_large_experts_are_reduced(products: int, buckets: int) -> None:
    """60 MiB of a rank's experts after, in buckets of some 25; of one product all is in one."""
    of_each = f"[[64, 1024], [{30 // products}, 1024, 512], []]"
    grouped = {"op": "aten::_grouped_mm", "family": "gemm"}
    acts = [Act("forward", 1000, dims="[[64, 1024], [30, 1024, 512], []]", **grouped)]  # type: ignore[arg-type]
    acts += [
        Act(f"b{k}", 500, backward=True, dims=of_each, **grouped)  # type: ignore[arg-type]
        for k in range(products)
    ]
    acts += [
        comm("rest", 300_000, "all_reduce", in_bytes=4 * MIB, group=4, per_node=4,
             waits=(f"b{products - 1}",)),
        Act("update", 6000, family="optimizer", waits=("rest",)),
    ]  # fmt: skip
    changed, words = spread_gradients(small_model(acts), 4, 2)
    assert "each rank holds 63 MB of experts' weights in place of 31" in words[0]
    added = np.flatnonzero(changed.is_collective("all_reduce"))[1:]
    assert changed.facts.in_bytes[added].tolist() == [60 * MIB // buckets] * buckets
    assert changed.facts.out_bytes[added].tolist() == [60 * MIB // buckets] * buckets
    once, _ = spread_gradients(step(4, of_rank=120), 4, 2)
    whole = once.lengths()[np.flatnonzero(once.is_collective("all_reduce"))[1:]].sum()
    assert changed.lengths()[added].sum() == pytest.approx(whole, abs=buckets)


@pytest.mark.parametrize(("gpus", "members"), [(8, 2), (4, 2), (2, 1), (1, 1)])
def test_members_in_a_node_by_its_gpus(gpus: int, members: int) -> None:
    changed, _ = spread_gradients(step(4, gpus_per_node=gpus), 4, 2)
    added = np.flatnonzero(changed.is_collective("all_reduce"))[1:]
    assert changed.facts.per_node[added].tolist() == [members]


def test_an_exchange_needs_two() -> None:
    acts = [comm(f"x{n}", 5, "all_to_all", group=n) for n in (-1, 1, 2)]
    assert mark_exchanges(small_model([*acts, comm("g", 5, "all_gather", group=2)])).tolist() == [
        False, False, True, False
    ]  # fmt: skip
