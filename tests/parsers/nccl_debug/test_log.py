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
