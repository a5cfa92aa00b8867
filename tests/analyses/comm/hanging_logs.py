"""What a hanging job leaves behind: logs of NCCL and the watchdog, dumps, RAS reports, stacks."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.comm.hanging_job import Job, Step, verdicts

SAMPLES = Path(__file__).parents[3] / "sample_traces"
EIGHT = tuple(range(8))


def post_mortem(folder: Path, files: Mapping[str, str | bytes]) -> Result:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ask_trace(open_trace(folder, OpenOptions(cache=False)), "hang")


def causes(result: Result) -> list[tuple[str, str]]:
    return [v for v in verdicts(result.table) if v[0] != "evidence"]


def init(rank: int, size: int = 8, comm: int = 0xABC) -> str:
    return (
        f"node-a:{4100 + rank}:{4200 + rank} [{rank}] NCCL INFO ncclCommInitRank comm "
        f"0x{comm:x}{rank} rank {rank} nranks {size} cudaDev {rank} nvmlDev {rank} busId 1b000 "
        f"commId {comm:#x} - Init COMPLETE\n"
    )


def call(
    rank: int, kind: str = "AllReduce", count: int = 1024, comm: int = 0xABC, size: int = 8
) -> str:
    return (
        f"node-a:{4100 + rank}:{4200 + rank} [{rank}] NCCL INFO {kind}: opCount 1 sendbuff 0x7 "
        f"recvbuff 0x7 count {count} datatype 7 op 0 root 0 comm 0x{comm:x}{rank} [nranks={size}] "
        "stream 0x5\n"
    )


def warn(rank: int, text: str) -> str:
    return f"\nnode-a:{4100 + rank}:{4200 + rank} [{rank}] transport/net_ib.cc:1 NCCL WARN {text}\n"


IB = "NET/IB : Got completion from peer 10.0.0.2<36315> with status=12 opcode=1 vendor err 129"


def watched(rank: int, seq: int, enqueued: int | None = None, **work: Any) -> str:
    """The lines of a rank whose call timed out."""
    facts = {"OpType": "ALLREDUCE", "NumelIn": 1024, "NumelOut": 1024} | work
    fields = ", ".join(f"{key}={value}" for key, value in facts.items())
    head = f"[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:"
    return (
        f"{head}683] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum="
        f"{seq}, {fields}, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
        f"{head}2453] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at "
        f"work sequence id: {seq} PG status: last enqueued work: {enqueued or seq}, last completed "
        f"work: {seq - 1}\n"
    )


def heard(rank: int, last: int) -> str:
    """The line of a rank that waits for nothing and hears of the timeout."""
    return (
        f"[rank{rank}]:[E1206 18:44:13.1 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] Received a dump signal due to a collective timeout from  rank 0 and we will "
        f"try our best to dump the debug info. Last enqueued NCCL work: {last}, last completed "
        f"NCCL work: {last}.\n"
    )


def dumps(programs: dict[int, list[Step]], **job: Any) -> dict[str, bytes]:
    by_rank = Job(programs, timing=False, **job).run()
    return {f"comm_lib_trace_rank_{rank}": pickle.dumps(dump, 2) for rank, dump in by_rank.items()}


def loop(calls: int = 6) -> dict[int, list[Step]]:
    return {rank: [Step(EIGHT, "all_reduce", 1024)] * calls for rank in EIGHT}


def missing_five() -> dict[int, list[Step]]:
    programs = loop()
    del programs[5][4:]
    return programs


def ras(counts: Mapping[int, int], unresponsive: tuple[int, ...] = ()) -> str:
    ranks = [
        {
            "rank": rank, "host": "10.0.0.1", "pid": 4100 + rank, "cuda_dev": rank,
            "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
            "collective_counts": {"AllReduce": count, "AllGather": 2},
        }
        for rank, count in counts.items()
    ]  # fmt: skip
    missing = [
        {"rank": rank, "host": "10.0.0.2", "pid": 1, "cuda_dev": 0, "nvml_dev": 0,
         "status": {"unresponsive": True, "considered_dead": False}}
        for rank in unresponsive
    ]  # fmt: skip
    comm = {
        "hash": "0xabc", "size": len(ranks) + len(missing), "ranks_count": len(ranks),
        "missing_ranks_count": len(missing), "ranks": ranks, "missing_ranks": missing,
    }  # fmt: skip
    return json.dumps({"nccl_version": "2.29.7", "communicators_count": 1, "communicators": [comm]})


SPY = """Process 4105: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 4105 (idle): "MainThread"
    get (queue.py:180)
    next_batch (app/loader.py:88)
    main (app/train.py:97)
"""
OOM = """[rank5]: Traceback (most recent call last):
[rank5]:   File "/app/model.py", line 12, in forward
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
RESULT = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/train.py", line 41, in step
[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94
"""
