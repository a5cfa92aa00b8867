"""Collectives of a profile: metadata of all ages, shapes instead of it, coalesced calls, CPU."""

import io
import json
from random import Random
from typing import Any

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.parsers import kineto

Event = dict[str, Any]
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
META = {
    "Collective name": "allreduce",
    "In msg nelems": 10,
    "Out msg nelems": 10,
    "dtype": "Float",
    "Group size": 2,
    "Process Group Name": "3",
    "Process Group Description": "dp",
    "Process Group Ranks": "[0, 4]",
    "In split size": "[]",
    "Out split size": "[]",
}


def event(category: str, name: str, start: float, length: float, **args: Any) -> Event:
    where = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 50, "tid": 51}
    return (
        {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}
        | where
        | {"args": args}
    )


def launched(name: str, call: float, start: float, correlation: int, **args: Any) -> list[Event]:
    """A runtime call and its kernel."""
    return [
        event("cuda_runtime", "cudaLaunchKernelExC", call, 1, correlation=correlation),
        event("kernel", name, start, 50, correlation=correlation, stream=7, device=0, **args),
    ]


def parsed(*events: Event, **header: Any) -> Parsed:
    data = json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}).encode()
    return kineto.parse(Source("trace", lambda: io.BytesIO(data)), ParseOptions())


def collectives(*events: Event, **header: Any) -> list[Event]:
    return parsed(*events, **header).tables["collectives"].to_pylist()


def picked(row: Event, *names: str) -> tuple[Any, ...]:
    return tuple(row[n] for n in names)


def test_metadata_on_the_kernel() -> None:
    extra = {"Seq": 9, "Comms Id": 2**64 - 3}
    (row,) = collectives(*launched(KERNEL, 10, 20, 1, **META, **extra))
    assert picked(row, "type", "group", "group_desc", "group_ranks") == (
        "all_reduce",
        "3",
        "dp",
        "[0,4]",
    )
    assert picked(row, "in_bytes", "out_bytes", "dtype") == (40, 40, "Float")
    assert picked(row, "seq", "seq_kind", "comms_id") == (9, "collective", str(2**64 - 3))
    assert picked(row, "start_ns", "end_ns", "enqueue_ns") == (20_000, 70_000, 10_000)
    assert row["inferred_columns"] is None


def test_metadata_on_the_operator_that_launched_it() -> None:
    record = event(
        "cpu_op",
        "record_param_comms",
        5,
        20,
        **META,
        **{"External id": 77, "Concrete Inputs": ["", "[12, False]", "[3, dp]", "0", "allreduce"]},
    )
    (row,) = collectives(record, *launched(KERNEL, 10, 20, 1))
    assert picked(row, "in_bytes", "group", "seq", "inferred_columns") == (40, "3", 12, "operator")
    (by_id,) = collectives(record, event("kernel", KERNEL, 20, 50, **{"External id": 77}))
    assert by_id["in_bytes"] == 40


def test_keys_of_other_ages() -> None:
    old = {"Collective name": "allreduce", "In msg size": 5, "Out msg size": 5, "dtype": "Half"}
    (row,) = collectives(*launched(KERNEL, 10, 20, 1, **old))
    assert picked(row, "in_elements", "in_bytes") == (5, 10)
    named = {k: v for k, v in META.items() if not k.startswith("Process Group Name")}
    (row,) = collectives(*launched(KERNEL, 10, 20, 1, **named, **{"Process Group ID": 8}))
    assert row["group"] == "8"


def test_ranks_cut_short_follow_from_start_and_stride() -> None:
    wide = META | {"Process Group Ranks": "[0, 2, ..., 62]", "Group size": 32}
    record = event(
        "cpu_op",
        "record_param_comms",
        5,
        20,
        **wide,
        **{"Global rank start": 0, "Global rank stride": 2},
    )
    (row,) = collectives(record, *launched(KERNEL, 10, 20, 1, **wide))
    assert json.loads(row["group_ranks"]) == list(range(0, 64, 2))
    assert "group_ranks" in row["inferred_columns"]
    (without,) = collectives(*launched(KERNEL, 10, 20, 1, **wide))
    assert without["group_ranks"] is None


def test_root_and_peer() -> None:
    cast = META | {"Collective name": "broadcast"}
    record = event("cpu_op", "record_param_comms", 5, 20, **cast, Rank=1)
    (row,) = collectives(record, *launched(KERNEL, 10, 20, 1, **cast))
    assert picked(row, "type", "root", "comm_rank") == ("broadcast", 1, None)
    sent = META | {"Collective name": "send", "Dst Rank": 4}
    (row,) = collectives(*launched("ncclDevKernel_SendRecv(x)", 10, 20, 1, **sent))
    assert picked(row, "type", "peer", "root") == ("send", 4, None)


def test_sizes_from_shapes_where_nothing_else_tells() -> None:
    operator = event(
        "cpu_op",
        "c10d::alltoall_base_",
        4,
        30,
        **{"Input Dims": [[12], [4, 2], []], "Input type": ["int", "int", ""]},
    )
    called = event("user_annotation", "nccl:all_to_all", 6, 20)
    kernel = launched("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", 10, 20, 1)
    (row,) = collectives(operator, called, *kernel)
    assert picked(row, "type", "in_elements", "out_elements", "in_bytes") == (
        "all_to_all",
        8,
        12,
        32,
    )
    assert picked(row, "inferred_columns", "group") == ("sizes", None)


def test_symmetric_memory_takes_the_operators_shape() -> None:
    operator = event(
        "cpu_op",
        "symm_mem::multimem_all_reduce_",
        4,
        30,
        **{"Input Dims": [[100], []], "Input type": ["c10::BFloat16", ""]},
    )
    kernel = launched("void (anonymous namespace)::multimem_all_reduce_kernel<16>(x)", 10, 20, 1)
    (row,) = collectives(operator, *kernel)
    assert picked(row, "library", "in_bytes", "dtype") == (
        "torch_symmetric_memory",
        200,
        "BFloat16",
    )


def test_a_coalesced_launch_stands_for_its_members() -> None:
    def record(start: float, name: str, peer: str) -> Event:
        return event(
            "cpu_op",
            "record_param_comms",
            start,
            2,
            **(META | {"Collective name": name, peer: 4}),
        )

    (row,) = collectives(
        record(1, "send", "Dst Rank"),
        record(4, "recv", "Src Rank"),
        event("user_annotation", "nccl:coalesced", 8, 10),
        *launched("ncclDevKernel_SendRecv(x)", 10, 20, 1),
    )
    assert picked(row, "type", "coalesced", "in_bytes") == ("send_recv", "nccl:coalesced", 40)
    assert picked(row, "messages", "peer") == ('[["send",4,40],["recv",4,40]]', 4)
    assert picked(row, "group", "group_ranks") == ("3", "[0,4]")
    assert {"sizes", "group"} <= set(row["inferred_columns"].split(","))


def test_ranges_of_coalesced_calls_may_last_until_their_results_are_let_go() -> None:
    """The first call's range covers the second call; peers are told by `Rank` and the group."""

    def record(start: float, name: str, rank: int) -> Event:
        said = {"Collective name": name, "Rank": rank, "Process Group Ranks": "[3, 8, 5]"}
        return event("cpu_op", "record_param_comms", start, 1, **(META | said))

    first, second = collectives(
        record(1, "send", 2),
        event("user_annotation", "nccl:coalesced", 3, 100),
        *launched("ncclDevKernel_SendRecv(x)", 4, 20, 1),
        record(32, "recv", 1),  # in the file behind what comes later
        record(30, "send", 0),
        record(34, "send", 7),
        event("user_annotation", "nccl:coalesced", 36, 100),
        *launched("ncclDevKernel_SendRecv(x)", 37, 80, 2),
    )
    assert picked(first, "messages", "peer") == ('[["send",5,40]]', 5)
    assert picked(second, "messages", "peer") == (
        '[["send",3,40],["recv",8,40],["send",null,40]]',
        None,
    )


def test_random_coalesced_calls_on_several_threads_carry_what_was_put_into_them() -> None:
    random = Random(5)
    events: list[Event] = []
    expected: dict[int, tuple[int, int, str]] = {}
    clock = {51: 0, 52: 3, 53: 5}  # microseconds, by thread
    for correlation in range(1, 200):
        thread = random.choice(list(clock))
        kinds = random.choice([("send", "recv"), ("allgather",), ("allreduce", "allgather")])
        sent = received = 0
        drawn = [random.choice(kinds) for _ in range(random.randrange(1, 5))]
        for kind in drawn:
            elements = random.randrange(1, 1000)
            said = META | {"In msg nelems": elements, "Out msg nelems": elements}
            member = event(
                "cpu_op",
                "record_param_comms",
                clock[thread],
                1,
                **(said | {"Collective name": kind}),
            )
            events.append(member | {"tid": thread})
            sent += 0 if kind == "recv" else 4 * elements
            received += 0 if kind == "send" else 4 * elements
            clock[thread] += random.randrange(2, 9)
        length = random.choice([3, 1_000])  # until results are let go, past later calls
        closing = event("user_annotation", "nccl:coalesced", clock[thread], length)
        call, kernel = launched("ncclDevKernel(x)", clock[thread] + 1, 10**5, correlation)
        kernel["ts"] += 100 * correlation
        events += [closing | {"tid": thread}, call | {"tid": thread}, kernel]
        expected[correlation] = (sent, received, type_of(drawn))
        clock[thread] += random.randrange(5, 20)
    random.shuffle(events)
    rows = sorted(collectives(*events), key=lambda row: row["start_ns"])
    carried = [picked(row, "in_bytes", "out_bytes", "type") for row in rows]
    assert carried == list(expected.values())


def type_of(kinds: list[str]) -> str:
    """Return what a coalesced call of such members is called."""
    if set(kinds) <= {"send", "recv"}:
        return "send_recv"
    names = {"allgather": "all_gather", "allreduce": "all_reduce"}
    return names[kinds[0]] if len(set(kinds)) == 1 else "coalesced"


def test_waits_and_splits_are_no_collectives() -> None:
    waiting = {"Collective name": "wait", "Group size": 1, "In msg nelems": 0}
    assert collectives(event("cpu_op", "record_param_comms", 1, 2, **waiting)) == []


def test_calls_without_a_kernel_have_no_times() -> None:
    (row,) = collectives(event("cpu_op", "record_param_comms", 1, 2, **META))
    assert picked(row, "timing", "start_ns", "enqueue_ns", "in_bytes") == ("none", None, 1000, 40)


def test_gloo_runs_on_the_cpu() -> None:
    job = {
        "backend": "gloo",
        "rank": 1,
        "world_size": 2,
        "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}],
    }
    called = event(
        "user_annotation",
        "gloo:all_reduce",
        5,
        40,
        **{"Input Dims": [[1000]], "Input type": ["float"]},
    )
    (row,) = collectives(called, distributedInfo=job)
    assert picked(row, "library", "timing", "start_ns", "end_ns") == ("gloo", "cpu", 5000, 45_000)
    assert picked(row, "in_bytes", "group", "group_ranks") == (4000, "0", "[0,1]")
    assert "group" in row["inferred_columns"]


def test_gloo_on_its_own_thread_is_told_by_order() -> None:
    job = {"rank": 0, "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [3, 5]}]}
    cast = event("cpu_op", "c10d::broadcast_", 1, 2, **{"Concrete Inputs": ["", "", "1", "0"]})
    ran = event("user_annotation", "gloo:broadcast", 9, 4) | {"tid": 99}
    send = event("cpu_op", "c10d::send", 20, 9, **{"Concrete Inputs": ["", "", "1", "0"]})
    sent = event("user_annotation", "gloo:send", 22, 4)
    rows = collectives(cast, ran, send, sent, distributedInfo=job)
    assert {r["type"]: picked(r, "root", "peer") for r in rows} == {
        "broadcast": (1, None),
        "send": (None, 5),
    }


def test_gloo_calls_a_reduce_scatter_an_all_reduce() -> None:
    """As torch 2.13 writes it: the c10d call says what it was."""
    shapes = {"Input Dims": [[40], [80]], "Input type": ["float", "float"]}
    scatter = event("cpu_op", "c10d::_reduce_scatter_base_", 1, 2, **shapes)
    ran = event("user_annotation", "gloo:all_reduce", 4, 4, **{"Input Dims": [[80]]})
    one = {"Input Dims": [[[7]]], "Input type": ["TensorList"]}
    reduce = event("cpu_op", "c10d::allreduce_", 10, 2, **one)
    then = event("user_annotation", "gloo:all_reduce", 13, 4, **{"Input Dims": [[7]]})
    rows = collectives(scatter, ran | {"tid": 99}, reduce, then | {"tid": 98})
    assert [r["type"] for r in rows] == ["reduce_scatter", "all_reduce"]


def test_other_vendors() -> None:
    hccl = event("mtia_ccp_events", "hccl::all_gather", 1, 2)
    on_host = event("collective_comm", "xccl::allreduce", 5, 2, Communicator_id=3)
    rows = collectives(hccl, on_host)
    assert [picked(r, "type", "library") for r in rows] == [("all_gather", "hccl")]
    tables = parsed(hccl, on_host).tables
    assert tables["launches"]["name"].to_pylist() == ["xccl::allreduce"]
    assert tables["kernels"]["name"].to_pylist() == ["hccl::all_gather"]


def test_groups_of_the_job() -> None:
    job = {
        "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]},
            {"pg_name": "1", "pg_size": 2, "ranks": "[0, 1]", "backend_config": "cuda:nccl"},
            "broken",
            {"pg_name": 7, "ranks": {}},
        ]
    }
    found = parsed(event("cpu_op", "a", 1, 2), distributedInfo=job).tables["comm_groups"]
    assert found["group_ranks"].to_pylist() == ["[0,1]", "[0,1]", None]
    assert found["group"].to_pylist() == ["0", "1", None]


def test_splits_of_an_uneven_exchange() -> None:
    uneven = META | {
        "Collective name": "all_to_allv",
        "In split size": "[3, 7]",
        "Out split size": "[5, ..., 5]",
    }
    (row,) = collectives(*launched("ncclDevKernel_SendRecv(x)", 10, 20, 1, **uneven))
    assert picked(row, "type", "in_split", "out_split") == ("all_to_all", "[3,7]", None)
