"""The second table of docs/hang.md: what logs, RAS, stacks and several sources together tell."""

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.analyses.comm.hanging_job import PAGE
from tests.analyses.comm.hanging_logs import (
    EIGHT,
    IB,
    OOM,
    RESULT,
    SAMPLES,
    SPY,
    call,
    causes,
    dumps,
    heard,
    init,
    loop,
    missing_five,
    post_mortem,
    ras,
    warn,
    watched,
)

Files = Mapping[str, str | bytes]
INITS = "".join(map(init, EIGHT))
CALLS = "".join(map(call, EIGHT))


def five_crashed() -> dict[str, str | bytes]:
    """Rank 5 never came to the fifth call, and left no dump."""
    files: dict[str, str | bytes] = dict(dumps(missing_five()))
    del files["comm_lib_trace_rank_5"]
    return files


def one_odd(wrong: str) -> Files:
    """Rank 5's fourth call is another."""
    odd = "".join(wrong if rank == 5 else call(rank) for rank in EIGHT)
    return {"job.log": INITS + CALLS * 3 + odd + CALLS}


def log_watchdog() -> Files:
    lines = "".join(watched(r, 78, 80) for r in EIGHT if r != 3)
    return {"job.log": lines + heard(3, 77)}


def log_watchdog_silent() -> Files:
    return {"job.log": "".join(watched(r, 78) for r in (0, 1, 2, 4))}


def log_watchdog_last() -> Files:
    return {"job.log": "".join(watched(r, 78) for r in range(7))}


def log_watchdog_and_init() -> Files:
    return {"job.log": INITS + "".join(watched(r, 78) for r in EIGHT)}


def log_watchdog_size() -> Files:
    sizes = {r: 1000 if r == 2 else 1024 for r in range(4)}
    lines = (watched(r, 9, NumelIn=n, NumelOut=n) for r, n in sizes.items())
    return {"job.log": "".join(lines)}


def log_watchdog_type() -> Files:
    kinds = {r: "BROADCAST" if r == 1 else "ALLREDUCE" for r in range(4)}
    return {"job.log": "".join(watched(r, 9, OpType=kind) for r, kind in kinds.items())}


def log_watchdog_message() -> Files:
    return {"job.log": watched(0, 12, OpType="SEND", NumelIn=64, NumelOut=64)}


def log_ray_subgroup() -> Files:
    return {"ray.log": (SAMPLES / "watchdog/ray_subgroup_size.log").read_bytes()}


def log_at_its_end() -> Files:
    return {"slurm-4711.out.gz": (SAMPLES / "job_log/slurm-4711.out.gz").read_bytes()}


def log_behind() -> Files:
    return {"job.log": INITS + "".join(call(r) * (50 if r == 5 else 51) for r in EIGHT)}


def log_behind_nodes() -> Files:
    """A log for each node."""
    nodes = (EIGHT[:4], EIGHT[4:])
    return {
        f"node{k}.log": "".join(map(init, ranks))
        + "".join(call(r) * (50 if r == 5 else 51) for r in ranks)
        for k, ranks in enumerate(nodes)
    }


def log_other_communicator() -> Files:
    log = "".join(init(r, 4) for r in range(4))
    for within, rank in enumerate((1, 3)):
        log += init(rank, 2, 0xD).replace(f"rank {rank} nranks", f"rank {within} nranks")
    log += "".join(call(r, size=4) * (5 if r in (0, 2) else 4) for r in range(4))
    return {"job.log": log + call(1, comm=0xD, size=2) * 3 + call(3, comm=0xD, size=2) * 2}


def log_circle() -> Files:
    """Ranks 0 and 1 use two communicators in opposite orders."""
    log = "".join(init(r, 2, comm) for comm in (0xA, 0xB) for r in (0, 1))
    return {"job.log": log + call(0, comm=0xA, size=2) * 2 + call(0, comm=0xB, size=2)
            + call(1, comm=0xB, size=2) * 2 + call(1, comm=0xA, size=2)}  # fmt: skip


def log_type() -> Files:
    return one_odd(call(5, "AllGather"))


def log_size() -> Files:
    return one_odd(call(5, count=1000))


def log_dtype() -> Files:
    return one_odd(call(5).replace("datatype 7", "datatype 6"))


def log_root() -> Files:
    odd = "".join(
        call(r, "Broadcast").replace("root 0", "root 1" if r == 5 else "root 2") for r in EIGHT
    )
    return {"job.log": INITS + CALLS * 3 + odd}


def log_infiniband() -> Files:
    return {"job.log": INITS + CALLS * 3 + warn(1, IB)}


def log_kernel_failed() -> Files:
    closed = "socketProgress: Connection closed by remote peer node-a<1234>"
    failed = warn(0, "Cuda failure 'unspecified launch failure'")
    return {"job.log": INITS + "".join(warn(r, closed) for r in EIGHT[1:]) + failed}


def log_peer_closed() -> Files:
    closed = "socketProgress: Connection closed by remote peer node-a<1234>"
    return {"job.log": INITS + "".join(warn(r, closed) for r in EIGHT[1:])}


def log_harmless() -> Files:
    return {"job.log": INITS + CALLS + warn(6, "Failed to open libibverbs.so[.1]")}


def log_torchrun() -> Files:
    return {"job.log": (SAMPLES / "python_stacks/torchrun_exception.log").read_bytes()}


def log_exception() -> Files:
    return {"job.log": RESULT + OOM}


def ras_once() -> Files:
    return {"ras.json": ras({r: 640 if r == 3 else 641 for r in EIGHT})}


def ras_twice() -> Files:
    report = ras({r: 640 if r == 3 else 641 for r in EIGHT})
    return {"1.json": report, "2.json": report}


def ras_unresponsive() -> Files:
    return {"ras.json": ras(dict.fromkeys(range(7), 641), (7,))}


def ras_text() -> Files:
    return {"ras.txt": (SAMPLES / "ras/text_incomplete.txt").read_bytes()}


def ras_alike() -> Files:
    return {"ras.json": ras(dict.fromkeys(EIGHT, 641))}


def stack_alone() -> Files:
    return {"stack_rank5.txt": SPY}


def dumps_and_watchdog() -> Files:
    """The dumps call the group by another name than `default_pg`."""
    entries = pickle.loads(dumps(missing_five())["comm_lib_trace_rank_0"])["entries"]
    name = entries[0]["process_group"][0]
    line = heard(5, 4).replace("PG GUID 0(default_pg)", f"PG GUID {name}(undefined)")
    return {**five_crashed(), "rank5.log": line}


def dumps_and_log() -> Files:
    log = INITS + "".join(call(r) * (4 if r == 5 else 5) for r in EIGHT)
    return {**five_crashed(), "nccl.log": log}


def dumps_and_ras() -> Files:
    counts = dict.fromkeys((0, 1, 2, 3, 4, 6, 7), 5)
    return {**five_crashed(), "ras.json": ras(counts, (5,))}


def dumps_and_traceback() -> Files:
    return {**five_crashed(), "job.log": RESULT + OOM}


def dumps_and_stack() -> Files:
    return {**dumps(missing_five()), "stack_rank5.txt": SPY}


def stack_debug_server() -> Files:
    return {path.name: path.read_bytes() for path in (SAMPLES / "debug_server").iterdir()}


def dumps_and_infiniband() -> Files:
    return {**dumps(loop(), frozen={3}), "nccl.log": INITS + warn(1, IB)}


MADE: dict[str, Callable[[], Files]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and name.startswith(("log_", "ras_", "stack_", "dumps_"))
}


def table() -> dict[str, str]:
    """Verdicts of the documented table by the name of their scenario."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: verdict for name, verdict in rows if name.startswith(tuple(MADE))}


@pytest.mark.parametrize(("name", "expected"), table().items())
def test_the_documented_verdict(tmp_path: Path, name: str, expected: str) -> None:
    answer = post_mortem(tmp_path, MADE[name]())
    undecided = "" if answer.coverage["decided"] else " (undecided)"
    verdict = "; ".join(f"{what} {ranks}".strip() for what, ranks in causes(answer)) + undecided
    assert verdict == expected
    if "undecided" in expected:
        assert "to_decide" in answer.table["finding"].to_pylist()


def test_every_scenario_is_documented() -> None:
    assert set(MADE) == set(table())


def test_there_are_as_many_scenarios_as_the_page_says() -> None:
    rows = re.findall(r"^\| `\w+` \| ", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 45
