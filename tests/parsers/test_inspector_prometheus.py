"""NCCL Inspector's Prometheus files."""

from typing import Any

from htk.base.core.parser import Parsed
from htk.parsers import inspector_prometheus
from tests.parsers.log_files import parsed, rows, sample, values


def test_prometheus_of_both_layouts() -> None:
    name = "nccl_inspector_metrics_GPU-3a1f0000-1111-2222-3333-444455556666.prom"
    reduce, send = rows(sample(f"inspector_prometheus/prometheus/{name}"), "bench_points")
    assert values(reduce, "size_bytes", "algorithm", "protocol") == (64 << 20, "RING", "SIMPLE")
    assert values(reduce, "busbw_gbps", "time_us") == (106.52, 630)
    assert values(send, "type", "busbw_gbps") == ("send", 59.9186)
    (call,) = rows(sample(f"inspector_prometheus/prometheus_v2.29/{name}"))
    assert values(call, "seq", "in_bytes", "duration_ns") == (3, 64 << 20, 630_000)


def written(*samples: tuple[str, dict[str, Any], float | str]) -> Parsed:
    lines = []
    for name, labels, value in samples:
        listed = ",".join(f'{key}="{label}"' for key, label in labels.items())
        lines.append(f"{name}{{{listed}}} {value}")
    return parsed(inspector_prometheus, "\n".join(["# a comment", *lines]) + "\n", "x.prom")


def test_every_field_of_a_bucket() -> None:
    labels = {"hostname": "n1", "nranks": 16, "n_nodes": 2, "collective": "AllGather"}
    labels |= {"message_size": "4-5KB", "algo_proto": "NVLS_TREE_LL128"}
    other = {"node": "n2", "nranks": 2, "p2p_operation": "Recv", "message_size": "1.5GiB"}
    log = written(
        ("nccl_bus_bandwidth_gbs", labels, 7.5),
        ("nccl_algorithm_bandwidth_gbs", labels, 8.0),
        ("nccl_collective_exec_time_microseconds", labels, 12.25),
        ("nccl_bus_bandwidth_gbs", labels | {"message_size": "9B"}, "NaN"),
        ("nccl_p2p_exec_time_microseconds", other, 3.0),
    )
    told = ("type", "group_size", "nodes", "size_bytes", "algorithm", "protocol")
    measured = ("busbw_gbps", "algbw_gbps", "time_us")
    assert [values(r, *told, *measured) for r in rows(log, "bench_points")] == [
        ("all_gather", 16, 2, 4_096, "NVLS_TREE", "LL128", 7.5, 8.0, 12.25),
        ("recv", 2, None, 3 << 29, None, None, None, None, 3.0),
    ]
    assert (log.facts["host"], log.facts["events"]) == ("n1", 2)


def test_every_field_of_a_call_of_the_older_layout() -> None:
    """16 ranks gather 2 MiB each; the sizes of what goes in and out differ."""
    labels = {"node": "n3", "comm_id": "0xAB", "rank": 5, "nranks": 16, "coll_sn": 41}
    labels |= {"collective": "AllGather", "message_size": "2.00MB"}
    log = written(
        ("nccl_exec_time_microseconds", labels, 1.5),
        ("nccl_exec_time_microseconds", labels | {"comm_id": "AB", "message_size": "big"}, 2.0),
        ("nccl_bus_bandwidth_gbs", labels | {"coll_sn": 42, "collective": "ReduceScatter"}, 2.0),
    )
    told = ("comm_hash", "comm_rank", "group_size", "seq", "type", "raw_name", "in_bytes")
    assert [values(c, *told, "out_bytes", "duration_ns") for c in rows(log)] == [
        (0xAB, 5, 16, 41, "all_gather", "AllGather", 2 << 20, 32 << 20, 1_500),
        (None, 5, 16, 41, "all_gather", "AllGather", None, None, 2_000),
        (0xAB, 5, 16, 42, "reduce_scatter", "ReduceScatter", 32 << 20, 2 << 20, None),
    ]
    assert {values(c, "seq_kind", "library", "timing") for c in rows(log)} == {
        ("function", "nccl", "gpu")
    }
    assert log.facts["host"] == "n3"
