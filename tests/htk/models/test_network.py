"""What transfers cost, worked out by hand."""

import pytest

from htk.errors import UsageError
from htk.models.hardware import gpu
from htk.models.network import LinkTier, Network, usual_adapters, usual_links, usual_network

# A node of four; 0.01 ns a byte within, 0.02 between nodes with all adapters of a node.
SHOWN = Network(LinkTier(5.0, 0.01), LinkTier(9.0, 0.02), 4)


def test_a_group_with_a_part_of_a_node_has_that_part_of_its_adapters() -> None:
    assert SHOWN.pace(4, 4) == 0.01
    assert SHOWN.pace(8, 4) == 0.02
    assert SHOWN.pace(4, 2) == pytest.approx(0.04)
    assert SHOWN.pace(2, 1) == pytest.approx(0.08)
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
    usual = usual_network(a100, 8)
    assert usual.pace(8, 8) == pytest.approx(1 / (0.75 * a100.scale_up_gbps))
    assert usual.pace(16, 8) == pytest.approx(
        max(1 / (0.75 * 8 * a100.scale_out_gbps), 1 / (0.75 * a100.scale_up_gbps))
    )


def test_an_all_to_all_leaves_the_node_through_each_gpu_s_own_share() -> None:
    """Of eight ranks on two nodes of four, four of seven others are on the other node."""
    assert SHOWN.exchange_pace(4, 4) == pytest.approx(0.01)
    assert SHOWN.exchange_pace(8, 4) == pytest.approx(4 / 7 * 4 * 0.02)
