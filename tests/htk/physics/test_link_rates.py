"""Rates of links by the name that the driver gives a GPU."""

import pytest

from htk.physics.link_rates import group_gbps, scale_up_gbps


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("NVIDIA H100 80GB HBM3", 450.0),
        ("NVIDIA A100-SXM4-80GB", 300.0),
        ("NVIDIA A100-PCIE-40GB", 32.0),
        ("Tesla V100-SXM2-32GB", 150.0),
        ("NVIDIA H20", 450.0),
        ("AMD Instinct MI300X", 448.0),
        ("a card of nobody", None),
        (None, None),
    ],
)
def test_rates(name: str | None, rate: float | None) -> None:
    assert scale_up_gbps(name) == rate


def test_a_group_over_nodes_has_its_share_of_the_adapters() -> None:
    """Two of eight GPUs of a node with 400 GB/s of adapters."""
    assert group_gbps(450.0, 400.0, 2, 8) == 100.0
    assert group_gbps(50.0, 400.0, 8, 8) == 50.0
    assert group_gbps(450.0, None, 2, 8) is None
