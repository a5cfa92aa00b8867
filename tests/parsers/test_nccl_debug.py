"""NCCL_DEBUG logs."""

import pytest

from htk.parsers import nccl_debug
from htk.parsers.common import log_records
from tests.parsers.log_files import parsed, rows, sample, values


def test_log_of_two_ranks() -> None:
    found = sample("nccl_debug/two_ranks_interleaved.log")
    calls = rows(found)
    assert [r["comm_rank"] for r in calls] == [0, 1, 0, 1, 0, 1]
    assert [r["seq"] for r in calls] == [9, 9, 10, 10, 11, 11]  # opCount is hexadecimal
    assert {r["comm_hash"] for r in calls} == {0x3C1D9AEE12F04471}
    assert values(calls[0], "algorithm", "protocol", "channels") == ("RING", "SIMPLE", 2)
    assert calls[1]["algorithm"] is None  # only rank 0 of a communicator says
    assert values(calls[4], "type", "peer", "in_bytes", "out_bytes") == ("send", 1, 2 << 20, None)
    assert "2.29.7+cuda13.0" in str(found.facts["versions"])


def test_log_of_start_up() -> None:
    found = sample("nccl_debug/two_ranks_interleaved.log")
    phases = {r["phase"]: r["duration_ns"] for r in rows(found, "comm_inits")}
    assert phases["total"] == 610_000_000 and phases["topo"] == 200_000_000
    assert rows(found, "comm_groups")[0]["nodes"] == 1
    ways = {r["transport"] for r in rows(found, "comm_transports") if r["algorithm"] is None}
    assert ways == {"P2P/CUMEM/read", "NET/IB/0(1)/GDRDMA/Shared", "SHM/direct"}


def test_log_of_tuning() -> None:
    tuned = rows(sample("nccl_debug/two_ranks_interleaved.log"), "comm_tuning")
    table = [r for r in tuned if r["type"] == "all_reduce" and r["bandwidth_gbps"]]
    assert [values(r, "algorithm", "protocol", "time_us", "bandwidth_gbps") for r in table] == [
        ("RING", "LL", 4.6, 16.0),
        ("RING", "LL128", 12.5, 36.8),
        ("RING", "SIMPLE", 14.1, 40.0),
    ]
    assert "AllReduce_AGxLLMC_R" in {r["algorithm"] for r in tuned}
    for name, kind in (("tuning_v2.21.log", None), ("tuning_v2.23.log", "all_reduce")):
        (row,) = rows(sample(f"nccl_debug/{name}"), "comm_tuning")
        assert values(row, "type", "algorithm", "protocol") == (kind, "RING", "SIMPLE")


def test_log_of_errors() -> None:
    notes = rows(sample("nccl_debug/two_ranks_interleaved.log"), "comm_notes")
    assert [n["level"] for n in notes] == ["WARN", "TRAIL"]
    assert "status=12" in notes[0]["text"]


def test_log_torn_glued_and_prefixed() -> None:
    found = sample("nccl_debug/torn_lines.log")
    assert found.facts["host"] == "node-a"  # not 1node-a
    assert found.facts["events"] == 4
    assert rows(found, "parse_issues")[0]["kind"] == "torn_line"


def test_logs_of_other_ages_and_of_rccl() -> None:
    (old,) = rows(sample("nccl_debug/old_v2.16_busid.log"))
    assert values(old, "comm_hash", "comm_rank", "in_bytes") == (0x9D1, 0, 64 << 20)
    (amd,) = rows(sample("nccl_debug/rccl_coll.log"))
    assert values(amd, "library", "rank", "dtype") == ("rccl", 0, "ncclBfloat16")


@pytest.mark.parametrize("text", ["NCCL INFO", "[0] NCCL INFO", "misc/x.cc:12 NCCL WARN"])
def test_lines_of_nccl_without_host_and_process(text: str) -> None:
    log = parsed(
        nccl_debug,
        f"{text} comm 0x1 rank 1 nranks 2 cudaDev 0 busId 1 commId 0x9 - Init COMPLETE\n",
    )
    named = rows(log, "comm_groups") or rows(log, "comm_notes")
    assert len(named) == 1


NCCL = "node-a:4100:4200 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 0 busId 1b000 commId 0x2 - Init COMPLETE"  # noqa: E501


def test_calls_carry_the_time_that_the_log_does() -> None:
    call = (
        "AllReduce: opCount 1 sendbuff 0x7 recvbuff 0x7 count 1024 datatype 7 op 0 root 0 "
        "comm 0x1 [nranks=8] stream 0x5"
    )
    line = f"[2025-11-13 09:58:07.250] node-a:4100:4200 [0] NCCL INFO {call}"
    (row,) = rows(parsed(nccl_debug, f"{NCCL}\n{line}\n"), "collectives")
    assert row["enqueue_ns"] == 1763027887_250_000_000 and row["comm_hash"] == 2
    (row,) = rows(
        parsed(nccl_debug, f"{NCCL}\nnode-a:4100:4200 [0] NCCL INFO {call}\n"), "collectives"
    )
    assert row["enqueue_ns"] is None


def test_many_calls_are_kept_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What NCCL chose stands in the line after a call: the row is still to be changed then."""
    monkeypatch.setattr(log_records, "_LATEST_ROWS", 4)
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
    calls = rows(parsed(nccl_debug, "\n".join(lines)), "collectives")
    assert [c["in_elements"] for c in calls] == list(range(1024, 1074))
    assert [c["event"] for c in calls] == list(range(50))
    assert {(c["algorithm"], c["channels"]) for c in calls} == {("RING", 8)}
