"""Ranks: what their collectives cost, and who comes last."""

from dataclasses import replace

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.physics.site_rates import NARROWED, SiteRates
from htk.whatif.edits import world
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

K = 1000


def reduced(ranks: int, per_node: int) -> list[Act]:
    common = {"group": ranks, "per_node": per_node, "backward": True}
    return [
        Act("a", 100 * K),
        Act("b", 100 * K, backward=True),
        comm("short", 20 * K, "all_reduce", in_bytes=1 << 20, **common),
        comm("r", 720 * K, "all_reduce", waits=("b",), in_bytes=64 << 20, **common),
    ]


def test_a_ring_of_more_sends_a_little_more() -> None:
    # 700 for 7/8; of 16 ranks 15/16. A tree of 4 nodes has two hops more between them than one of
    # 2, a ring of 16 ranks 16 hops more, 4 of them between nodes, which is less for so many bytes.
    found = world.apply(small_model(reduced(8, 4), gpus_per_node=4), "16")
    ring = [
        2 * (n - 1) * (nodes / n * 4.0 + (1 - nodes / n) * 1.9) for n, nodes in ((8, 2), (16, 4))
    ]
    assert length(found, "r") == round(20 * K + 750 * K + (ring[1] - ring[0]) * K)
    assert (found.samples, found.devices) == (2, 2)
    assert not found.low_confidence


def test_leaving_the_node_is_marked() -> None:
    found = world.apply(small_model(reduced(4, 4), gpus_per_node=4), "2x4")
    assert found.low_confidence
    assert any("leave its node" in words for words in found.assumptions)


def test_a_sites_adapters_are_what_the_job_would_meet_outside_its_node() -> None:
    """At half of the usual rate what lies beyond the hops takes twice as long."""
    usual = small_model(reduced(4, 4), gpus_per_node=4, device_name="NVIDIA A100-SXM4-80GB")
    here = replace(usual, site={"a100-80gb": SiteRates(adapters=0.5)})
    slower, faster = world.apply(here, "2x4"), world.apply(usual, "2x4")
    hops = length(
        world.apply(replace(usual, site={"a100-80gb": SiteRates(adapters=1e9)}), "2x4"), "r"
    )
    assert length(slower, "r") > 1.5 * length(faster, "r") > 1.5 * hops
    ratio = slower.spread["communication"] / faster.spread["communication"]
    assert ratio == pytest.approx(NARROWED)
    assert any("0.50 of what is usual" in words for words in slower.assumptions)


def test_as_many_as_now() -> None:
    model = small_model(reduced(8, 4), gpus_per_node=4)
    assert (world.apply(model, "8").weight == model.weight).all()


def test_stages_of_a_pipeline_are_ranks_too() -> None:
    # Four replicas of two stages: 8 ranks are as many as now, 16 are eight replicas.
    stages = comm("sent", K, "send", group=2, group_kind="mesh_pipeline", waits=("a",))
    model = small_model([*reduced(4, 4), stages], gpus_per_node=8)
    assert length(world.apply(model, "8"), "r") == length(model, "r")
    more = world.apply(model, "16")
    assert (more.samples, more.devices) == (2, 2)
    assert int(more.facts.group_size.max()) == 8


def test_one_rank_needs_nobody() -> None:
    found = world.apply(small_model(reduced(8, 8)), "1")
    assert length(found, "r") == 0  # it has no hops


def test_ranks_must_be_known() -> None:
    with pytest.raises(UsageError, match="how many ranks"):
        world.apply(small_model([Act("a", 1)]), "8")


def test_ranks_that_share_the_optimizer_do_less_each() -> None:
    """8 ranks of FSDP become 16: half of the optimizer's state each."""
    common = {"group": 8, "per_node": 4, "in_bytes": 8 << 20, "out_bytes": 8 << 20}
    model = small_model(
        [
            Act("a", 100 * K, waits=("g",)),
            Act("b", 100 * K, backward=True),
            Act("opt", 80 * K, family="optimizer", waits=("r",)),
            comm("g", 90 * K, "all_gather", **common),
            comm("r", 90 * K, "reduce_scatter", waits=("b",), backward=True, **common),
        ],
        gpus_per_node=4,
    )
    assert length(world.apply(model, "16"), "opt") == 40 * K


def test_what_follows_sees_the_new_groups() -> None:
    found = world.apply(small_model(reduced(4, 4), gpus_per_node=4), "2x4")
    assert set(found.facts.group_size[2:].tolist()) == {8}
    assert found.facts.crosses[2:].all()


def test_groups_of_unknown_size_are_not_scaled() -> None:
    acts = [
        Act("a", 100, backward=True),
        comm("r", 50, "all_reduce", waits=("a",), in_bytes=1 << 20, backward=True),
    ]
    with pytest.raises(UsageError, match="how many ranks"):
        world.apply(small_model(acts), "4")


def test_a_ring_of_very_many_is_mostly_hops() -> None:
    model = small_model(reduced(8, 4), gpus_per_node=4)
    steps = [length(world.apply(model, str(8 * 10**k)), "r") for k in range(5)]
    assert steps == sorted(steps) and steps[-1] > steps[0]


def test_parts_of_a_rank_shrink_with_more_of_them() -> None:
    common = {"group": 8, "per_node": 4, "in_bytes": 1 << 20, "out_bytes": 8 << 20}
    acts = [
        Act("a", 100 * K, waits=("g",)),
        Act("b", 100 * K, backward=True),
        comm("g", 90 * K, "all_gather", **common),
        comm(
            "r",
            90 * K,
            "reduce_scatter",
            waits=("b",),
            backward=True,
            **common | {"in_bytes": 8 << 20, "out_bytes": 1 << 20},
        ),
    ]
    found = world.apply(small_model(acts, gpus_per_node=4), "32").facts
    assert found.in_bytes[2:].tolist() == [(8 << 20) // 32, 8 << 20]
    assert found.out_bytes[2:].tolist() == [8 << 20, (8 << 20) // 32]


@pytest.mark.parametrize(
    ("group", "ranks", "node", "members"),
    [(8, 16, 4, 2), (16, 16, 4, 4), (4, 4, 8, 4), (2, 16, 4, 1), (16, 16, 8, 8), (3, 24, 8, 1)],
)
def test_members_of_a_group_that_is_spread_over_all_nodes(
    group: int, ranks: int, node: int, members: int
) -> None:
    assert world._in_node(group, ranks, node) == members


def test_the_last_of_more_ranks_is_later_as_drawn_ones_are() -> None:
    dice = np.random.default_rng(5)
    for ranks in (3, 8, 64, 512):
        drawn = dice.standard_normal((4000, ranks)).max(axis=1).mean()
        assert world._expected_last(ranks) == pytest.approx(drawn, rel=0.03), ranks


def test_waits_are_means_over_the_ranks_of_each_collective() -> None:
    """Ranks come after 60, 100 and 80 to the first, after 0 each to the second; one more is of a
    rank alone."""
    acts = []
    for rank, ready in ((0, 60), (3, 100), (4, 80)):
        acts += [
            Act("a", ready, rank=rank),
            comm("r", 10, "all_reduce", rank=rank, waits=("a",), joined="r"),
            comm("s", 10, "all_reduce", rank=rank, lane="second", joined="s"),
        ]
    acts.append(comm("alone", 10, "all_reduce", lane="third"))
    model = small_model(acts)
    names = [model.graph.activities.names[n] for n in model.graph.activities.name]
    waits = dict(zip(names, world._mean_waits(model).tolist(), strict=True))
    assert waits == {"a": 0, "r": (40 + 0 + 20) / 3, "s": 0, "alone": 0}


def test_bytes_go_as_far_as_groups_and_nodes_make_them() -> None:
    model = small_model(reduced(8, 4), gpus_per_node=4)
    assert (
        world._bytes_ratio(model, (8, 4), (8, 4)) == world._bytes_ratio(model, (1, 1), (4, 4)) == 1
    )
    assert world._bytes_ratio(model, (8, 4), (1, 1)) == 0
    assert world._bytes_ratio(model, (8, 4), (16, 4)) == pytest.approx((15 / 16) / (7 / 8))


@pytest.mark.parametrize("value", ["6", "2x3", "0", "x4", "4x", "1.5", "many"])
def test_ranks_that_cannot_be_are_refused(value: str) -> None:
    """Of 8 ranks, 4 of which share each layer: groups of 2 become whole ones only."""
    first, *others = reduced(2, 1)
    acts = [
        *(first, Act("next", 100 * K), *others),
        comm("t", K, "all_reduce", lane="tp", waits=("a",), in_bytes=1 << 20, group=4, per_node=4),
    ]
    model = small_model(acts, gpus_per_node=4)
    with pytest.raises(UsageError, match="world"):
        world.apply(model, value)
    assert world.apply(model, "16").devices == 2


def test_the_later_the_last_of_more_ranks_is_the_less_is_sure() -> None:
    """Two ranks of which one waits 60 us for the other, in a step of 260: of 8 ranks, as much
    longer as the last of 8 is later than that of 2."""
    acts = [
        act for rank, ready in ((0, 40), (1, 100)) for act in (
            Act("a", 100 * K, rank=rank),
            Act("b", ready * K, rank=rank, backward=True),
            comm("r", 60 * K, "all_reduce", rank=rank, waits=("b",), joined="r", backward=True,
                 in_bytes=8 << 20, group=2, per_node=2),
        )
    ]  # fmt: skip
    found = world.apply(small_model(acts), "8")
    times = world._expected_last(8) / world._expected_last(2)
    lateness = 30 * (times - 1) / 260
    assert found.spread["skew"] == pytest.approx(0.01 + 0.5 * lateness, rel=0.01)


def test_the_first_replicas_of_a_model_reduce_its_gradients() -> None:
    assert started("tp 4").job.data_ranks == 1
    hold_to_twin(started("tp 4"), ("world", "1x8"), started("tp 4 of 8"), step_rel=0.03)


def test_the_first_replicas_of_a_pipeline_are_sharded_as_it_is_wrapped_for() -> None:
    start = started("two stages, wrapped for FSDP")
    assert start.job.strategy == "full_shard"
    edited = predict_answer(start, [("world", "1x4")])
    twin = started("two stages of four ranks, sharded")
    assert edited.step_ns == pytest.approx(twin.step_ns, rel=0.04)
    assert edited.peak is not None and twin.memory is not None and twin.memory.peaks is not None
    assert edited.peak.allocated == pytest.approx(twin.memory.peaks.highest, rel=0.03)
