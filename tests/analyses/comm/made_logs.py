"""Logs of jobs that are made up, with what is true of them: any seed, any launcher's tags.

A job of one group of all ranks hangs at one call, dies, or ended; RAS counts beside it or does
not. What each rank writes is mixed with the others' lines and with ordinary ones, some of it is
cut, and each line gets the tag of the launcher. A verdict may say less than what is true, and
nothing else.
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
STATES = ("missing", "network", "mismatch", "ended", "alone", "died", "counted", "enqueued")
_OUTSIDE = -1  # writes a line that is no rank's: a launcher, a scheduler, the kernel
# The last words of jobs, what they mean, and whether they name the rank that died.
DEATHS: tuple[tuple[str, str, bool], ...] = (
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.{rank}. Some step tasks have been "
     "OOM Killed.", "out_of_memory", False),
    ("[Tue May  5 06:16:00 2026] Out of memory: Killed process {pid} (python) total-vm:9kB",
     "out_of_memory", False),
    ("mpirun noticed that process rank {rank} with PID {pid} on node n1 exited on signal 9 "
     "(Killed).", "crashed", True),
    ("[ERROR] failed (exitcode: -11) local_rank: 2 (pid: {pid}) of binary: /usr/bin/python",
     "crashed", False),
    ("[ 98.5] NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, GPU has fallen off the bus.",
     "gpu_error", False),
    ("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-05-05T06:16:00 DUE TO TIME LIMIT ***",
     "cancelled", False),
)  # fmt: skip


@dataclass
class MadeLog:
    """A log and its truth."""

    state: str
    size: int
    culprit: int
    speakers: list[int]  # ranks whose call timed out, by the log
    cause: tuple[str, str] | None = None  # of a job that died: what its last words mean, of whom
    seq: int = 0  # of the call at which it hangs
    lines: list[tuple[int, str]] = field(default_factory=list)

    def text(self, tag: str) -> str:
        tags = {rank: TAGS[tag](rank) for rank, _ in self.lines if rank != _OUTSIDE}
        return "".join(f"{tags.get(rank, '')}{line}\n" for rank, line in self.lines)


def timed_out(
    rank: int, seq: int, kind: str, elements: int, *, is_cut: bool, open_calls: tuple[int, ...] = ()
) -> list[str]:
    """Return what a rank's watchdog writes; cut: the line that names the group is missing.

    `open_calls`: the numbers of all calls that are open, where there are others.
    """
    oldest, newest = min([seq, *open_calls]), max([seq, *open_calls])
    head = f"[rank{rank}]:[E1206 18:44:12.7152 ProcessGroupNCCL.cpp:"
    call = (
        f"{head}683] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum="
        f"{seq}, OpType={kind}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran "
        "for 600011 milliseconds before timing out."
    )
    counters = (
        f"{head}2453] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at "
        f"work sequence id: {seq} PG status: last enqueued work: {newest}, last completed "
        f"work: {oldest - 1}"
    )
    return [call] if is_cut else [call, counters]


def made_log(seed: int) -> MadeLog:
    """Return the log of a job that the seed makes up."""
    dice = random.Random(seed)
    size, seq = dice.choice([4, 8, 32, 256]), dice.randint(50, 10**6)
    ranks = list(range(size))
    log = MadeLog(dice.choice(STATES), size, dice.choice(ranks), [])
    written: dict[int, list[str]] = {rank: [] for rank in ranks}
    log.seq = seq
    if log.state == "enqueued":
        for rank in ranks:
            calls = dice.randint(3, 4) if rank == log.culprit else 5
            written[rank] += _communicator(rank, size, calls)[:-1]
    elif log.state == "ended":
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
            numbers = (seq, seq + dice.randint(1, 9)) if dice.random() < 0.3 else (seq,)
            for number in reversed(numbers):  # a call that was enqueued behind it times out too
                is_cut = rank != naming_rank and dice.random() < 0.3
                written[rank] += timed_out(rank, number, *call, is_cut=is_cut, open_calls=numbers)
    log.lines = _interleaved(written, dice)
    if log.state == "counted":
        log.lines = [(0, line) for line in _even_report(size)] + log.lines
    elif log.state == "died":
        words, kind, names_rank = dice.choice(DEATHS)
        line = words.format(rank=log.culprit, pid=4100 + log.culprit)
        log.lines.insert(dice.randint(0, len(log.lines)), (_OUTSIDE, line))
        log.cause = kind, str(log.culprit) if names_rank else ""
    return log


def _even_report(size: int) -> list[str]:
    """Return what RAS prints of one communicator in which all ranks are equally far."""
    return [
        "Communicators... (0.00s)",
        "=============",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        f"    0         1         1         8       {size:3}       {size:3}   RUNNING  OK",
    ]


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
