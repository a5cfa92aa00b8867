"""Logs as people have them: cut, of some ranks, beside RAS, of jobs that ended or were killed."""

from pathlib import Path

import pytest

from htk.answers.output.result import Result
from tests.analyses.comm.hanging_logs import (
    EIGHT,
    SAMPLES,
    call,
    causes,
    init,
    post_mortem,
    ras,
    warn,
)
from tests.analyses.comm.made_logs import timed_out

RAS = """Job summary
===========
Communicators... (0.00s)
=============
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1        32         8       256       256   RUNNING  OK
"""


def watched(rank: int, seq: int, kind: str, elements: int, *, is_cut: bool = False) -> str:
    return "\n".join([*timed_out(rank, seq, kind, elements, is_cut=is_cut), ""])


def texts(result: Result, finding: str = "cannot_decide") -> list[str]:
    return [row["text"] for row in result.to_pylist() if row["finding"] == finding]


def test_ranks_above_the_highest_that_spoke_are_not_cleared(tmp_path: Path) -> None:
    line = watched(118, 2398459, "ALLREDUCE", 8)
    alone = post_mortem(tmp_path / "a", {"job.log": line})
    (row, *_) = alone.to_pylist()
    assert row["group_ranks"] is None and "ranks 0-117 and any above 118" in row["text"]
    beside = post_mortem(tmp_path / "b", {"job.log": RAS + line})
    assert causes(beside) == [("cannot_decide", "0-117,119-255")]
    assert "RAS saw all 256 ranks equally far" in beside.coverage["verdict"]
    assert beside.coverage["sources"] == ["ras", "watchdog"]


def test_the_oldest_open_call_blocks_and_other_numbers_may_be_other_groups(tmp_path: Path) -> None:
    numbers = ((0, 96120), (0, 96117), (0, 96125), (7, 64088))
    log = "".join(watched(rank, seq, "ALLREDUCE", 8, is_cut=True) for rank, seq in numbers)
    found = post_mortem(tmp_path, {"job.log": log})
    waiting = [r for r in found.to_pylist() if r["finding"] == "waiting"]
    assert [(r["ranks"], r["seq"], r["group_ranks"]) for r in waiting] == [
        ("0", 96117, None), ("7", 64088, None),
    ]  # fmt: skip


def test_one_number_and_two_types_is_the_mismatch(tmp_path: Path) -> None:
    log = watched(7, 80078, "BROADCAST", 5056) + watched(3, 80078, "ALLREDUCE", 2106, is_cut=True)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found)[0] == ("type_mismatch", "3,7") and not found.coverage["decided"]
    assert "rank 3 is of this group is inferred from its number" in found.coverage["verdict"]


def test_a_rank_whose_second_line_is_cut_is_not_blamed(tmp_path: Path) -> None:
    log = "".join(watched(rank, 808, "ALLREDUCE", 9801523, is_cut=rank == 2) for rank in range(3))
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("cannot_decide", "0-2")]
    assert texts(found, "waiting") == [
        "ranks 0-2 wait at all_reduce number 808 of group 0 (default_pg)."
    ]


def test_a_line_without_a_group_is_of_no_group_that_its_rank_is_in_twice(tmp_path: Path) -> None:
    """Rank 0 waits in the named group already: its other call of that number is of another one."""
    log = watched(0, 5, "ALLREDUCE", 64) + watched(0, 5, "ALLGATHER", 32, is_cut=True)
    found = post_mortem(tmp_path, {"job.log": log + watched(1, 5, "ALLREDUCE", 64)})
    assert "mismatch" not in str(causes(found))


# Jobs that ended


def torn_down(rank: int, how: str = "Destroy") -> str:
    head = f"node-a:{4100 + rank}:{4200 + rank} [{rank}] NCCL INFO comm 0xabc{rank} rank {rank} "
    return f"{head}nranks 8 cudaDev {rank} busId 1b000 - {how} COMPLETE\n"


def test_a_job_that_tore_its_communicators_down_does_not_hang(tmp_path: Path) -> None:
    calls = "".join(map(init, EIGHT)) + "".join(map(call, EIGHT)) * 3 + call(0)
    ended = calls + "".join(map(torn_down, EIGHT))
    found = post_mortem(tmp_path / "a", {"job.log": ended})
    assert (
        causes(found) == [("nothing_pending", "")]
        and "in good order" in texts(found, "nothing_pending")[0]
    )
    aborted = calls + "".join(torn_down(rank, "Abort") for rank in EIGHT)
    found = post_mortem(tmp_path / "b", {"job.log": aborted})
    assert "were aborted" in found.coverage["verdict"] and not found.coverage["decided"]
    some = calls + "".join(map(torn_down, EIGHT[:7]))
    assert causes(post_mortem(tmp_path / "c", {"job.log": some})) != [("nothing_pending", "")]


def test_an_error_counts_though_communicators_were_aborted(tmp_path: Path) -> None:
    log = "".join(map(init, EIGHT)) + warn(6, "Cuda failure 'uncorrectable ECC error'")
    log += "".join(torn_down(rank, "Abort") for rank in EIGHT)
    assert causes(post_mortem(tmp_path, {"job.log": log})) == [("gpu_error", "6")]


def test_a_benchmark_that_printed_its_summary_ended(tmp_path: Path) -> None:
    text = (SAMPLES / "nccl_tests/with_nccl_log.txt").read_text()
    lines = [line for line in text.splitlines() if "WARN" not in line]
    found = post_mortem(tmp_path, {"b.log": "\n".join([*lines, ""])})
    assert causes(found) == [("nothing_pending", "")]
    assert "benchmark printed its summary" in found.coverage["verdict"]


# Reports of RAS


def test_many_behind_a_few_are_not_to_be_excluded(tmp_path: Path) -> None:
    counts = {rank: 641 if rank in (12, 13) else 640 for rank in range(32)}
    still = post_mortem(tmp_path / "a", {"1.json": ras(counts), "2.json": ras(counts)})
    assert causes(still) == [("cannot_decide", "12-13")] and not still.coverage["decided"]
    assert not still.coverage.get("exclude_ranks")
    later = {rank: count + 60 for rank, count in counts.items()}
    moved = post_mortem(tmp_path / "b", {"1.json": ras(counts), "2.json": ras(later)})
    assert causes(moved) == [("nothing_pending", "")]
    assert "went on by 60 calls or more" in moved.coverage["verdict"]
    assert not texts(moved, "to_decide")


# How jobs die

DEATHS = {
    "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some step tasks were OOM Killed.":
        ("out_of_memory", ""),
    "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 2 "
    "(pid: 81) of binary: /usr/bin/python": ("crashed", ""),
    "[  98.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=81, GPU has fallen off the bus.":
        ("gpu_error", ""),
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there "
    "was a network error, NCCL version 2.20": ("peer_closed", ""),
    "socketProgress: Connection closed by remote peer node2<41234>": ("peer_closed", ""),
    "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT "
    "***": ("cancelled", ""),
    "srun: error: node1: task 3: Exited with exit code 1": ("peer_closed", ""),
    "mpirun noticed that process rank 3 with PID 12 on node node1 exited on signal 11 "
    "(Segmentation fault).": ("crashed", "3"),
    "  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 27)": ("crashed", "3"),
    "  Process name: [[1234,1],3]\n  Exit code:    137": ("crashed", "3"),
    "  Process name: [[1234,1],3]\n  Exit code:    1": ("peer_closed", "3"),
    "[node-3:81] Signal: Segmentation fault (11)": ("crashed", ""),
    "[  98.5] Memory cgroup out of memory: Killed process 81 (python3) total-vm:9kB":
        ("out_of_memory", ""),
    "[rank3]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered":
        ("gpu_error", "3"),
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.":
        ("out_of_memory", "3"),
}  # fmt: skip


@pytest.mark.parametrize("lines_before", [1, 6000])
@pytest.mark.parametrize(("line", "expected"), DEATHS.items())
def test_how_jobs_die_is_read_among_ordinary_lines(
    tmp_path: Path, line: str, expected: tuple[str, str], lines_before: int
) -> None:
    log = "step 7 of the training loss 2.31\n" * lines_before + f"{line}\n"
    found = post_mortem(tmp_path, {"slurm-1.out": log})
    assert causes(found) == [expected]
    assert found.coverage["decided"] == (expected[0] != "peer_closed")


def test_an_xid_of_the_program_is_no_broken_gpu(tmp_path: Path) -> None:
    log = "step\nNVRM: Xid (PCI:0000:3b:00): 31, pid=81, name=python, MMU Fault\n"
    (row, *_) = post_mortem(tmp_path, {"dmesg.log": log}).to_pylist()
    assert row["finding"] == "gpu_error" and "a kernel failed" in row["text"]
