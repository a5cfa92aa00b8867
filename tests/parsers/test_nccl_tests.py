"""Output of nccl-tests: text of every age, and JSON."""

import io
import json
import random
from typing import Any

import pytest

from htk.base.core.parser import Head, ParseOptions, Source
from htk.parsers import list_parsers, nccl_tests
from tests.parsers.log_files import SAMPLES, parsed, rows, sample, values
from tests.thinned import thinned


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
    found = sample(f"nccl_tests/{name}")
    table = rows(found, "bench_points")
    assert len(table) == points and found.facts["truncated"] is truncated
    assert values(table[0], "type", "group_size", "nodes") == ("all_reduce", 8, 1)


def test_bandwidth_is_what_the_tool_prints() -> None:
    """512 MiB: 2631.78 us, algbw 204.00 GB/s, busbw 356.99 GB/s, as in the sample."""
    text = (SAMPLES / "nccl_tests/all_reduce_perf.txt").read_text()
    printed = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    table = rows(sample("nccl_tests/all_reduce_perf.txt"), "bench_points")
    for line, out, into in zip(printed, table[::2], table[1::2], strict=True):
        for place, point in ((5, out), (9, into)):
            assert point["time_us"] == float(line[place])
            assert point["algbw_gbps"] == pytest.approx(float(line[place + 1]), abs=0.006, rel=5e-3)
            assert point["busbw_gbps"] == pytest.approx(float(line[place + 2]), abs=0.006, rel=5e-3)


def test_the_environment_is_dropped() -> None:
    found = sample("nccl_tests/all_reduce_perf_v3.json")
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


def test_a_table_without_its_marks() -> None:
    points = rows(sample("nccl_tests/all_reduce_perf_without_marks.txt"), "bench_points")
    assert len(points) == 6 and {p["group_size"] for p in points} == {8}
    assert {p["type"] for p in points} == {"all_reduce"}


def test_json_behind_lines_of_text() -> None:
    data = (SAMPLES / "nccl_tests/all_reduce_perf_v3.json").read_bytes()
    behind = b"srun: job 4711 queued\nsrun: job 4711 started\n" + data
    source = Source("out.json", lambda: io.BytesIO(behind))
    bare = Source("out.json", lambda: io.BytesIO(data))
    assert nccl_tests.sniff(Head("out.json", behind[: 1 << 16]))
    tables = [
        nccl_tests.parse(s, ParseOptions()).tables["bench_points"].to_pylist()
        for s in (source, bare)
    ]
    assert tables[0] == tables[1] and tables[0]


def test_bandwidth_of_each_collective_by_hand() -> None:
    """4 ranks on 2 nodes move 2,000 bytes in 1 us: 2 GB/s, times (n-1)/n for what is exchanged by
    all, twice that for an all-reduce, once for others; a hypercube moves (n-1)/n of its size."""
    wanted = {
        "all_reduce": (2.0, 3.0),
        "all_gather": (2.0, 1.5),
        "reduce_scatter": (2.0, 1.5),
        "alltoall": (2.0, 1.5),
        "broadcast": (2.0, 2.0),
        "reduce": (2.0, 2.0),
        "gather": (2.0, 1.5),
        "scatter": (2.0, 1.5),
        "sendrecv": (2.0, 2.0),
        "hypercube": (1.5, 1.5),
    }
    for kind, bandwidth in wanted.items():
        text = f"# Collective test starting: {kind}_perf\n# nThread 2 nGpus 1 minBytes 8\n"
        for rank in range(4):
            text += f"#  Rank {rank:2} Group  0 Pid {9 + rank} on n{rank // 2} device 0 [0] H100\n"
        text += " 2000 500 float sum -1 1.0 0.1 0.1 0 2.0 0.1 0.1 N/A\n"
        out, into = rows(parsed(nccl_tests, text), "bench_points")
        assert values(out, "algbw_gbps", "busbw_gbps") == pytest.approx(bandwidth), kind
        half = tuple(value / 2 for value in bandwidth)
        assert values(into, "algbw_gbps", "busbw_gbps") == pytest.approx(half), kind
        assert values(out, "group_size", "nodes", "in_place", "wrong") == (4, 2, False, 0)
        assert values(into, "in_place", "wrong") == (True, None)


def test_what_a_row_says_of_the_operation() -> None:
    head = "# nThread 2 nGpus 3 minBytes 8\n"
    text = (
        head + " 64 16 half none -1 1.0 0 0 0 1.0 0 0 3\n 128 32 int8 prod 5 1.5 0 0 0 N/A 0 0 0\n"
    )
    log = parsed(nccl_tests, text, "reduce_perf.out")
    told = ("type", "size_bytes", "count", "dtype", "redop", "root", "group_size", "nodes")
    assert [values(r, *told, "in_place", "wrong") for r in rows(log, "bench_points")] == [
        ("reduce", 64, 16, "half", None, -1, 6, None, False, 0),
        ("reduce", 64, 16, "half", None, -1, 6, None, True, 3),
        ("reduce", 128, 32, "int8", "prod", 5, 6, None, False, 0),  # in place it was not timed
    ]
    assert log.facts["events"] == 3 and log.facts["truncated"] is True


def test_rows_of_other_widths_are_counted_and_left_out() -> None:
    head = "# nThread 1 nGpus 2 minBytes 8\n"
    good = " 64 16 half sum -1 1.0 0 0 0 1.0 0 0 0 12:00:00\n"
    text = head + good + " 64 16 half sum -1 1.0 0 0 0 1.0 0\n" + "# Avg bus bandwidth : 1\n"
    log = parsed(nccl_tests, text, "reduce_perf.out")
    assert len(rows(log, "bench_points")) == 2 and log.facts["truncated"] is False
    (issue,) = rows(log, "parse_issues")
    assert (issue["kind"], issue["offset"]) == ("broken_row", len(head + good))


def test_rows_before_the_table_begins_are_none() -> None:
    row = " 64 16 half sum -1 1.0 0 0 0 1.0 0 0 0\n"
    text = "# nccl-tests version 2.17.4 nccl-library=22703\n" + row
    text += "# nThread 1 nGpus 2 minBytes 8\n" + row
    log = parsed(nccl_tests, text, "reduce_perf.out")
    assert len(rows(log, "bench_points")) == 2
    assert json.loads(str(log.facts["versions"])) == {
        "nccl_tests": "2.17.4",
        "nccl_version": "22703",
    }


def test_the_last_of_several_tests_says_whether_the_output_is_whole() -> None:
    def run(kind: str, end: str) -> str:
        row = " 64 16 half sum -1 1.0 0 0 0 1.0 0 0 0\n"
        head = f"# Collective test starting: {kind}_perf\n# nThread 1 nGpus 2 minBytes 8\n"
        return head + row + end

    footer = "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 1\n"
    both = parsed(nccl_tests, run("reduce", footer) + run("all_gather", ""))
    assert [r["type"] for r in rows(both, "bench_points")] == ["reduce"] * 2 + ["all_gather"] * 2
    assert both.facts["truncated"] is True
    both = parsed(nccl_tests, run("reduce", "") + run("all_gather", footer))
    assert both.facts["truncated"] is False


def test_every_field_of_a_result_in_json() -> None:
    devices = [{"rank": k, "hostname": f"n{k % 3}", "device_info": "H200"} for k in range(6)]
    results: list[Any] = [
        {
            "size": 4096, "count": 1024, "type": "float", "redop": "none", "root": 3,
            "out_of_place": {"time": 2.0, "nwrong": 5},
            "out_of_place_per_iter": {"min_us": 1.5, "max_us": 2.5},
            "in_place": {"cpu_time": 4.0, "nwrong": "N/A"},
        },
        {"size": 0, "out_of_place": {"time": 2.0}},
        {"size": 8, "out_of_place": {"time": 0.0}, "in_place": 3},
        "none",
    ]  # fmt: skip
    report = {
        "version": 3, "nccl_version": 22907, "args": ["./all_gather_perf"],
        "config": {"devices": devices}, "results": results, "average_bus_bandwidth": {},
    }  # fmt: skip
    log = parsed(nccl_tests, json.dumps(report), "x.json")
    told = ("type", "group_size", "nodes", "size_bytes", "count", "dtype", "redop", "root")
    measured = ("in_place", "time_us", "time_us_min", "time_us_max", "wrong", "algbw_gbps")
    common = ("all_gather", 6, 3, 4096, 1024, "float", None, 3)
    assert [values(r, *told, *measured) for r in rows(log, "bench_points")] == [
        (*common, False, 2.0, 1.5, 2.5, 5, 2.048),
        (*common, True, 4.0, None, None, None, 1.024),
    ]
    assert [r["busbw_gbps"] for r in rows(log, "bench_points")] == pytest.approx(
        [2.048 * 5 / 6, 1.024 * 5 / 6]
    )
    assert (log.facts["device_name"], log.facts["events"]) == ("H200", 2)


def test_json_cut_short_keeps_its_whole_results_and_what_stands_before_them() -> None:
    text = (SAMPLES / "nccl_tests/all_reduce_perf_v3.json").read_text()
    results = json.loads(text)["results"]
    cut = text.index('{"size":2048,') + 20
    log = parsed(nccl_tests, text[:cut], "x.json")
    whole = sum(result["size"] < 2048 for result in results)
    found = rows(log, "bench_points")
    assert [r["size_bytes"] for r in found[::2]] == [8, 32, 128, 512] and whole == 4
    assert {(r["type"], r["group_size"]) for r in found} == {("all_reduce", 8)}
    assert log.facts["truncated"] is True


TAGS = {
    "srun --label": "0: ",
    "mpirun --tag-output": "[1,0]<stdout>:",
    "hydra": "[0] ",
    "torchrun": "[default0]:",
    "a pod's log": "2026-05-05T06:16:47.123456789Z stdout F ",
    "kubectl logs --prefix": "[pod/worker-0/main] ",
    "journalctl": "Nov 28 20:51:23 gpu-node-3 train.service[4100]: ",
    "journalctl -o short-iso": "2026-11-28T20:51:23+0000 gpu-node-3 torchrun[4100]: ",
    "journalctl -o short-full": "Sat 2026-11-28 20:51:23 UTC node3.cluster python[4100]: ",
    "journalctl -o short-unix": "1795899083.123456 node3 srun@7[4100]: ",
    "stern": "llama-worker-0 pytorch ",
    "stern -A, of a deployment": "ml-team trainer-7d4b9c6f5-x2k9p main ",
    "stern -t": "\x1b[32mllama-worker-0\x1b[0m \x1b[92mmain\x1b[0m 2026-11-28T20:51:23.1234Z ",
}


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
@pytest.mark.parametrize(
    ("sample_name", "table"),
    [
        ("nccl_tests/all_reduce_perf.txt", "bench_points"),
        ("nccl_tests/all_reduce_perf_v3.json", "bench_points"),
        ("nccl_debug/two_ranks_interleaved.log", "comm_inits"),
        ("ras/status.json", "comm_counts"),
        ("ras/text_mismatch.txt", "comm_counts"),
    ],
)
def test_a_log_behind_tags_is_that_without(tag: str, sample_name: str, table: str) -> None:
    text = (SAMPLES / sample_name).read_text()
    tagged = "".join(f"{tag}{line}\n" for line in text.splitlines())
    parser, of_tagged = (
        next(p for p in list_parsers() if p.sniff(Head("slurm-7.out", content.encode())))
        for content in (text, tagged)
    )
    assert of_tagged is parser
    plain, found = parsed(parser, text), parsed(parser, tagged)
    assert rows(plain, table) and rows(found, table) == rows(plain, table)
    assert rows(found, "parse_issues") == rows(plain, "parse_issues")


def table_of(kind: str, ranks: int, dice: random.Random, *, has_redop: bool = True) -> str:
    """Return what a test without the line that names it prints, as `src/<kind>.cu` says."""
    reduces = kind in ("all_reduce", "reduce_scatter", "reduce")
    root = 0 if kind in ("broadcast", "reduce", "gather") else -1
    times = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1, "reduce": 1, "send_recv": 1}
    checked = "N/A" if kind in ("all_to_all", "send_recv") else "0"
    lines = [f"# nThread 1 nGpus {ranks} minBytes 8", "#  size  count  type  redop  root  time"]
    for power in range(10, 32, 3):
        time = 20.0 + (1 << power) / 200e3 * dice.uniform(0.9, 1.1)
        speed = (1 << power) / time / 1e3
        cells = f"{time:.2f} {speed:.2f} {speed * times.get(kind, (ranks - 1) / ranks):.2f}"
        redop = ("sum" if reduces else "none") if has_redop else ""
        shown = f"{redop} {root}" if has_redop else ""
        lines.append(f" {1 << power} {1 << power - 2} float {shown} {cells} 0 {cells} {checked}")
    return "\n".join([*lines, "# Avg bus bandwidth : 1", ""])


@pytest.mark.parametrize("seed", thinned(range(12), 3))
def test_printed_bandwidths_tell_the_collective_that_nothing_names(seed: int) -> None:
    """Gather and scatter print the same: those keep their bandwidth, and no name."""
    dice = random.Random(seed)
    kind = dice.choice(["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv",
                        "broadcast", "reduce", "gather"])  # fmt: skip
    ranks = dice.choice([2, 4, 8, 72, 512])
    text = table_of(kind, ranks, dice)
    found = rows(parsed(nccl_tests, text, "slurm-1.out"), "bench_points")
    assert len(found) == 16 and all(p["busbw_gbps"] for p in found)
    told = (kind, "type") if kind != "gather" else ("unknown", None)
    assert {(p["type"], p["inferred_columns"]) for p in found} == {told}


def test_a_table_of_before_the_column_of_reductions() -> None:
    text = table_of("all_gather", 8, random.Random(0), has_redop=False)
    found = rows(parsed(nccl_tests, text, "a.out"), "bench_points")
    assert len(found) == 16 and {(p["type"], p["redop"]) for p in found} == {("all_gather", None)}


def test_rows_that_cannot_be_read_are_issues() -> None:
    text = "# nThread 1 nGpus 8\n#  size  count  type  redop\n 64 16 float sum 1.0 2.0\n"
    issues = rows(parsed(nccl_tests, text), "parse_issues")
    assert {i["kind"] for i in issues} == {"broken_row", "no_rows", "truncated"}
