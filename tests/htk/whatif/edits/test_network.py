"""Levels of the network, and a measured curve."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.base.schema import DERIVED, TABLES
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import network
from htk.whatif.predict import predict_answer
from tests.htk.whatif.simulated_job import step_ns, written
from tests.htk.whatif.small_step_model import comm, length, small_model
from tests.tables import make

K = 1000
# Of each kind the shortest is taken for the latency: 10 us.
STEP = (
    comm("small", 10 * K, "all_reduce", in_bytes=1024, group=4, per_node=4),
    comm("inside", 110 * K, "all_reduce", in_bytes=64 << 20, group=4, per_node=4),
    comm("outside", 410 * K, "all_reduce", in_bytes=64 << 20, group=8, per_node=4),
)


def lengths(value: str) -> list[int]:
    found = network.apply(small_model(STEP, gpus_per_node=4), value)
    return [length(found, name) // K for name in ("small", "inside", "outside")]


def test_bandwidth_and_latency_of_all() -> None:
    assert lengths("bandwidth=2x") == [10, 60, 210]
    assert lengths("latency=2x") == [20, 120, 420]


def test_of_one_level() -> None:
    assert lengths("intra_bandwidth=2x") == [10, 60, 410]
    assert lengths("inter_bandwidth=4x") == [10, 110, 110]
    assert lengths("inter_latency=3x,intra_latency=2x") == [20, 120, 430]


@pytest.mark.parametrize(
    ("value", "achieved", "latency"),
    [("inter_gbps=25", 0.75 * 25, 40), ("roce-400", 0.65 * 50, 50), ("ndr", 0.75 * 50, 40)],
)
def test_a_named_network_is_that_between_nodes(value: str, achieved: float, latency: int) -> None:
    """An all-reduce of 8 ranks sends 7/4 of its bytes, through the four adapters of a node."""
    outside = latency + 7 / 4 * (64 << 20) / (4 * achieved) / K
    assert lengths(value) == [10, 110, pytest.approx(outside, abs=1)]


def test_a_named_network_needs_a_second_node() -> None:
    for value, words in (("roce-400", "leaves its node"), ("carrier-pigeon", "no network")):
        with pytest.raises(UsageError, match=words):
            network.apply(small_model(STEP[:2], gpus_per_node=4), value)
    with pytest.raises(UsageError, match=r"no transfer leaves its node.*--world"):
        network.apply(small_model(STEP[:2], gpus_per_node=4), "lost=1")


def test_as_another_library_was_measured() -> None:
    # 5 us and 100 GB/s of bus bandwidth; of 4 ranks an all-reduce moves 1.5 times its size
    points = [
        {
            "type": "all_reduce",
            "group_size": 4,
            "size_bytes": size,
            "time_us": 5 + 1.5 * size / 1e5,
            "busbw_gbps": 1.5 * size / 1e3 / (5 + 1.5 * size / 1e5),
        }
        for size in (1 << 20, 4 << 20, 16 << 20, 64 << 20)
    ]
    tables = {name: schema.empty_table() for name, schema in {**TABLES, **DERIVED}.items()}
    tables["bench_points"] = make("bench_points", points)
    model = small_model(STEP, gpus_per_node=4, tables=tables)
    found = network.apply(model, "curve=on")
    assert length(found, "inside") == pytest.approx(5 * K + 1.5 * (64 << 20) / 100, rel=1e-3)
    assert "all" not in network.apply(model, "bandwidth=2x").assumptions[0][:3]


def test_a_curve_must_be_there() -> None:
    with pytest.raises(UsageError, match="nccl-tests"):
        lengths("curve=on")


def test_a_faster_network_never_hurts() -> None:
    for faster in ("1.5x", "3x", "100x"):
        new = lengths(f"bandwidth={faster}")
        assert all(n <= o for n, o in zip(new, [10, 110, 410], strict=True))


def test_a_lost_adapter_leaves_the_others_with_its_share(tmp_path: Path) -> None:
    """Of two adapters of each node one: transfers between nodes on half of the rate."""
    slow = {"micro_batch": 1, "seq": 512, "strategy": "ddp", "steps": 3}
    start = build_baseline(
        open_trace(str(written(tmp_path / "two", inter_gbps=20.0, **slow))).tables
    )
    truth = step_ns(written(tmp_path / "one", inter_gbps=10.0, **slow))
    answer = predict_answer(start, [("network", "lost=1")])
    assert truth > 1.2 * answer.measured_ns
    assert answer.step_ns == pytest.approx(truth, rel=0.05)
    with pytest.raises(UsageError, match="take fewer"):
        predict_answer(start, [("network", "lost=2")])
