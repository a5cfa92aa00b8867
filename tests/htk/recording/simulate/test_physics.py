"""How long collectives and products take: by hand, and apart from what predictions assume."""

import ast
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import htk
from htk.recording.simulate.config import Config
from htk.recording.simulate.network import ClusterNetwork
from htk.recording.simulate.products import ProductTimes

CLUSTER = Config(nodes=128, gpus_per_node=8)
ROOT = Path(htk.__file__).parent


def test_a_ring_is_later_by_the_same_for_each_rank_more() -> None:
    network = ClusterNetwork(CLUSTER)
    small = [network.transfer("all_gather", 0, n, 1, n).ns for n in (2, 3, 4, 5, 6)]
    hops = {b - a for a, b in pairwise(small)}
    assert max(hops) - min(hops) <= 1  # rounded
    assert 0.85 * 600 <= min(hops) <= 1.15 * 600


def test_a_ring_through_many_nodes_takes_milliseconds() -> None:
    """1,024 ranks on 128 nodes: 1,023 hops, an eighth of them between nodes."""
    took = ClusterNetwork(CLUSTER).transfer("all_gather", 0, 1024, 128, 8)
    far, near = 1023 / 8, 1023 * 7 / 8
    by_hand = far * 2700 + near * 600
    assert took.algorithm == "RING"
    assert 0.85 * by_hand < took.ns - 9000 and took.ns - 4000 < 1.15 * by_hand


def test_a_tree_is_later_by_the_same_for_twice_the_nodes() -> None:
    network = ClusterNetwork(CLUSTER)
    small = [network.transfer("all_reduce", 8, 8 * n, n, 8) for n in (16, 32, 64, 128)]
    assert {took.algorithm for took in small} == {"TREE"}
    levels = {b.ns - a.ns for a, b in pairwise(small)}
    assert max(levels) - min(levels) <= 1
    assert 2 * 0.85 * 2700 <= min(levels) <= 2 * 1.15 * 2700


def test_large_messages_move_at_the_rate_of_the_adapters_that_a_group_has() -> None:
    network = ClusterNetwork(replace(CLUSTER, inter_gbps=200.0))
    wire = 1 << 34
    whole, single = (network.transfer("all_gather", wire, 4 * g, 4, g) for g in (8, 1))
    assert whole.protocol == single.protocol == "Simple"
    assert 0.90 * 200 < wire / whole.ns < 0.97 * 200
    assert 0.90 * 25 < wire / single.ns < 0.97 * 25


def test_small_messages_take_the_protocol_of_the_least_latency() -> None:
    network = ClusterNetwork(CLUSTER)
    sizes = [1 << k for k in range(4, 30)]
    chosen = [network.transfer("all_gather", size, 64, 8, 8).protocol for size in sizes]
    assert list(dict.fromkeys(chosen)) == ["LL", "LL128", "Simple"]
    times = [network.transfer("all_gather", size, 64, 8, 8).ns for size in sizes]
    assert times == sorted(times)


class OneTile(Config):
    """A library with kernels of one size."""

    @property
    def tiles(self) -> tuple[tuple[int, int, float], ...]:
        return ((256, 128, 1.0),)


@pytest.fixture(params=range(4))
def ampere(request: pytest.FixtureRequest) -> ProductTimes:
    return ProductTimes(Config(seed=request.param), 250e3, 1600.0)


def test_no_product_beats_the_rate_or_the_memory(ampere: ProductTimes) -> None:
    for m, n, k in ((128, 128, 64), (4096, 4096, 4096), (8, 4096, 4096), (8192, 11008, 512)):
        ns = ampere.timed(m, n, k, "tn").ns
        assert ns > 2 * m * n * k / 250e3
        assert ns > 2 * (m * k + k * n + m * n) / 1600


@pytest.mark.parametrize("seed", range(4))
def test_a_partial_wave_is_shorter_than_a_whole_one(seed: int) -> None:
    """108 multiprocessors, blocks of 256 by 128: 108, 109 and 216 of them; memory is no limit."""
    products = ProductTimes(OneTile(seed=seed), 250e3, 1e9)

    def took(rows: int) -> int:
        return products.timed(256 * rows, 128, 8192, "tn").ns

    one, more, two = took(108), took(109), took(216)
    assert one + 0.5 * (two - one) < more < one + 0.95 * (two - one)


def test_more_inner_length_takes_longer(ampere: ProductTimes) -> None:
    times = [ampere.timed(2048, 2048, k, "tn").ns for k in (256, 512, 1024, 2048, 4096, 8192)]
    assert times == sorted(times)


def test_few_blocks_share_a_long_inner_dimension(ampere: ProductTimes) -> None:
    gemm = ampere.timed(256, 256, 65536, "nt")
    assert gemm.grid[2] > 1
    assert ampere.timed(8192, 8192, 65536, "nt").grid[2] == 1


def test_persistent_blocks_share_work_evenly() -> None:
    products = ProductTimes(OneTile(gpu="h100"), 600e3, 1e9)
    units = Config(gpu="h100").device.units
    assert products.timed(8192, 8192, 4096, "tn").grid == (units, 1, 1)
    one, more, two = (
        products.timed(256 * rows, 128, 8192, "tn").ns for rows in (units, units + 1, 2 * units)
    )
    assert more - one < 0.05 * (two - one)


def test_simulated_times_and_predictions_share_no_function() -> None:
    """Predictions read nothing of the simulator; it takes sizes from the models, never a time."""
    sizes = {"decoder", "hardware", "memory", "presets", "wire"}
    for file in ROOT.rglob("*.py"):
        simulator = file.parent.name == "simulate"
        if not simulator and "recording.simulate" not in file.read_text(encoding="utf-8"):
            continue
        for module in _imported(file):
            if simulator and module.startswith("htk.physics"):
                assert module.split(".")[2] in sizes, (file, module)
            elif not simulator and module.startswith("htk.recording.simulate"):
                assert file.name == "simulate.py", (file, module)  # the command


def _imported(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
             for alias in node.names]  # fmt: skip
    return names + [
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    ]
