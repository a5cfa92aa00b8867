"""What the messages of several processes say of their communicators."""

from typing import Any

from htk.parsers.common.log_records import Issues
from htk.parsers.nccl_debug.log import NcclLog
from htk.parsers.nccl_debug.message import Message

INIT = "comm {address} rank {rank} nranks 4 cudaDev 0 busId 1 {commId}- Init COMPLETE"
CALL = (
    "AllGather: opCount 2a sendbuff 0x1 recvbuff 0x2 count 256 datatype 7 op 0 root 0 "
    "comm {address} [nranks=4] stream 0x5"
)


def log(*messages: tuple[str, str]) -> tuple[NcclLog, dict[str, list[dict[str, Any]]]]:
    read = NcclLog(Issues())
    for pid, text in messages:
        read.read(Message("a", pid, "1", 0, "INFO", text, 0, None, None))
    read.finish()
    return read, {name: rows.table().to_pylist() for name, rows in read.tables.items()}


def init(address: str, rank: int, hash_: str = "") -> str:
    return INIT.format(address=address, rank=rank, commId=f"commId {hash_} " if hash_ else "")


def test_one_address_in_two_processes_is_two_communicators() -> None:
    read, tables = log(
        ("1", init("0x9", 0, "0xaa")), ("2", init("0x9", 3, "0xbb")),
        ("2", CALL.format(address="0x9")), ("1", CALL.format(address="0x9")),
    )  # fmt: skip
    calls = [(c["comm_hash"], c["comm_rank"], c["seq"]) for c in tables["collectives"]]
    assert calls == [(0xBB, 3, 0x2A), (0xAA, 0, 0x2A)] and read.messages == 4
    assert {c["in_bytes"] for c in tables["collectives"]} == {1024}
    assert {c["out_bytes"] for c in tables["collectives"]} == {4096}


def test_an_address_that_is_used_again_is_another_communicator() -> None:
    call = CALL.format(address="0x9")
    start = init("0x9", 1, "0xbb").replace("COMPLETE", "START")
    _, tables = log(("1", init("0x9", 0, "0xaa")), ("1", call), ("1", start), ("1", call))
    assert [c["comm_hash"] for c in tables["collectives"]] == [0xAA, 0xBB]


def test_a_split_communicator_is_named_by_its_parent() -> None:
    split = (
        "comm 0x8 rank 1 nranks 2 cudaDev 0 busId 1 parent 0x9 splitCount 1 color 5 key 3 "
        "- Init COMPLETE"
    )
    _, tables = log(("1", init("0x9", 0, "0xaa")), ("1", split), ("1", CALL.format(address="0x8")))
    (call,) = tables["collectives"]
    assert (call["comm_hash"], call["group"]) == (None, "0xaa split 1 color 5")


def test_a_host_s_name_that_other_text_is_glued_to() -> None:
    read, _ = log()
    assert read.host_of("node-a", first=True) == "node-a"
    assert read.host_of("12node-a", first=False) == "node-a"
    assert read.host_of("node-b", first=False) == "node-b"


def test_every_field_of_a_call_in_a_log_of_rccl() -> None:
    """A broadcast of 256 elements of two bytes to device 6, written at 5 ns."""
    read = NcclLog(Issues())
    read.read(Message("a", "1", "1", 6, "INFO", init("0x9", 2, "0xaa"), 0, None, None))
    call = (
        "Broadcast: opCount ff sendbuff 0x1 recvbuff 0x2 count 256 datatype 9 op 0 root 3 "
        "comm 0x9 [nranks=4] stream 0x5"
    )
    for text, moment in ((call, 5), (f"{call} task 0 globalrank 11", None)):
        read.read(Message("a", "1", "1", 6, "INFO", text, 0, moment, 7))
    read.finish()
    first, second = read.tables["collectives"].table().to_pylist()
    wanted = {
        "comm_hash": 0xAA, "comm_rank": 2, "rank": None, "device": 6, "group": None,
        "enqueue_ns": 5, "group_size": 4, "seq": 255, "seq_kind": "plan", "type": "broadcast",
        "raw_name": "Broadcast", "library": "nccl", "dtype": "ncclBfloat16", "in_elements": 256,
        "out_elements": 256, "in_bytes": 512, "out_bytes": 512, "root": 3, "peer": None,
        "timing": "none",
    }  # fmt: skip
    assert {name: first[name] for name in wanted} == wanted
    assert (second["rank"], second["library"], second["enqueue_ns"]) == (11, "rccl", None)


def test_inits_of_communicators_with_and_without_timings() -> None:
    """Two ranks of one process; only the first says how long its parts took."""
    split = (
        "comm 0x8 rank 1 nranks 2 cudaDev 5 busId 1 parent 0x9 splitCount 3 color -1 key 0 "
        "- Init COMPLETE"
    )
    timings = (
        "Init timings - ncclCommInitRank: rank 0 nranks 4 total 1.25 (kernels 0.5, alloc 0.003)"
    )
    _, tables = log(
        ("1", init("0x9", 0, "0xaa")),
        ("1", "comm 0x9 rank 0 nRanks 4 nNodes 2 localRanks 2"),
        ("1", timings),
        ("1", split),
    )
    told = ("comm_hash", "comm_rank", "group_size", "nodes", "parent_hash", "group")
    rows = tables["comm_inits"]
    assert [tuple(r[name] for name in (*told, "phase", "duration_ns")) for r in rows] == [
        (0xAA, 0, 4, 2, None, None, "total", 1_250_000_000),
        (0xAA, 0, 4, 2, None, None, "kernels", 500_000_000),
        (0xAA, 0, 4, 2, None, None, "alloc", 3_000_000),
        (None, 1, 2, None, 0xAA, "0xaa split 3 color -1", None, None),
    ]
    groups = ("comm_hash", "group", "group_size", "nodes")
    assert [tuple(r[name] for name in groups) for r in tables["comm_groups"]] == [
        (0xAA, None, 4, 2), (None, "0xaa split 3 color -1", 2, None),
    ]  # fmt: skip


def test_connections_belong_to_the_communicator_that_the_thread_spoke_of_last() -> None:
    _, tables = log(
        ("1", init("0x9", 0, "0xaa")), ("2", init("0x9", 3, "0xbb")),
        ("1", "Channel 02/0 : 1[5] -> 0[4] [send] via NET/IB/3/GDRDMA "),
        ("3", "Channel 11 : 7[0] -> 9[1] via P2P/CUMEM"),
    )  # fmt: skip
    told = ("comm_hash", "comm_rank", "channel", "from_rank", "to_rank", "transport")
    assert [tuple(r[name] for name in told) for r in tables["comm_transports"]] == [
        (0xAA, 0, 2, 1, 0, "NET/IB/3/GDRDMA"), (None, None, 11, 7, 9, "P2P/CUMEM"),
    ]  # fmt: skip


def test_warnings_and_trails_are_notes_with_their_time() -> None:
    read = NcclLog(Issues())
    for level, text, moment, line in (
        ("WARN", "Got completion", 4, 9),
        ("INFO", "transport/net.cc:1329 -> 6", None, 8),
        ("TRACE", "nothing", 5, 5),
    ):
        read.read(Message("a", "12", "1", 3, level, text, 77, moment, line))
    read.finish()
    told = ("level", "text", "host", "process", "device", "offset", "time_ns")
    assert [tuple(r[n] for n in told) for r in read.tables["comm_notes"].table().to_pylist()] == [
        ("WARN", "Got completion", "a", "12", 3, 77, 4),
        ("TRAIL", "transport/net.cc:1329 -> 6", "a", "12", 3, 77, 8),
    ]
    assert read.messages == 3


def test_a_torn_call_is_counted() -> None:
    issues = Issues()
    read = NcclLog(issues)
    torn = CALL.format(address="0x9")[:60]
    read.read(Message("a", "1", "1", 0, "INFO", torn, 31, None, None))
    (issue,) = issues.table().to_pylist()
    assert (issue["kind"], issue["offset"]) == ("torn_line", 31)
