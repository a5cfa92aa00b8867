"""NCCL's example profiler plugin."""

import pytest

from tests.parsers.log_files import rows, sample, values


@pytest.mark.parametrize("name", ["dump", "v2.28_unquoted"])
def test_plugin_quoted_or_not(name: str) -> None:
    found = sample(f"profiler_plugin/{name}_1493613951195738943_0.json")
    (call,) = rows(found)
    assert values(call, "comm_hash", "comm_rank", "seq") == (1493613951195738943, 0, 0)
    assert values(call, "algorithm", "protocol", "channels") == ("RING", "SIMPLE", 2)
    assert values(call, "in_bytes", "dtype") == (1 << 20, "ncclFloat32")
    assert call["end_ns"] - call["start_ns"] == 240_000  # by the GPU's clock
    (channel,) = rows(found, "comm_channels")
    assert values(channel, "channel", "type", "seq") == (0, "all_reduce", 0)
    steps = {r["name"]: r for r in rows(found, "proxy_steps")}
    assert steps["SendGpuWait"]["end_ns"] - steps["SendGpuWait"]["start_ns"] == 77_000
    assert values(steps["SendWait"], "channel", "peer", "proxy_step") == (0, 1, 0)


def test_plugin_copy_engine_and_truncated() -> None:
    (call,) = rows(sample("profiler_plugin/ce_1493613951195738943_0.json"))
    assert values(call, "algorithm", "duration_ns", "comm_rank") == ("CE MC", 44_000, 0)
    cut = sample("profiler_plugin/truncated_1493613951195738943_0.json")
    assert rows(cut)[0]["protocol"] == "SIMPLE" and cut.facts["truncated"]
