"""Latency, bytes on the wire and the share of adapters of each transfer, by hand."""

import numpy as np
import pytest

from htk.physics.network import LATENCY_NS
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import (
    compute_wire_bytes,
    find_latencies,
    gpus_of_a_node,
    rescale_transfers,
    share_adapters,
)
from tests.htk.whatif.small_step_model import Act, comm, small_model

MB = 10**6


def step(gpus_per_node: int = 4) -> StepModel:
    """Compute, three all-reduces of which one is quick, a gather and a call of unknown size."""
    return small_model(
        [
            Act("a", 700_000),
            comm("quick", 12_000, "all_reduce", in_bytes=8, group=8, per_node=4),
            comm("r", 440_000, "all_reduce", in_bytes=6 * MB, group=3, per_node=3),
            comm("g", 300_000, "all_gather", in_bytes=MB, out_bytes=4 * MB, group=4, per_node=2),
            comm("never", 0, "all_gather", in_bytes=MB, out_bytes=4 * MB, group=4, per_node=9),
            comm("odd", 50_000, "barrier", group=8, per_node=0),
        ],
        gpus_per_node=gpus_per_node,
    )


def by_name(model: StepModel, values: np.ndarray) -> dict[str, float]:
    acts = model.graph.activities
    return {acts.names[n]: v for n, v in zip(acts.name.tolist(), values.tolist(), strict=True)}


def test_a_kind_s_latency_is_no_more_than_its_shortest_call() -> None:
    found = by_name(step(), find_latencies(step()))
    assert found["quick"] == found["r"] == 12_000
    assert found["g"] == found["odd"] == found["a"] == LATENCY_NS == 20_000
    assert found["never"] == LATENCY_NS, "what takes no time tells no latency"


def test_only_what_is_beyond_the_latency_is_rescaled() -> None:
    model = step()
    chosen = model.is_collective("all_reduce", "all_gather")
    found = by_name(model, rescale_transfers(model, chosen, 0.5))
    assert found["r"] == 12_000 + 428_000 / 2
    assert found["g"] == 20_000 + 280_000 / 2
    assert found["quick"] == 12_000 and found["never"] == 0
    assert found["odd"] == 50_000 and found["a"] == 700_000, "not chosen"


def test_what_a_rank_sends() -> None:
    found = by_name(step(), compute_wire_bytes(step()))
    assert found["r"] == pytest.approx(2 * 2 / 3 * 6 * MB)
    assert found["g"] == found["never"] == pytest.approx(3 / 4 * 4 * MB)
    assert found["quick"] == pytest.approx(2 * 7 / 8 * 8)
    assert np.isnan(found["odd"]) and np.isnan(found["a"])


def test_a_group_has_the_adapters_of_its_members() -> None:
    model = step()
    assert set(by_name(model, share_adapters(model, False)).values()) == {1.0}
    found = by_name(model, share_adapters(model, True))
    assert found == {"a": 0.25, "quick": 1.0, "r": 0.75, "g": 0.5, "never": 2.25, "odd": 0.25}


def test_nodes_have_eight_gpus_where_nothing_tells() -> None:
    assert gpus_of_a_node(step()) == 4 and gpus_of_a_node(step(0)) == 8


def test_all_to_alls_leave_the_node_through_each_member_s_own_adapter() -> None:
    """Of eight ranks on two nodes of four a rank sends 4/7 away, by a quarter of its node's."""
    model = small_model(
        [Act("a", 1), comm("x", 9, "all_to_all", in_bytes=8, out_bytes=8, group=8, per_node=4)],
        gpus_per_node=4,
    )
    assert by_name(model, share_adapters(model, True))["x"] == pytest.approx(1 / 4 / (4 / 7))


def test_without_the_size_of_a_group_nothing_is_known_of_what_is_sent() -> None:
    sizes = {"in_bytes": MB, "out_bytes": MB}
    acts = [comm(f"c{n}", 9, "all_reduce", group=n, **sizes) for n in (-1, 0, 1, 2)]
    sent = by_name(model := small_model(acts), compute_wire_bytes(model))
    assert np.isnan(sent["c-1"]) and np.isnan(sent["c0"])
    assert (sent["c1"], sent["c2"]) == (0, MB)
