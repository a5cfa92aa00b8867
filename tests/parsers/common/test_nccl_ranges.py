"""Communication kernels and the calls of NCCL that launched them: alone, in groups, on threads."""

from typing import Any

import pyarrow as pa
import pytest

from htk.parsers.common.nccl_ranges import FACTS, build_collectives
from tests.tables import make

COMM, OTHER = 0xF00D_0000_0000_0001, 5  # the first is more than a signed number holds
Row = dict[str, Any]


def call(name: str, start: int, end: int, thread: str = "1", **facts: Any) -> Row:
    return {"name": name, "start_ns": start, "end_ns": end, "thread": thread, **facts}


def table_of(calls: list[Row]) -> pa.Table:
    types = {"name": pa.string(), "process": pa.string(), "thread": pa.string()}
    fields = {**types, "start_ns": pa.int64(), "end_ns": pa.int64()}
    fields |= {name: pa.uint64() if name == "comm" else pa.int64() for name in FACTS}
    columns = {
        name: pa.array([{"process": "9", **row}.get(name) for row in calls], kind)
        for name, kind in fields.items()
    }
    table = pa.table(columns)
    for k, name in enumerate(types):
        table = table.set_column(k, name, table[name].combine_chunks().dictionary_encode())
    return table


def read(
    calls: list[Row], launched: list[tuple[int, str]], annotations: tuple[Row, ...] = ()
) -> Any:
    """One kernel for each launch (its time and thread), a hundred apart, of a plain name."""
    kernels = [
        {"name": "ncclDevKernel_Generic", "kind": "comm", "start_ns": 1_000 + 100 * k,
         "end_ns": 1_040 + 100 * k, "correlation": k + 1, "event": k, "stream": 7}
        for k in range(len(launched))
    ]  # fmt: skip
    launches = [
        {"process": "9", "thread": thread, "start_ns": moment, "end_ns": moment + 1,
         "correlation": k + 1}
        for k, (moment, thread) in enumerate(launched)
    ]  # fmt: skip
    ranges = [{"process": "9", "on_gpu": False, **row} for row in annotations]
    return build_collectives(
        "made up",
        make("kernels", [*kernels, {"name": "gemm", "kind": "compute", "correlation": 1}]),
        make("launches", launches),
        table_of(calls),
        make("annotations", ranges),
    ).to_pylist()


def columns(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


INIT = call("ncclCommInitRank", 1, 2, comm=COMM, group_size=4, comm_rank=3)


@pytest.mark.parametrize(
    ("name", "facts", "kind", "into", "out"),
    [
        ("ncclAllReduce", {}, "all_reduce", 10, 10),
        ("ncclAllGather", {}, "all_gather", 10, 40),
        ("ncclReduceScatter", {}, "reduce_scatter", 40, 10),
        ("pncclBroadcast", {"root": 2}, "broadcast", 10, 10),
        ("ncclReduce", {"root": 0}, "reduce", 10, 10),
        ("ncclSend", {"peer": 1}, "send", 10, None),
        ("ncclRecv", {"peer": 0}, "recv", None, 10),
    ],
)
def test_a_call_of_its_own(name: str, facts: Row, kind: str, into: int, out: int) -> None:
    own = call(name, 10, 20, comm=COMM, size_bytes=10, **facts)
    (row,) = read([INIT, own], [(12, "1")])
    assert columns([row], "type", "in_bytes", "out_bytes") == [(kind, into, out)]
    assert (row["root"], row["peer"]) == (facts.get("root"), facts.get("peer"))
    assert columns([row], "comm_hash", "group_size", "comm_rank") == [(COMM, 4, 3)]
    assert columns([row], "start_ns", "end_ns", "enqueue_ns", "stream", "timing") == [
        (1_000, 1_040, 12, 7, "gpu")
    ]


def test_a_call_belongs_to_its_thread_and_time() -> None:
    """Launched before, behind, and on another thread than the call: none of them is its."""
    own = call("ncclAllReduce", 10, 20, size_bytes=10, comm=COMM)
    rows = read([INIT, own], [(9, "1"), (12, "2"), (21, "1"), (19, "1")])
    assert columns(rows, "in_bytes", "comm_hash") == [(None, None)] * 3 + [(10, COMM)]
    assert {row["library"] for row in rows} == {"nccl"}


def test_a_group_that_one_kernel_runs_carries_all_that_it_holds() -> None:
    group = [
        call("ncclGroupStart", 10, 11),
        call("ncclSend", 12, 13, comm=COMM, size_bytes=3, peer=1),
        call("ncclGroupStart", 14, 15),
        call("ncclRecv", 16, 17, comm=COMM, size_bytes=5, peer=2),
        call("ncclGroupEnd", 18, 19),
        call("ncclSend", 20, 21, comm=COMM, size_bytes=7, peer=0),
        call("ncclGroupEnd", 22, 30),
        call("ncclAllReduce", 40, 50, comm=OTHER, size_bytes=9),
    ]
    first, second = read([INIT, *group], [(25, "1"), (45, "1")])
    assert columns([first, second], "type", "in_bytes", "out_bytes", "comm_hash", "peer") == [
        ("send_recv", 10, 5, COMM, None), ("all_reduce", 9, 9, OTHER, None),
    ]  # fmt: skip
    assert second["group_size"] is None


def test_a_group_of_several_kernels_gives_the_kth_call_to_the_kth() -> None:
    group = [
        call("ncclGroupStart", 10, 11),
        call("ncclAllReduce", 12, 13, comm=COMM, size_bytes=3),
        call("ncclBroadcast", 14, 15, comm=OTHER, size_bytes=5, root=1),
        call("ncclGroupEnd", 16, 30),
    ]
    both = read([INIT, *group], [(20, "1"), (22, "1")])
    assert columns(both, "type", "in_bytes", "comm_hash", "root") == [
        ("all_reduce", 3, COMM, None), ("broadcast", 5, OTHER, 1),
    ]  # fmt: skip
    three = read([INIT, *group], [(20, "1"), (22, "1"), (24, "1")])
    assert columns(three, "type", "in_bytes") == [("unknown", None)] * 3  # whose is which?
    (one,) = read([INIT, *group], [(20, "1")])
    assert columns([one], "type", "in_bytes", "comm_hash") == [("unknown", 8, None)]


def test_groups_of_two_threads_are_two() -> None:
    calls = [
        row
        for thread, size in (("1", 3), ("2", 5))
        for row in (
            call("ncclGroupStart", 10, 11, thread),
            call("ncclAllReduce", 12, 13, thread, comm=COMM, size_bytes=size),
            call("ncclGroupEnd", 16, 30, thread),
        )
    ]
    rows = read([INIT, *calls], [(20, "2"), (20, "1")])
    assert columns(rows, "in_bytes") == [(5,), (3,)]


def test_an_end_whose_start_was_not_recorded_holds_nothing() -> None:
    calls = [
        call("ncclSend", 5, 6, comm=COMM, size_bytes=3, peer=1),
        call("ncclGroupEnd", 10, 20),
        call("ncclAllReduce", 30, 40, comm=COMM, size_bytes=4),
    ]
    rows = read([INIT, *calls], [(15, "1"), (35, "1")])
    assert columns(rows, "type", "in_bytes") == [("unknown", None), ("all_reduce", 4)]


def test_sizes_of_a_group_of_which_one_is_unknown_are_unknown() -> None:
    group = [
        call("ncclGroupStart", 10, 11),
        call("ncclSend", 12, 13, comm=COMM, size_bytes=3, peer=1),
        call("ncclRecv", 14, 15, comm=COMM, peer=1),
        call("ncclGroupEnd", 16, 30),
    ]
    (row,) = read([INIT, *group], [(20, "1")])
    assert (row["in_bytes"], row["out_bytes"]) == (3, None)


def test_the_range_of_c10d_says_what_a_call_is() -> None:
    """A range that the GPU shows is none of the thread's."""
    calls = [INIT, call("ncclSend", 12, 13, comm=COMM, size_bytes=3, peer=1)]
    named = {"name": "nccl:all_to_all", "thread": "1", "start_ns": 5, "end_ns": 40}
    (row,) = read(calls, [(12, "1")], (named,))
    assert (row["type"], row["in_bytes"]) == ("all_to_all", 3)
    for other in ({"on_gpu": True}, {"thread": "2"}, {"end_ns": 11}):
        (row,) = read(calls, [(12, "1")], (named | other,))
        assert row["type"] == "send"
