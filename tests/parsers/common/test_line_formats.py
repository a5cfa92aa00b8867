"""Several formats in one file: each line goes to the format that knows it, and is counted."""

from htk.base.core.parser import Head
from htk.parsers import nccl_debug, nccl_tests, python_stacks, ras, watchdog
from tests.parsers.log_files import SAMPLES, parsed, readings, rows, sample


def test_a_benchmark_among_lines_of_nccl() -> None:
    mixed = sample("nccl_tests/with_nccl_log.txt")
    points = rows(mixed, "bench_points")
    assert [(p["size_bytes"], p["in_place"], p["time_us"]) for p in points] == [
        (8, False, 36.25), (8, True, 36.04),
        (1048576, False, 51.02), (1048576, True, 50.11),
        (134217728, False, 1002.4), (134217728, True, 1001.0),
    ]  # fmt: skip
    assert {p["group_size"] for p in points} == {2}
    assert [(c["comm_rank"], c["in_bytes"]) for c in rows(mixed, "collectives")] == [
        (0, 1 << 20),
        (1, 1 << 20),
    ]
    ended, warning, trail = rows(mixed, "comm_notes")
    assert (ended["source"], ended["level"]) == ("nccl_tests", "ENDED")
    assert (warning["level"], trail["level"], warning["host"]) == ("WARN", "TRAIL", "node-a")
    assert warning["time_ns"] == 1763027887 * 10**9  # date -u -d "2025-11-13 09:58:07" +%s


def test_every_line_is_accounted_for() -> None:
    path = SAMPLES / "nccl_tests/with_nccl_log.txt"
    counts = readings(sample("nccl_tests/with_nccl_log.txt"))
    assert counts.total() == len(path.read_text().splitlines())
    assert counts[None, "unknown"] == 1  # "this line is of no format at all"
    assert counts["nccl_debug", "skipped"] == 2  # what the bootstrap uses
    assert counts["nccl_tests", "read"] == 11
    assert counts["nccl_debug", "read"] == 9


def test_numbers_outside_of_a_benchmark_are_no_rows() -> None:
    row = " 8 2 float sum -1 36.25 0.00 0.00 0 36.04 0.00 0.00 0\n"
    (line,) = rows(parsed(nccl_debug, "a:1:2 [0] NCCL INFO x\n"), "log_lines")
    assert line["reading"] == "skipped"
    assert not rows(parsed(nccl_debug, "a:1:2 [0] NCCL INFO x\n" + row), "bench_points")


def test_each_format_of_lines_has_its_name() -> None:
    for parser, name in (
        (watchdog, "watchdog/rank_missing.log"),
        (python_stacks, "python_stacks/rank2.txt"),
        (ras, "ras/text_mismatch.txt"),
        (nccl_tests, "nccl_tests/with_nccl_log.txt"),
    ):
        assert parser.sniff(Head("x", (SAMPLES / name).read_bytes(), True))
