"""NCCL Inspector's Prometheus files."""

from tests.parsers.log_files import rows, sample, values


def test_prometheus_of_both_layouts() -> None:
    name = "nccl_inspector_metrics_GPU-3a1f0000-1111-2222-3333-444455556666.prom"
    reduce, send = rows(sample(f"inspector_prometheus/prometheus/{name}"), "bench_points")
    assert values(reduce, "size_bytes", "algorithm", "protocol") == (64 << 20, "RING", "SIMPLE")
    assert values(reduce, "busbw_gbps", "time_us") == (106.52, 630)
    assert values(send, "type", "busbw_gbps") == ("send", 59.9186)
    (call,) = rows(sample(f"inspector_prometheus/prometheus_v2.29/{name}"))
    assert values(call, "seq", "in_bytes", "duration_ns") == (3, 64 << 20, 630_000)
