"""Output of nccl-tests: text of every age, and JSON."""

import io

import pytest

from htk.core.parser import Head, ParseOptions, Source
from htk.parsers import nccl_tests
from tests.parsers.log_files import SAMPLES, parsed, rows, sample, values


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
