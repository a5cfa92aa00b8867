"""Logs of jobs: several formats in one file, whatever launchers put before a line."""

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace, UnknownFormat
from htk.io.sources import head, resolve
from htk.parsers import (
    job_log,
    nccl_debug,
    nccl_tests,
    parsers,
    python_stacks,
    ras,
    watchdog,
)
from htk.parsers.common import log_lines, log_records
from htk.parsers.common.log_lines import unprefixed
from htk.schema import TABLES

SAMPLES = Path(__file__).parents[2] / "sample_traces"
Row = Mapping[str, Any]


def parsed(text: str | bytes, name: str = "a.log") -> Parsed:
    data = text if isinstance(text, bytes) else text.encode()
    return nccl_debug.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())


def sample(name: str) -> Parsed:
    path = SAMPLES / name
    (source,) = resolve(path)
    (parser,) = [p for p in parsers() if p.sniff(head(source))][:1]
    return parser.parse(source, ParseOptions())


def rows(of: Parsed, table: str) -> list[Row]:
    return of.tables[table].to_pylist()


def readings(of: Parsed) -> Counter[tuple[str | None, str]]:
    return Counter({(r["source"], r["reading"]): r["lines"] for r in rows(of, "log_lines")})


# Several formats in one file


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
    warning, trail = rows(mixed, "comm_notes")
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


def test_a_table_without_its_marks() -> None:
    points = rows(sample("nccl_tests/all_reduce_perf_without_marks.txt"), "bench_points")
    assert len(points) == 6 and {p["group_size"] for p in points} == {8}
    assert {p["type"] for p in points} == {"all_reduce"}


def test_numbers_outside_of_a_benchmark_are_no_rows() -> None:
    row = " 8 2 float sum -1 36.25 0.00 0.00 0 36.04 0.00 0.00 0\n"
    (line,) = rows(parsed("a:1:2 [0] NCCL INFO x\n"), "log_lines")
    assert line["reading"] == "skipped"
    assert not rows(parsed("a:1:2 [0] NCCL INFO x\n" + row), "bench_points")


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


def test_what_a_job_says_last_is_found() -> None:
    (source,) = resolve(SAMPLES / "job_log/slurm-4711.out.gz")
    assert [p.NAME for p in parsers() if p.sniff(head(source))] == ["job_log"]
    end = sample("job_log/slurm-4711.out.gz")
    assert [c["seq"] for c in rows(end, "collectives")] == [78, 78, 78]
    assert readings(end)[None, "unknown"] >= 1200


def test_a_text_of_no_known_line_is_no_log() -> None:
    source = Source("notes.log", lambda: io.BytesIO(b"hello\n" * 20_000))
    with pytest.raises(UnknownFormat, match=r"notes\.log"):
        job_log.parse(source, ParseOptions())
    with pytest.raises(MalformedTrace):
        parsed("hello\n")


def test_an_endless_line_is_read_in_bounded_time() -> None:
    line = b"node-a:1:2 [0] NCCL INFO " + b"WorkNCCL(SeqNum=" * (50 * (1 << 20) // 16)
    long = parsed(line + b"\nnode-a:1:2 [0] NCCL INFO y\n")
    assert [i["kind"] for i in rows(long, "parse_issues")] == ["overlong_line"]
    assert readings(long).total() == 2


def test_behind_a_progress_bar() -> None:
    bar = "".join(f"\rEpoch 3: {k}it [00:{k % 60:02d}, loss=5.46]" for k in range(5000))
    (work,) = (SAMPLES / "watchdog/rank_missing.log").read_text().splitlines()[:1]
    (call,) = rows(parsed(bar + work + "\n"), "collectives")
    assert (call["rank"], call["seq"]) == (0, 78)


# What launchers put before a line

NCCL = "node-a:4100:4200 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 0 busId 1b000 commId 0x2 - Init COMPLETE"  # noqa: E501


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("", None),
        ("[1,3]<stdout>:", 3),
        ("[1,3]<stderr>: ", 3),
        ("[prterun-node-a-71@1,3]<stdout>: ", None),
        ("3: ", None),
        ("[3] ", None),
        ("node-7: ", None),
        ("10.0.0.7: ", None),
        ("[default3]:", None),
        ("[rank3]: ", 3),
        ("(TrainWorker pid=90210, ip=10.0.0.4) ", None),
        ("\x1b[36m(TrainWorker[rank=3] pid=90210, ip=10.0.0.4)\x1b[0m ", 3),
        ("2025-11-13T09:58:07.123456789Z ", None),
        ("2025-11-13T09:58:07.123456789Z stdout F ", None),
        ("[pod/job-0/trainer] 2025-11-13T09:58:07Z ", None),
        ("worker-1  | ", None),
        ("[2025-11-13 09:58:07] ", None),
    ],
)
def test_prefixes(prefix: str, rank: int | None) -> None:
    log = parsed(prefix + NCCL + "\n")
    (group,) = rows(log, "comm_groups")
    assert (group["comm_hash"], group["group_size"]) == (2, 8)
    (init,) = rows(log, "comm_inits")
    assert (init["host"], init["process"], init["comm_rank"]) == ("node-a", "4100", 3)
    stripped = unprefixed(0, prefix + "Traceback (most recent call last):")
    if not prefix.startswith(("[2025", "[prterun")):
        assert stripped.text == "Traceback (most recent call last):" and stripped.rank == rank


@pytest.mark.parametrize("text", ["NCCL INFO", "[0] NCCL INFO", "misc/x.cc:12 NCCL WARN"])
def test_lines_of_nccl_without_host_and_process(text: str) -> None:
    log = parsed(f"{text} comm 0x1 rank 1 nranks 2 cudaDev 0 busId 1 commId 0x9 - Init COMPLETE\n")
    named = rows(log, "comm_groups") or rows(log, "comm_notes")
    assert len(named) == 1


def test_calls_carry_the_time_that_the_log_does() -> None:
    call = (
        "AllReduce: opCount 1 sendbuff 0x7 recvbuff 0x7 count 1024 datatype 7 op 0 root 0 "
        "comm 0x1 [nranks=8] stream 0x5"
    )
    line = f"[2025-11-13 09:58:07.250] node-a:4100:4200 [0] NCCL INFO {call}"
    (row,) = rows(parsed(f"{NCCL}\n{line}\n"), "collectives")
    assert row["enqueue_ns"] == 1763027887_250_000_000 and row["comm_hash"] == 2
    (row,) = rows(parsed(f"{NCCL}\nnode-a:4100:4200 [0] NCCL INFO {call}\n"), "collectives")
    assert row["enqueue_ns"] is None


def test_many_calls_are_kept_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What NCCL chose stands in the line after a call: the row is still to be changed then."""
    monkeypatch.setattr(log_lines, "_LATEST_ROWS", 4)
    lines = [NCCL]
    for k in range(50):
        lines.append(
            f"node-a:4100:4200 [0] NCCL INFO AllReduce: opCount {k:x} sendbuff 0x7 recvbuff 0x7 "
            f"count {1024 + k} datatype 7 op 0 root 0 comm 0x1 [nranks=8] stream 0x5"
        )
        lines.append(
            f"node-a:4100:4200 [0] NCCL INFO AllReduce: {4 * (1024 + k)} Bytes -> Algo RING proto "
            "SIMPLE channel{Lo..Hi}={0..7}"
        )
    calls = rows(parsed("\n".join(lines)), "collectives")
    assert [c["in_elements"] for c in calls] == list(range(1024, 1074))
    assert [c["event"] for c in calls] == list(range(50))
    assert {(c["algorithm"], c["channels"]) for c in calls} == {("RING", 8)}


# The watchdog


def test_the_call_that_timed_out() -> None:
    log = sample("watchdog/rank_missing.log")
    calls = rows(log, "collectives")
    assert [(c["rank"], c["group"], c["group_desc"], c["seq"], c["type"]) for c in calls] == [
        (rank, "0", "default_pg", 78, "all_reduce") for rank in (0, 1, 3)
    ]
    first = calls[0]
    assert first["in_elements"] == first["out_elements"] == 1 << 20
    assert first["timeout_ns"] == 600 * 10**9
    assert first["duration_ns"] is None, "it did not end: what it ran is no communication time"
    assert first["state"] == "timed_out" and first["library"] == "nccl"
    assert first["frames"].splitlines()[1] == "step (/app/train.py:41)"


def test_the_counters_of_a_rank_that_only_hears_of_it() -> None:
    states = rows(sample("watchdog/rank_missing.log"), "comm_groups")
    counts = {s["rank"]: (s["last_enqueued"], s["last_completed"]) for s in states}
    assert counts == {0: (80, 77), 1: (80, 77), 2: (77, 77), 3: (78, 77)}


def test_ranks_of_a_subgroup_are_those_before_the_line() -> None:
    calls = rows(sample("watchdog/ray_subgroup_size.log"), "collectives")
    assert [(c["rank"], c["comm_rank"], c["group"]) for c in calls] == [
        (4, 0, "9"), (5, 1, "9"), (6, 2, "9"),
    ]  # fmt: skip
    assert {c["type"] for c in calls} == {"all_gather"}


def test_words_of_torch_1_13() -> None:
    (call,) = rows(sample("watchdog/torch_1.13.log"), "collectives")
    assert (call["rank"], call["inferred_columns"], call["in_shapes"]) == (1, "rank", "[4096,512]")
    assert readings(sample("watchdog/torch_1.13.log"))["watchdog", "skipped"] == 1


def test_counters_that_contradict_each_other_are_not_used() -> None:
    line = (
        "[rank1]:[E1 00:00:00.1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1] "
        "failure detected by watchdog at work sequence id: 524 PG status: last enqueued work: 524, "
        "last completed work: 792\n"
    )
    log = parsed(line)
    (state,) = rows(log, "comm_groups")
    assert (state["last_enqueued"], state["last_completed"]) == (None, None)
    assert [i["kind"] for i in rows(log, "parse_issues")] == ["contradictory_counters"]


# Python


def test_py_spy() -> None:
    main, loader = rows(sample("python_stacks/rank2.txt"), "python_stacks")
    assert (main["rank"], main["process"], main["thread_name"]) == (2, "4102", "MainThread")
    assert main["frames"].splitlines()[:3] == [
        "wait (threading.py:327)", "get (queue.py:180)", "next_batch (app/loader.py:88)",
    ]  # fmt: skip
    assert loader["state"] == "active+gil" and len(loader["frames"].splitlines()) == 2


def test_faulthandler() -> None:
    other, current = rows(sample("python_stacks/faulthandler_rank0.txt"), "python_stacks")
    assert (current["rank"], current["state"]) == (0, "Segmentation fault")
    assert current["frames"].splitlines()[0] == "fused (/app/kernels.py:19)"
    assert other["state"] is None and len(other["frames"].splitlines()) == 2


def test_faulthandler_as_recorded() -> None:
    stacks = rows(sample("python_stacks/faulthandler_timeout_rank1.txt"), "python_stacks")
    assert [s["frames"].splitlines()[0] for s in stacks] == [
        "worker (/app/fh.py:2)", "wait (/usr/lib/python3.11/threading.py:327)",
    ]  # fmt: skip
    assert {s["rank"] for s in stacks} == {1}


def test_torchrun_as_recorded() -> None:
    stacks = rows(sample("python_stacks/torchrun_exception.log"), "python_stacks")
    assert [(s["rank"], s["state"].partition(":")[0]) for s in stacks[:3]] == [
        (2, "ValueError"), (1, "RuntimeError"), (0, "RuntimeError"),
    ]  # fmt: skip
    assert stacks[0]["frames"].splitlines()[0] == "step (/app/job.py:8)"


def test_mixed_tracebacks() -> None:
    first, second = rows(sample("python_stacks/traceback.log"), "python_stacks")
    assert (first["rank"], second["rank"]) == (5, 0)
    assert first["state"].startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert first["frames"].splitlines() == [
        "forward (/app/model.py:12)", "main (/app/train.py:97)", "<module> (/app/train.py:120)",
    ]  # fmt: skip
    assert second["frames"] == "step (/app/train.py:41)"


# RAS in text


def test_ranks_that_ras_does_not_name_are_counted_too() -> None:
    counts = {
        r["comm_rank"]: r["count"] for r in rows(sample("ras/text_mismatch.txt"), "comm_counts")
    }
    assert counts == {r: 640 if r == 3 else 641 for r in range(8)}
    (group,) = rows(sample("ras/text_mismatch.txt"), "comm_groups")
    assert (group["comm_hash"], group["group_size"], group["nodes"]) == (0xFA93DAEA854B060B, 8, 2)


def test_ranks_that_cannot_be_told_are_not_counted() -> None:
    text = (SAMPLES / "ras/text_mismatch.txt").read_text()
    three = text.replace("  7 ranks have", "  4 ranks have").replace(
        "  Rank 3 has", "  3 ranks have launched up to operation 639\n  Rank 3 has"
    )
    log = ras.parse(Source("r.txt", lambda: io.BytesIO(three.encode())), ParseOptions())
    assert {r["comm_rank"]: r["count"] for r in rows(log, "comm_counts")} == {3: 640}


def test_a_rank_that_does_not_answer() -> None:
    process, rank = rows(sample("ras/text_incomplete.txt"), "comm_counts")
    assert (process["process"], process["host"], process["comm_rank"]) == (
        "3487984", "172.16.64.213", None,
    )  # fmt: skip
    assert (rank["comm_rank"], rank["status"], rank["group_size"]) == (3, "unresponsive", 4)


def test_each_format_of_lines_has_its_name() -> None:
    for parser, name in (
        (watchdog, "watchdog/rank_missing.log"),
        (python_stacks, "python_stacks/rank2.txt"),
        (ras, "ras/text_mismatch.txt"),
        (nccl_tests, "nccl_tests/with_nccl_log.txt"),
    ):
        assert parser.sniff(Head("x", (SAMPLES / name).read_bytes(), True))


@pytest.mark.parametrize("name", ["watchdog", "python_stacks", "ras", "nccl_tests", "nccl_debug"])
def test_every_value_of_a_row_has_its_column(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is no column would be lost without a word."""
    unknown = set()

    def checked(table: str, table_rows: list[dict[str, Any]], *, of_one_rank: bool) -> Any:
        unknown.update((table, key) for row in table_rows for key in row)
        return log_records.table_of(table, table_rows, of_one_rank=of_one_rank)

    monkeypatch.setattr(log_lines, "table_of", checked)
    for path in sorted((SAMPLES / name).iterdir()):
        sample(f"{name}/{path.name}")
    assert not {(table, key) for table, key in unknown if key not in TABLES[table].names}
