"""What transfers cost, worked out by hand."""

from dataclasses import replace

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.network import (
    FABRICS,
    LinkTier,
    Network,
    described_network,
    find_fabric,
    named_network,
    share_leaving_node,
    usual_adapters,
    usual_links,
)

# A node of four; 0.01 ns a byte within, 0.02 between nodes with all adapters of a node.
SHOWN = Network(LinkTier(5.0, 0.01), LinkTier(9.0, 0.02), 4)


def test_a_group_with_a_part_of_a_node_has_that_part_of_its_adapters() -> None:
    assert SHOWN.pace(4, 4) == 0.01
    assert SHOWN.pace(8, 4) == 0.02
    assert SHOWN.pace(4, 2) == pytest.approx(0.04)
    assert SHOWN.pace(2, 1) == pytest.approx(0.08)
    assert SHOWN.pace(16, 8) == pytest.approx(0.01)  # each GPU brings an adapter
    assert (SHOWN.latency(4, 4), SHOWN.latency(8, 4)) == (5.0, 9.0)


def test_no_group_between_nodes_is_faster_than_its_links() -> None:
    slow_links = Network(LinkTier(5.0, 0.5), LinkTier(9.0, 0.02), 4)
    assert slow_links.pace(8, 4) == 0.5
    from_catalogue = Network(LinkTier(5.0, None), LinkTier(9.0, 0.02), 4, links=0.5)
    assert from_catalogue.pace(8, 4) == 0.5


def test_a_level_that_nothing_shows_is_the_catalogue_s() -> None:
    unseen = Network(LinkTier(5.0, None), LinkTier(9.0, None), 4, links=0.1, adapters=0.3)
    assert (unseen.pace(2, 2), unseen.pace(8, 4)) == (0.1, 0.3)
    assert Network(LinkTier(5.0, None), LinkTier(9.0, 0.2), 4).pace(2, 2) == 0.2


@pytest.mark.parametrize("group", [(8, 4), (2, 2)])
def test_without_any_rate_there_is_no_pace_rather_than_none_at_all(group: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="nothing shows how fast the links are"):
        Network(LinkTier(5.0, None), LinkTier(9.0, None), 4).pace(*group)


def test_shards_and_replicas() -> None:
    """(n-1)/n of a unit; between two replicas of four shards, a quarter of it, there and back."""
    assert SHOWN.shared(4) == pytest.approx(3 / 4 * 0.01)
    assert SHOWN.summed(4, 4) == 0.0
    assert SHOWN.summed(8, 4) == pytest.approx(2 * 1 / 2 / 4 * 0.08)


def test_links_achieve_three_quarters_of_their_rate() -> None:
    a100 = gpu("a100-80gb")
    assert usual_links(300.0) == pytest.approx(1 / 225)
    assert usual_links(None) is None and usual_adapters(None, 8) is None
    assert usual_adapters(a100, 8) == pytest.approx(1 / (0.75 * 8 * a100.scale_out_gbps))
    usual = described_network(a100, 8)
    assert usual.pace(8, 8) == pytest.approx(1 / (0.75 * a100.scale_up_gbps))
    assert usual.pace(16, 8) == pytest.approx(
        max(1 / (0.75 * 8 * a100.scale_out_gbps), 1 / (0.75 * a100.scale_up_gbps))
    )


def test_an_all_to_all_leaves_the_node_through_each_gpu_s_own_share() -> None:
    """Of eight ranks on two nodes of four, four of seven others are on the other node."""
    assert SHOWN.exchange_pace(4, 4) == pytest.approx(0.01)
    assert SHOWN.exchange_pace(8, 4) == pytest.approx(4 / 7 * 4 * 0.02)


def test_a_group_beyond_its_pod_shares_the_uplinks() -> None:
    """Nodes of 4, pods of 8: uplinks of a pod take 0.05 ns a byte for all its GPUs together."""
    pods = replace(SHOWN, pod=8, beyond=LinkTier(9.0, 0.05))
    assert [pods.members(ranks, stride) for ranks, stride in ((8, 1), (8, 2), (2, 1), (8, 4))] == [
        4, 2, 2, 1
    ]  # fmt: skip
    assert pods.spread_pace(8, 1) == pods.pace(8, 4) == 0.02, "within a pod"
    assert pods.spread_pace(16, 1) == max(0.02, 0.05 * 8 / 8), "all 8 of a pod share it"
    assert pods.spread_pace(4, 4) == pytest.approx(0.05 * 8 / 2), "two of each pod"
    assert pods.spread_pace(2, 4) == pods.pace(2, 1), "the second is in the same pod"
    assert pods.spread_pace(2, 8) == pytest.approx(0.05 * 8), "one of each pod has it to itself"
    assert replace(pods, beyond=None).spread_pace(16, 1) == 0.02
    quick = replace(pods, beyond=LinkTier(9.0, 0.001))
    assert quick.spread_pace(16, 1) == 0.02, "never faster than what leads there"


def test_an_all_to_all_is_as_slow_as_the_slower_of_its_ways() -> None:
    """Of 5 ranks on nodes of 4, one of 4 others is away."""
    assert (
        share_leaving_node(5, 4) == 1 / 4
        and share_leaving_node(4, 4) == 0
        and share_leaving_node(16, 1) == 1
    )
    slow_links = Network(LinkTier(5.0, 0.5), LinkTier(9.0, 0.02), 4)
    assert slow_links.exchange_pace(5, 4) == pytest.approx(3 / 4 * 0.5)


def test_replicas_of_whole_nodes_share_nothing_within() -> None:
    """Four nodes of 4, shards over 8: two replicas, one GPU of each in a node."""
    assert SHOWN.summed(16, 8) == pytest.approx(2 * 1 / 2 / 8 * SHOWN.pace(2, 1))
    assert SHOWN.summed(16, 2) == pytest.approx(2 * 7 / 8 / 2 * SHOWN.pace(8, 2))
    assert SHOWN.summed(4, 2) == pytest.approx(2 * 1 / 2 / 2 * SHOWN.pace(2, 2)), "in one node"
    assert SHOWN.shared(8) == pytest.approx(7 / 8 * 0.02)


@pytest.mark.parametrize("name", FABRICS)
def test_networks_between_nodes_have_the_line_rates_of_their_names(name: str) -> None:
    """Gb/s of a GPU's adapter. EFA: 400 Gb/s of eight GPUs (p4d), 3,200 (p5)."""
    kind, _, generation = name.partition("-")
    rates = {"hdr": 200, "ndr": 400, "xdr": 800, "p4d": 400 / 8, "p5": 3200 / 8}
    rate = rates[generation] if generation in rates else float(generation)
    assert FABRICS[name].gbps == rate / 8
    shares = {"infiniband": 0.75, "roce": 0.65, "efa": 0.65, "ethernet": 0.5}
    waits = {"infiniband": 40_000, "roce": 50_000, "efa": 80_000, "ethernet": 100_000}
    assert (FABRICS[name].achieved, FABRICS[name].latency_ns) == (shares[kind], waits[kind])


def test_networks_by_name() -> None:
    assert find_fabric("NDR") is find_fabric("infiniband") is FABRICS["infiniband-ndr"]
    assert find_fabric("roce") is FABRICS["roce-400"] and find_fabric("efa") is FABRICS["efa-p5"]
    assert named_network("NVL72") == (None, 72)
    assert named_network("xdr") == (FABRICS["infiniband-xdr"], None)
    with pytest.raises(UsageError, match="no network 'token ring'; there are infiniband-hdr"):
        find_fabric("token ring")


def test_a_network_that_is_described() -> None:
    """Domains of 8 by RoCE of 50 GB/s at 65 %, and pods of 32 whose uplinks have half of that."""
    described = described_network(gpu("a100-80gb"), 8, FABRICS["roce-400"], 400.0, 32, 2.0)
    assert described.within == LinkTier(20_000.0, pytest.approx(1 / (0.75 * 400)))
    assert described.across == LinkTier(50_000.0, pytest.approx(1 / (0.65 * 50 * 8)))
    assert described.beyond == LinkTier(50_000.0, pytest.approx(2 / (0.65 * 50 * 32)))
    assert (described.node, described.pod) == (8, 32)
    usual = described_network(gpu("a100-80gb"), 8)
    assert usual.beyond is None


def test_data_parallel_groups_beside_tensor_parallelism() -> None:
    """Two nodes of four, tensor parallelism 2: a group of four has two ranks in each node."""
    beside = replace(SHOWN, stride=2)
    assert [beside.in_node(n) for n in (1, 2, 4)] == [1, 2, 2]
    assert (beside.group_latency(2), beside.group_latency(4)) == (5.0, 9.0)
    assert beside.shared(4) == pytest.approx(3 / 4 * 0.04)
    assert beside.replicas_in_node(4, 2) == 1
    assert beside.summed(4, 2) == pytest.approx(2 / 2 / 2 * 0.08)
    assert (SHOWN.in_node(4), SHOWN.group_latency(4), SHOWN.replicas_in_node(8, 2)) == (4, 5.0, 2)
