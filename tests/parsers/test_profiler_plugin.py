"""NCCL's example profiler plugin."""

import json

import pytest

from htk.base.core.parser import Parsed
from htk.parsers import profiler_plugin
from tests.parsers.log_files import parsed, rows, sample, values


@pytest.mark.parametrize("name", ["dump", "v2.28_unquoted"])
def test_plugin_quoted_or_not(name: str) -> None:
    found = sample(f"profiler_plugin/{name}_1493613951195738943_0.json")
    (call,) = rows(found)
    assert values(call, "comm_hash", "comm_rank", "seq") == (1493613951195738943, 0, 0)
    assert values(call, "algorithm", "protocol", "channels") == ("RING", "SIMPLE", 2)
    assert values(call, "in_bytes", "dtype") == (1 << 20, "ncclFloat32")
    assert call["end_ns"] - call["start_ns"] == 240_000  # by the GPU's clock
    (channel,) = rows(found, "comm_channels")
    assert values(channel, "channel", "type", "seq") == (0, "all_reduce", 0)
    steps = {r["name"]: r for r in rows(found, "proxy_steps")}
    assert steps["SendGpuWait"]["end_ns"] - steps["SendGpuWait"]["start_ns"] == 77_000
    assert values(steps["SendWait"], "channel", "peer", "proxy_step") == (0, 1, 0)


def test_plugin_copy_engine_and_truncated() -> None:
    (call,) = rows(sample("profiler_plugin/ce_1493613951195738943_0.json"))
    assert values(call, "algorithm", "duration_ns", "comm_rank") == ("CE MC", 44_000, 0)
    cut = sample("profiler_plugin/truncated_1493613951195738943_0.json")
    assert rows(cut)[0]["protocol"] == "SIMPLE" and cut.facts["truncated"]


def event(mark: str, category: str, name: str, micros: object, **args: object) -> str:
    more = f', "args": {json.dumps(args)}' if args else ""
    return (
        f'{{"name": "{name}", "cat": "{category}", "ph": "{mark}", "id": 0, "ts": {micros}{more}}},'
    )


def read(*lines: str, name: str = "dump_77_5.json") -> Parsed:
    return parsed(profiler_plugin, "\n".join(["[", *lines, "{}]"]), name)


CALL = ("type", "seq", "seq_kind", "root", "peer", "dtype", "in_elements", "out_elements")
TIMES = ("start_ns", "end_ns", "duration_ns", "timing")


def test_every_field_of_a_call_its_channels_and_its_steps() -> None:
    """Two channels: the call lasts from the first that starts to the last that stops."""
    log = read(
        event("b", "COLL_API", "Reduce", 0, count=10, datatype="ncclFloat16", root=3),
        event("b", "COLL", "Reduce", "10.5", SeqNum=9, Rank=6, CommHash=78, Count=99,
              Datatype="ncclInt8", Algorithm="TREE", Protocol="LL", nChannels=2),
        event("b", "GPU", "KernelCh", 11, Channel=1, StartGpuClk=500, StopGpuClk=900),
        event("e", "GPU", "KernelCh", 12),
        event("b", "GPU", "KernelCh", 11, Channel=0, StartGpuClk=400, StopGpuClk=800),
        event("e", "GPU", "KernelCh", 12),
        event("b", "GPU", "KernelCh", 11, Channel=2, StartGpuClk=300, StopGpuClk=0),
        event("e", "GPU", "KernelCh", 12),
        event("b", "PROXY", "ProgressSend", 20, Channel=4, Peer=2),
        event("b", "NET", "SendWait", "21.0004", Step=6, transSize=64),
        event("b", "NET_IB", "Qp", 22, size=32, Channel=7, Peer=1),
        event("e", "NET_IB", "Qp", 23),
        event("e", "NET", "SendWait", "25.0006"),
        event("e", "PROXY", "ProgressSend", 26),
        event("b", "PROXY", "Idle", 27),
        event("e", "PROXY", "Idle", 28),
        event("e", "COLL", "Reduce", 30),
        event("e", "COLL_API", "Reduce", 31),
    )  # fmt: skip
    (call,) = rows(log)
    assert values(call, "comm_hash", "comm_rank", "algorithm", "protocol", "channels") == (
        78, 6, "TREE", "LL", 2,
    )  # fmt: skip
    assert values(call, *CALL) == ("reduce", 9, "function", 3, None, "ncclFloat16", 10, 10)
    assert values(call, "in_bytes", "out_bytes", *TIMES) == (20, 20, 400, 900, 19_500, "gpu")
    of_call = ("comm_hash", "comm_rank", "type", "seq")
    assert [values(r, *of_call, "channel", *TIMES[:2]) for r in rows(log, "comm_channels")] == [
        (78, 6, "reduce", 9, 1, 500, 900),
        (78, 6, "reduce", 9, 0, 400, 800),
        (78, 6, "reduce", 9, 2, None, None),
    ]
    told = ("name", "event", "channel", "peer", "proxy_step", "size_bytes")
    assert [values(r, *told, *TIMES[:2]) for r in rows(log, "proxy_steps")] == [
        ("ProgressSend", 0, 4, 2, None, None, 20_000, 26_000),
        ("SendWait", 0, 4, 2, 6, 64, 21_000, 25_001),
        ("Qp", 0, 7, 1, None, 32, 22_000, 23_000),
    ]


def test_messages_rooted_calls_and_calls_without_an_interface() -> None:
    """What the file's name says of the communicator stands for what an event does not say."""
    log = read(
        event("b", "P2P_API", "Send", 0, count=6, datatype="ncclInt8", root=9),
        event("b", "P2P", "Send", 5, Peer=4, Count=7, Datatype="ncclInt8", nMaxChannels=3),
        event("e", "P2P", "Send", 9),
        event("e", "P2P_API", "Send", 9),
        event("b", "COLL_API", "Gather", 0, count=2, datatype=7, root=1),
        event("b", "CE_COLL", "Gather", 5, strategy="MC", duration_gpu_us=3),
        event("e", "CE_COLL", "Gather", 99),
        event("e", "COLL_API", "Gather", 99),
        event("b", "COLL", "AllGather", 0, SeqNum=1, Count=3, Datatype="ncclFloat64"),
        event("e", "COLL", "AllGather", 9),
    )
    send, gather, all_gather = rows(log)
    assert {values(c, "comm_hash", "comm_rank") for c in rows(log)} == {(77, 5)}
    assert values(send, *CALL) == ("send", None, None, None, 4, "ncclInt8", 6, None)
    assert values(send, "channels", *TIMES) == (3, None, None, 4_000, "cpu")
    assert values(gather, *CALL) == ("gather", None, None, 1, None, "ncclFloat32", 2, None)
    assert values(gather, "algorithm", *TIMES) == ("CE MC", None, None, 3_000, "gpu")
    assert values(all_gather, *CALL)[1:] == (1, "function", None, None, "ncclFloat64", 3, None)
    assert values(all_gather, *TIMES) == (None, None, None, "cpu")  # its begin has no time


def test_ends_close_what_lies_within_and_an_end_alone_is_counted() -> None:
    log = read(
        event("b", "COLL", "AllReduce", 5, SeqNum=1),
        event("b", "COLL", "Broadcast", 6, SeqNum=2),
        event("e", "COLL", "AllReduce", 8),  # the broadcast inside has no end of its own
        event("e", "COLL", "Broadcast", 9),
        event("b", "COLL", "AllReduce", 10, SeqNum=3),
        name="plugin.txt",
    )
    found = [values(c, "type", "seq", "duration_ns", "comm_hash", "comm_rank") for c in rows(log)]
    assert found == [
        ("all_reduce", 1, 3_000, None, None),
        ("broadcast", 2, None, None, None),
        ("all_reduce", 3, None, None, None),
    ]
    kinds = [(i["kind"], i["count"]) for i in rows(log, "parse_issues")]
    assert sorted(kinds) == [("truncated", 1), ("unpaired_event", 1)]
