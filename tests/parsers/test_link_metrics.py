"""Counters of links as exporters serve them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import link_metrics

SAMPLES = Path(__file__).parents[2] / "sample_traces/link_metrics"
T = 1_785_000_000 * 10**9


def parsed(data: bytes) -> Parsed:
    return link_metrics.parse(Source("a.prom", lambda: io.BytesIO(data)), ParseOptions())


def rows(data: bytes) -> list[dict[str, Any]]:
    table: Any = parsed(data).tables["link_samples"]
    listed: list[dict[str, Any]] = table.to_pylist()
    return listed


def test_rates_of_dcgm() -> None:
    """Two GPUs, three scrapes, NVLink both ways and PCIe; a temperature is left out."""
    found = rows((SAMPLES / "dcgm.prom").read_bytes())
    assert len(found) == 2 * 3 * 3
    last = [r for r in found if r["link"] == "nvlink" and r["device"] == 1][-1]
    assert (last["host"], last["port"], last["direction"]) == ("node-a", "nvidia1", "received")
    assert (last["bytes_per_s"], last["total_bytes"]) == (6e9, None)
    assert last["time_ns"] == T + 2 * 10**9
    assert {r["direction"] for r in found if r["link"] == "pcie"} == {"sent"}


def test_totals_of_node_exporter() -> None:
    found = rows((SAMPLES / "node_exporter.openmetrics").read_bytes())
    assert {r["port"] for r in found} == {"mlx5_0/1", "mlx5_1/1", "eth0"}  # no loopback
    assert {r["host"] for r in found} == {"node-a"}  # without the exporter's port
    sent = [r["total_bytes"] for r in found if r["port"] == "mlx5_1/1" and r["direction"] == "sent"]
    assert sent == [10**12, 10**12 + 3_100_000_000, 10**12 + 6_200_000_000]
    assert found[0]["time_ns"] == T + 250_000_000


def test_a_dump_of_prometheus() -> None:
    first, second = rows((SAMPLES / "tsdb_dump.txt").read_bytes())
    assert (first["host"], first["port"], first["link"]) == ("node-b", "mlx5_0/1", "infiniband")
    assert second["time_ns"] - first["time_ns"] == 10**9


def test_answers_of_prometheus_are_samples_as_well() -> None:
    series = {"__name__": "node_network_receive_bytes_total", "device": 'eth"0', "instance": "n:9"}
    values = [[T / 10**9 + 0.5, "1000"], [T / 10**9 + 15, "2000"], ["no time", "3"], [1]]
    result = [{"metric": series, "values": values}, {"metric": {"__name__": "up"}}, 5]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    text = json.dumps(answer).encode()
    assert link_metrics.sniff(Head("answer.json", text))
    assert [
        (row["host"], row["port"], row["time_ns"] - T, row["total_bytes"]) for row in rows(text)
    ] == [("n", 'eth"0', 500_000_000, 1000), ("n", 'eth"0', 15 * 10**9, 2000)]
    for damaged in (text[:-9], text.replace(b"node_network", b"other")):
        with pytest.raises(MalformedTrace):
            parsed(damaged)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e400"])
def test_a_value_that_is_none_is_null(value: str) -> None:
    line = b'DCGM_FI_PROF_NVLINK_TX_BYTES{gpu="0"} %s 5\n' % value.encode()
    total = b'node_network_receive_bytes_total{device="eth0"} %s 5\n' % value.encode()
    rate, counter = rows(line + total)
    assert rate["bytes_per_s"] is None and counter["total_bytes"] is None


def test_broken_lines_are_counted_and_other_metrics_are_not_enough() -> None:
    good = b'DCGM_FI_PROF_PCIE_TX_BYTES{gpu="3"} 7\n'
    found = parsed(b"DCGM_FI_PROF_PCIE_TX_BYTES{gpu=\n" + good)
    issues: Any = found.tables["parse_issues"]
    assert [r["kind"] for r in issues.to_pylist()] == ["broken_line"]
    (row,) = rows(good)
    assert (row["time_ns"], row["device"], row["host"]) == (None, 3, None)
    with pytest.raises(MalformedTrace, match=r"no counter of NVLink.* among its samples"):
        parsed(b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 41\n')


def test_counters_of_dcgm_that_have_no_direction_are_named() -> None:
    """Its default list: a total of both ways, and rates by NVML; the bytes beside them are read."""
    data = b'DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0"} 7\n'
    data += b'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu="0"} 5\n' * 3
    issues: Any = parsed(data).tables["parse_issues"]
    (issue,) = issues.to_pylist()
    assert (issue["kind"], issue["count"]) == ("unread_counter", 3)
    assert "switch on DCGM_FI_PROF_NVLINK_TX_BYTES" in issue["text"]
    with pytest.raises(MalformedTrace, match=r"dcp-metrics-included\.csv"):
        parsed(b'DCGM_FI_DEV_PCIE_TX_THROUGHPUT{gpu="0"} 41\n')


def test_other_files_are_not_its_own() -> None:
    for data in (b'nccl_bus_bandwidth_gbs{a="b"} 1\n', b"up 1\n", b'{"a": "DCGM_FI_PROF_X"}'):
        assert not link_metrics.sniff(Head("a", data))
