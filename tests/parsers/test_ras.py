"""NCCL RAS: reports in JSON and in text."""

import io

from htk.core.parser import ParseOptions, Source
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
