"""RCCL's replay logs."""

from htk.parsers import rccl_replay
from tests.parsers.log_files import parsed, rows, sample, values


def test_rccl_replay() -> None:
    (call,) = rows(sample("rccl_replay/replayer_log.1275.node-m.json"))
    assert values(call, "comm_hash", "comm_rank") == (17168916771200794912, 0)
    assert values(call, "in_bytes", "coalesced") == (16384, "group")
    assert call["enqueue_ns"] == 1745623619986908691


HEAD = (
    "{\n  hostname : node-m, version : 1,\n"
    "  CommInitRank : [comm : 0x7, size : 4, uniqueID : 77, rank : 3, context : [time : 1.0 ]],\n"
)
CONTEXT = "context : [time : 1745623619986.000001, thread : 9, device : 2, captured : 0 ]"
CALL = (
    "type", "seq", "root", "peer", "group_size", "in_elements", "out_elements", "in_bytes",
    "out_bytes",
)  # fmt: skip


def call(name: str, *, root: str = "", ranks: str = "nranks : 4, ", kind: int = 6) -> str:
    return (
        f"  {name} : [opCount : 12, sendbuff : 0x1, recvbuff : 0x2, count : 8, "
        f"datatype : {kind}, op : 0, {root}comm : 0x7, {ranks}stream : 0x55, {CONTEXT}],\n"
    )


def test_every_field_of_each_sort_of_call() -> None:
    """8 elements of two bytes, 4 ranks; the group's size where the call has none."""
    text = HEAD + call("AllGather") + call("ReduceScatter", ranks="")
    text += call("Broadcast", root="root : 2, ") + call("AllToAll")
    text += "  {\n" + call("Send", root="peer : 1, ", kind=0)
    text += call("Recv", root="peer : 0, ", kind=99) + "  }\n"
    log = parsed(rccl_replay, text + call("Gather", root="root : 0, ") + "}\n")
    assert [values(c, *CALL) for c in rows(log)] == [
        ("all_gather", 12, None, None, 4, 8, 32, 16, 64),
        ("reduce_scatter", 12, None, None, 4, 32, 8, 64, 16),
        ("broadcast", 12, 2, None, 4, 8, 8, 16, 16),
        ("all_to_all", 12, None, None, 4, 32, 32, 64, 64),
        ("send", 12, None, 1, 4, 8, None, 8, None),
        ("recv", 12, None, 0, 4, None, 8, None, None),
        ("gather", 12, 0, None, 4, 8, 32, 16, 64),
    ]
    assert [c["coalesced"] for c in rows(log)] == [None] * 4 + ["group"] * 2 + [None]
    common = ("comm_hash", "comm_rank", "device", "seq_kind", "library", "timing")
    assert {values(c, *common) for c in rows(log)} == {(77, 3, 2, "plan", "rccl", "none")}
    assert {c["enqueue_ns"] for c in rows(log)} == {1_745_623_619_986_000_001}
    (group,) = rows(log, "comm_groups")
    assert values(group, "comm_hash", "group_size") == (77, 4)
    assert log.facts["host"] == "node-m" and log.facts["events"] == 7
    assert not rows(log, "parse_issues")


def test_calls_of_unknown_communicators_and_times() -> None:
    text = HEAD + call("AllReduce").replace("0x7", "0x8").replace(CONTEXT, "context : [time : x ]")
    log = parsed(rccl_replay, text + call("AllReduce").replace("1745623619986", "9" * 30))
    assert [values(c, "comm_hash", "comm_rank", "device", "enqueue_ns") for c in rows(log)] == [
        (None, None, None, None), (77, 3, 2, None),
    ]  # fmt: skip
    assert [i["kind"] for i in rows(log, "parse_issues")] == ["truncated"]  # `}` is missing
