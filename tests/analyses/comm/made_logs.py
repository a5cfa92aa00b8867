"""Logs of jobs that are made up, with what is true of them: any seed, any launcher's tags.

A job of one group of all ranks hangs at one call, or ended, or goes on. What each rank writes is
mixed with the others' lines and with ordinary ones, some of it is cut, and each line gets the tag
of the launcher. A verdict may say less than what is true, and nothing else.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

TAGS: dict[str, Callable[[int], str]] = {
    "none": lambda rank: "",
    "srun": lambda rank: f"{rank}: ",
    "mpirun": lambda rank: f"[1,{rank}]<stdout>:",
    "torchrun": lambda rank: f"[default{rank % 8}]:",
    "pod": lambda rank: f"2026-05-05T06:16:{rank % 60:02}.123456789Z stderr F ",
    "kubectl": lambda rank: f"[pod/worker-{rank // 8}/main] ",
}
ORDINARY = ("step {} loss 2.31 lr 1e-4", "saving checkpoint {}", "INFO:root:epoch {} done", "")
STATES = ("missing", "network", "mismatch", "ended", "alone")


@dataclass
class MadeLog:
    """A log and its truth."""

    state: str
    size: int
    culprit: int
    speakers: list[int]  # ranks whose call timed out, by the log
    lines: list[tuple[int, str]] = field(default_factory=list)

    def text(self, tag: str) -> str:
        return "".join(f"{TAGS[tag](rank)}{line}\n" for rank, line in self.lines)


def timed_out(rank: int, seq: int, kind: str, elements: int, *, is_cut: bool) -> list[str]:
    """Return what a rank's watchdog writes; cut: the line that names the group is missing."""
    head = f"[rank{rank}]:[E1206 18:44:12.7152 ProcessGroupNCCL.cpp:"
    call = (
        f"{head}683] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum="
        f"{seq}, OpType={kind}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran "
        "for 600011 milliseconds before timing out."
    )
    counters = (
        f"{head}2453] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at "
        f"work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: "
        f"{seq - 1}"
    )
    return [call] if is_cut else [call, counters]


def made_log(seed: int) -> MadeLog:
    """Return the log of a job that the seed makes up."""
    dice = random.Random(seed)
    size, seq = dice.choice([4, 8, 32, 256]), dice.randint(50, 10**6)
    ranks = list(range(size))
    log = MadeLog(dice.choice(STATES), size, dice.choice(ranks), [])
    written: dict[int, list[str]] = {rank: [] for rank in ranks}
    if log.state == "ended":
        for rank in ranks:
            written[rank] += _communicator(rank, size, dice.randint(3, 5))
    else:
        heard = dice.sample(ranks, dice.randint(2, min(size, 12)))
        log.speakers = heard[:1] if log.state == "alone" else heard
        if log.state == "missing":
            log.speakers = [rank for rank in log.speakers if rank != log.culprit]
        elif log.state == "mismatch":
            log.culprit = dice.choice(log.speakers)
        elements = 8 * dice.randint(1, 10**6)
        naming_rank = dice.choice(log.speakers)  # of one rank at least the group is named
        for rank in log.speakers:
            is_other = log.state == "mismatch" and rank == log.culprit
            call = ("BROADCAST", 5056) if is_other else ("ALLREDUCE", elements)
            is_cut = rank != naming_rank and dice.random() < 0.3
            written[rank] = timed_out(rank, seq, *call, is_cut=is_cut)
    log.lines = _interleaved(written, dice)
    return log


def _communicator(rank: int, size: int, calls: int) -> list[str]:
    """Return what NCCL logs of a communicator: made, used and torn down in good order."""
    head = f"node-a:{4100 + rank}:{4200 + rank} [{rank % 8}] NCCL INFO "
    comm = f"comm 0xabc{rank} rank {rank} nranks {size} cudaDev {rank % 8} busId 1b000"
    start = f"{head}ncclCommInitRank {comm} commId 0xabc - Init COMPLETE"
    call = (
        f"{head}AllReduce: opCount 1 sendbuff 0x7 recvbuff 0x7 count 1024 datatype 7 op 0 root 0 "
        f"comm 0xabc{rank} [nranks={size}] stream 0x5"
    )
    return [start, *[call] * calls, f"{head}{comm} - Destroy COMPLETE"]


def _interleaved(written: dict[int, list[str]], dice: random.Random) -> list[tuple[int, str]]:
    """Mix the lines of all ranks, each rank's in order, with ordinary ones between."""
    left = {rank: list(lines) for rank, lines in written.items() if lines}
    mixed: list[tuple[int, str]] = []
    while left:
        rank = dice.choice(list(left))
        mixed.append((rank, left[rank].pop(0)))
        if dice.random() < 0.3:
            mixed.append((dice.choice(list(written)), dice.choice(ORDINARY).format(len(mixed))))
        if not left[rank]:
            del left[rank]
    return mixed
