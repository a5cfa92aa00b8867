"""NCCL's own records: Inspector, profiler plugin, debug logs, RAS, RCCL's replay log."""

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from htk.core.parser import Head, Parsed, ParseOptions, Parser, Source
from htk.errors import MalformedTrace, UnknownFormat
from htk.parsers import (
    inspector,
    inspector_prometheus,
    nccl_debug,
    nccl_tests,
    parsers,
    profiler_plugin,
    ras,
    rccl_replay,
)

SAMPLES = Path(__file__).parents[2] / "sample_traces"
Row = Mapping[str, Any]
BY_FOLDER = {p.NAME: p for p in parsers()}
FILES = sorted(
    p
    for name in BY_FOLDER
    for p in (SAMPLES / name).rglob("*")
    if p.is_file() and p.stat().st_size and name != "kineto"
)


def parsed(parser: Parser, data: bytes, name: str = "a file") -> Parsed:
    return parser.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())


def sample(parser: Parser, name: str) -> Parsed:
    return parsed(parser, (SAMPLES / parser.NAME / name).read_bytes(), name)


def rows(found: Parsed, table: str = "collectives") -> list[Row]:
    return found.tables[table].to_pylist()


def values(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[n] for n in names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_any_cut_is_survived_or_refused_in_one_line(path: Path) -> None:
    parser, whole = BY_FOLDER[path.relative_to(SAMPLES).parts[0]], path.read_bytes()
    for cut in range(0, len(whole), max(len(whole) // 25, 1)):
        for data in (whole[:cut], whole[:cut] + b"\x00\xff{[" + whole[cut:]):
            try:
                parsed(parser, data, path.name)
            except (MalformedTrace, UnknownFormat) as error:
                assert "\n" not in str(error)


# Inspector


def test_inspector_line() -> None:
    first, gather, *_, send = rows(sample(inspector, "nccl-inspector-12345/node-a-pid1001.log"))
    assert values(first, "comm_hash", "comm_rank", "seq", "seq_kind") == (
        0x7F8C496AE9F661,
        0,
        0,
        "function",
    )
    assert values(first, "type", "in_bytes", "duration_ns") == ("all_reduce", 64 << 20, 620_000)
    assert values(gather, "in_bytes", "out_bytes") == (8 << 20, 16 << 20)  # one rank's, of two
    assert values(send, "type", "peer", "seq_kind", "in_bytes") == ("send", 1, "p2p", 4 << 20)
    assert first["start_ns"] is None  # a line is stamped when it is written


def test_inspector_verbose_has_times_and_channels() -> None:
    found = sample(inspector, "verbose/node-a-pid1001.log")
    scatter = rows(found)[0]
    assert values(scatter, "in_bytes", "out_bytes") == (16 << 20, 8 << 20)
    assert values(scatter, "start_ns", "end_ns", "group") == (
        1784999999999799000,
        1784999999999900000,
        None,
    )
    assert values(rows(found, "comm_channels")[0], "channel", "timing") == (0, "cpu")


@pytest.mark.parametrize(
    "printed",
    [
        lambda records: "\n".join(map(json.dumps, records)),
        lambda records: "\n".join(json.dumps(r, indent=2) for r in records),
        lambda records: json.dumps(records, indent=1),
        lambda records: json.dumps(records),
    ],
    ids=["blanks", "over lines", "a list over lines", "a list"],
)
def test_inspector_printed_anew(printed: Callable[[list[Any]], str]) -> None:
    path = SAMPLES / "inspector/nccl-inspector-12345/node-a-pid1001.log"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    data = printed(records).encode()
    assert inspector.sniff(Head("x", data, True))
    assert rows(parsed(inspector, data)) == rows(parsed(inspector, path.read_bytes()))


def test_inspector_truncated() -> None:
    found = sample(inspector, "truncated/node-a-pid78.log")
    assert len(rows(found)) == 1 and rows(found, "parse_issues")[0]["kind"] == "truncated"


def test_inspector_prints_infinity_bare() -> None:
    line = (SAMPLES / "inspector/v2.28_no_comm_name/node-a-pid77.log").read_bytes()
    changed = re.sub(rb'"coll_algobw_gbs":[\d.]+', b'"coll_algobw_gbs":inf', line)
    assert changed != line
    assert rows(parsed(inspector, changed))[0]["seq"] == 1407


def test_prometheus_of_both_layouts() -> None:
    name = "nccl_inspector_metrics_GPU-3a1f0000-1111-2222-3333-444455556666.prom"
    reduce, send = rows(sample(inspector_prometheus, f"prometheus/{name}"), "bench_points")
    assert values(reduce, "size_bytes", "algorithm", "protocol") == (64 << 20, "RING", "SIMPLE")
    assert values(reduce, "busbw_gbps", "time_us") == (106.52, 630)
    assert values(send, "type", "busbw_gbps") == ("send", 59.9186)
    (call,) = rows(sample(inspector_prometheus, f"prometheus_v2.29/{name}"))
    assert values(call, "seq", "in_bytes", "duration_ns") == (3, 64 << 20, 630_000)


# Plugin


@pytest.mark.parametrize("name", ["dump", "v2.28_unquoted"])
def test_plugin_quoted_or_not(name: str) -> None:
    found = sample(profiler_plugin, f"{name}_1493613951195738943_0.json")
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
    (call,) = rows(sample(profiler_plugin, "ce_1493613951195738943_0.json"))
    assert values(call, "algorithm", "duration_ns", "comm_rank") == ("CE MC", 44_000, 0)
    cut = sample(profiler_plugin, "truncated_1493613951195738943_0.json")
    assert rows(cut)[0]["protocol"] == "SIMPLE" and cut.facts["truncated"]


# Debug logs


def test_log_of_two_ranks() -> None:
    found = sample(nccl_debug, "two_ranks_interleaved.log")
    calls = rows(found)
    assert [r["comm_rank"] for r in calls] == [0, 1, 0, 1, 0, 1]
    assert [r["seq"] for r in calls] == [9, 9, 10, 10, 11, 11]  # opCount is hexadecimal
    assert {r["comm_hash"] for r in calls} == {0x3C1D9AEE12F04471}
    assert values(calls[0], "algorithm", "protocol", "channels") == ("RING", "SIMPLE", 2)
    assert calls[1]["algorithm"] is None  # only rank 0 of a communicator says
    assert values(calls[4], "type", "peer", "in_bytes", "out_bytes") == ("send", 1, 2 << 20, None)
    assert "2.29.7+cuda13.0" in str(found.facts["versions"])


def test_log_of_start_up() -> None:
    found = sample(nccl_debug, "two_ranks_interleaved.log")
    phases = {r["phase"]: r["duration_ns"] for r in rows(found, "comm_inits")}
    assert phases["total"] == 610_000_000 and phases["topo"] == 200_000_000
    assert rows(found, "comm_groups")[0]["nodes"] == 1
    ways = {r["transport"] for r in rows(found, "comm_transports") if r["algorithm"] is None}
    assert ways == {"P2P/CUMEM/read", "NET/IB/0(1)/GDRDMA/Shared", "SHM/direct"}


def test_log_of_tuning() -> None:
    tuned = rows(sample(nccl_debug, "two_ranks_interleaved.log"), "comm_tuning")
    table = [r for r in tuned if r["type"] == "all_reduce" and r["bandwidth_gbps"]]
    assert [values(r, "algorithm", "protocol", "time_us", "bandwidth_gbps") for r in table] == [
        ("RING", "LL", 4.6, 16.0),
        ("RING", "LL128", 12.5, 36.8),
        ("RING", "SIMPLE", 14.1, 40.0),
    ]
    assert "AllReduce_AGxLLMC_R" in {r["algorithm"] for r in tuned}
    for name, kind in (("tuning_v2.21.log", None), ("tuning_v2.23.log", "all_reduce")):
        (row,) = rows(sample(nccl_debug, name), "comm_tuning")
        assert values(row, "type", "algorithm", "protocol") == (kind, "RING", "SIMPLE")


def test_log_of_errors() -> None:
    notes = rows(sample(nccl_debug, "two_ranks_interleaved.log"), "comm_notes")
    assert [n["level"] for n in notes] == ["WARN", "TRAIL"]
    assert "status=12" in notes[0]["text"]


def test_log_torn_glued_and_prefixed() -> None:
    found = sample(nccl_debug, "torn_lines.log")
    assert found.facts["host"] == "node-a"  # not 1node-a
    assert found.facts["events"] == 4
    assert rows(found, "parse_issues")[0]["kind"] == "torn_line"


def test_logs_of_other_ages_and_of_rccl() -> None:
    (old,) = rows(sample(nccl_debug, "old_v2.16_busid.log"))
    assert values(old, "comm_hash", "comm_rank", "in_bytes") == (0x9D1, 0, 64 << 20)
    (amd,) = rows(sample(nccl_debug, "rccl_coll.log"))
    assert values(amd, "library", "rank", "dtype") == ("rccl", 0, "ncclBfloat16")


# RAS and RCCL


def test_ras_counts_and_silent_ranks() -> None:
    counts = rows(sample(ras, "status.json"), "comm_counts")
    reduced = {r["comm_rank"]: r["count"] for r in counts if r["type"] == "all_reduce"}
    assert reduced == {0: 6650, 1: 6650, 2: 6649}
    (silent,) = [r for r in counts if r["status"]]
    assert values(silent, "comm_rank", "status", "type") == (3, "unresponsive", None)


def test_rccl_replay() -> None:
    (call,) = rows(sample(rccl_replay, "replayer_log.1275.node-m.json"))
    assert values(call, "comm_hash", "comm_rank") == (17168916771200794912, 0)
    assert values(call, "in_bytes", "coalesced") == (16384, "group")
    assert call["enqueue_ns"] == 1745623619986908691


# nccl-tests


@pytest.mark.parametrize(
    ("name", "points", "truncated"),
    [
        ("all_reduce_perf.txt", 28, False),
        ("all_reduce_perf_old_error_column.txt", 28, False),
        ("all_reduce_perf_truncated.txt", 14, True),
        ("all_reduce_perf_v3.json", 28, False),
    ],
)
def test_nccl_tests(name: str, points: int, truncated: bool) -> None:
    found = sample(nccl_tests, name)
    table = rows(found, "bench_points")
    assert len(table) == points and found.facts["truncated"] is truncated
    assert values(table[0], "type", "group_size", "nodes") == ("all_reduce", 8, 1)


def test_bandwidth_is_what_the_tool_prints() -> None:
    """512 MiB: 2631.78 us, algbw 204.00 GB/s, busbw 356.99 GB/s, as in the sample."""
    text = (SAMPLES / "nccl_tests/all_reduce_perf.txt").read_text()
    printed = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    table = rows(sample(nccl_tests, "all_reduce_perf.txt"), "bench_points")
    for line, out, into in zip(printed, table[::2], table[1::2], strict=True):
        for place, point in ((5, out), (9, into)):
            assert point["time_us"] == float(line[place])
            assert point["algbw_gbps"] == pytest.approx(float(line[place + 1]), abs=0.006, rel=5e-3)
            assert point["busbw_gbps"] == pytest.approx(float(line[place + 2]), abs=0.006, rel=5e-3)


def test_the_environment_is_dropped() -> None:
    found = sample(nccl_tests, "all_reduce_perf_v3.json")
    assert "PATH" not in str(found.facts) + str(found.tables)


def test_columns_of_single_iterations_and_a_time_of_day() -> None:
    head = "# nThread 1 nGpus 4 minBytes 8\n"
    row = "  1024  256  float  none  0  10.0 0.10 0.08 0 9.0 11.0 10.9 3.5"
    row += "  12.0 0.09 0.06 N/A 1 2 3 4 18:40:01\n"
    out, into = rows(
        parsed(nccl_tests, (head + row).encode(), "broadcast_perf.txt"), "bench_points"
    )
    assert values(out, "type", "root", "time_us_min", "time_us_max", "wrong") == (
        "broadcast",
        0,
        9.0,
        11.0,
        0,
    )
    assert values(into, "time_us", "wrong", "group_size") == (12.0, None, 4)
    assert out["busbw_gbps"] == pytest.approx(1024 / 10.0 / 1e3)
