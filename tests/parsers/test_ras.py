"""NCCL RAS: reports in JSON and in text."""

import io
import json
from typing import Any

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.parsers import ras
from tests.parsers.log_files import SAMPLES, rows, sample, values


def test_ras_counts_and_silent_ranks() -> None:
    counts = rows(sample("ras/status.json"), "comm_counts")
    reduced = {r["comm_rank"]: r["count"] for r in counts if r["type"] == "all_reduce"}
    assert reduced == {0: 6650, 1: 6650, 2: 6649}
    (silent,) = [r for r in counts if r["status"]]
    assert values(silent, "comm_rank", "status", "type") == (3, "unresponsive", None)


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


COUNTED = ("comm_rank", "type", "count", "status", "device", "process", "host", "group_size")


def report(*lines: str) -> Parsed:
    text = "\n".join(lines) + "\n"
    return ras.parse(Source("r.txt", lambda: io.BytesIO(text.encode())), ParseOptions())


def test_every_field_of_a_report_in_json() -> None:
    """The silent rank is on a node of its own, which counts among those of the group."""

    def rank(number: int, host: str | None, **more: Any) -> dict[str, Any]:
        return {"rank": number, "host": host, "pid": 70 + number, "cuda_dev": 9 - number, **more}

    communicators = [
        {
            "hash": "0xff00000000000001",
            "size": 3,
            "ranks": [
                rank(0, "a", collective_counts={"AllGather": 3, "Broadcast": 4}),
                rank(1, "b", collective_counts={}, status={"abort_flag": True, "async_error": 2}),
            ],
            "missing_ranks": [rank(2, "c", status={"considered_dead": True}), 7],
        },
        {"hash": "7", "size": 1, "ranks": [{"rank": 0, "collective_counts": {"AllReduce": 1}}]},
    ]
    data = json.dumps({"nccl_version": "2.29.7", "communicators": communicators}).encode()
    log = ras.parse(Source("r.json", lambda: io.BytesIO(data)), ParseOptions())
    assert [values(r, "comm_hash", "group_size", "nodes") for r in rows(log, "comm_groups")] == [
        (0xFF00000000000001, 3, 3), (None, 1, None),
    ]  # fmt: skip
    assert [values(r, *COUNTED) for r in rows(log, "comm_counts")] == [
        (0, "all_gather", 3, None, 9, "70", "a", 3),
        (0, "broadcast", 4, None, 9, "70", "a", 3),
        (1, None, None, "async_error, abort_flag", 8, "71", "b", 3),
        (2, None, None, "considered_dead", 7, "72", "c", 3),
        (0, "all_reduce", 1, None, None, None, None, 1),
    ]
    assert log.facts["events"] == 5 and "2.29.7" in str(log.facts["versions"])


HEAD = (
    "Job summary",
    "===========",
    "Communicators... (0.00s)",
    "=============",
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
    "    #  in group  per comm  per node  per comm  in group",
    "    0         1         2         4         8         8   RUNNING  MISMATCH",
    "    1         2         1       1-3         3         6   RUNNING  MISMATCH",
    "Warnings",
    "========",
)


def test_counts_of_two_types_and_two_communicators_in_text() -> None:
    log = report(
        *HEAD,
        "#1-0 (a1) MISMATCH",
        "  Communicator ranks have different AllReduce operation counts",
        "  2 ranks have launched up to operation 50",
        "  Rank 1 has launched up to operation 49 -- GPU 4 managed by process 12 on node n1",
        "  Communicator ranks have different Broadcast operation counts",
        "  2 ranks have not launched any operations",
        "  Rank 2 has launched up to operation 5 -- GPU 5 managed by process 13 on node n1",
        "#1-1 (b2) MISMATCH",
        "  Communicator ranks have different Reduce operation counts",
        "  2 ranks have launched up to operation 7",
        "  Rank 0 has not launched any operations -- GPU 6 managed by process 14 on node n2",
    )
    assert [values(r, "comm_hash", *COUNTED) for r in rows(log, "comm_counts")] == [
        (0xA1, 0, "all_reduce", 50, None, None, None, None, 3),
        (0xA1, 1, "all_reduce", 49, None, 4, "12", "n1", 3),
        (0xA1, 2, "all_reduce", 50, None, None, None, None, 3),
        (0xA1, 0, "broadcast", 0, None, None, None, None, 3),
        (0xA1, 1, "broadcast", 0, None, None, None, None, 3),
        (0xA1, 2, "broadcast", 5, None, 5, "13", "n1", 3),
        (0xB2, 0, "reduce", 0, None, 6, "14", "n2", 3),
        (0xB2, 1, "reduce", 7, None, None, None, None, 3),
        (0xB2, 2, "reduce", 7, None, None, None, None, 3),
    ]
    assert [values(r, "comm_hash", "group_size", "nodes") for r in rows(log, "comm_groups")] == [
        (0xA1, 3, 1), (0xB2, 3, 1), (None, 8, 2),  # of group 0 the table alone tells
    ]  # fmt: skip


def test_ranks_that_are_listed_below_their_number_have_its_count() -> None:
    """Both named ranks are those of the line before; 8 ranks, of which 6 are not named."""
    log = report(
        *HEAD,
        "#0-0 (c3) MISMATCH",
        "  Communicator ranks have different AllGather operation counts",
        "  6 ranks have launched up to operation 31",
        "  2 ranks have launched up to operation 30",
        "  Rank 2 -- GPU 0 managed by process 21 on node n5",
        "  Rank 7 -- GPU 1 managed by process 22 on node n6",
    )
    counts = {r["comm_rank"]: r["count"] for r in rows(log, "comm_counts")}
    assert counts == {k: 30 if k in (2, 7) else 31 for k in range(8)}
    assert {r["group_size"] for r in rows(log, "comm_counts")} == {8}


def test_statuses_and_errors_of_ranks() -> None:
    log = report(
        *HEAD,
        "#1-0 (d4) ERROR",
        "  Communicator ranks have different status",
        "  2 ranks have status RUNNING",
        "  Rank 2 has status ABORT -- GPU 5 managed by process 13 on node n1",
        "  Rank 1 reported unhandled cuda error -- GPU 4 managed by process 12 on node n1",
    )
    assert [values(r, *COUNTED) for r in rows(log, "comm_counts")] == [
        (2, None, None, "abort", 5, "13", "n1", 3),
        (1, None, None, "error: unhandled cuda error", 4, "12", "n1", 3),
    ]


def test_processes_that_are_dead_or_silent_and_their_gpus() -> None:
    log = report(
        *HEAD[:4],
        "Errors",
        "DEAD",
        "  Process 31 on node n7 managing GPU 12",
        "INCOMPLETE",
        "  Process 32 on node n8 managing GPUs 2,3",
    )
    assert [values(r, *COUNTED) for r in rows(log, "comm_counts")] == [
        (None, None, None, "considered_dead", 12, "31", "n7", None),
        (None, None, None, "unresponsive", None, "32", "n8", None),
    ]
