"""Random jobs that communicate, as raw Kineto files, to hold the analyses of communication to.

A job has pipeline, data, context, expert and tensor parallel groups, called as PyTorch calls them:
by one counter of the whole job (`new_group`), or each part of a split alike (`split_group`). All
ranks run one program of collectives, single messages, batches of messages (chains and rings) and
coalesced calls; who comes last and how long a transfer takes is drawn. Hosts' clocks may be apart,
lists of ranks are cut as PyTorch cuts them, files and ends of recordings may be missing.
"""

import json
import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

COLLECTIVES = (
    "allreduce", "_allgather_base", "_reduce_scatter_base", "all_to_all", "all_to_allv",
    "broadcast", "reduce", "gather", "scatter",
)  # fmt: skip
_ROOTED_FROM, _ROOTED_TO = ("broadcast", "scatter"), ("reduce", "gather")
_WIDTH = {"Float": 4, "BFloat16": 2, "Byte": 1, "Long": 8, "Float8_e4m3fn": 1}
_KERNELS = {
    "allreduce": "AllReduce_Sum_f32_RING_LL", "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_f32_RING_LL", "broadcast": "Broadcast_RING_LL",
    "reduce": "Reduce_Sum_f32_RING_LL",
}  # fmt: skip
_LISTED = 30  # ranks of a list that is written whole
_CALL_NS, _BRIEF_NS = 5_000, 200  # of the host: for one call; for a record that launches nothing
_ON_HOST = ("Rank", "Global rank start", "Global rank stride")
BASE_NS = 1_700_000_000_000_000_000
Event = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Ranks that communicate, and what PyTorch calls them."""

    name: str
    kind: str
    ranks: tuple[int, ...]


@dataclass
class Call:
    """One kernel of one rank: when it ran on a true clock, and what it waited."""

    rank: int
    group: Group
    records: list[Event]  # what c10d says of it; several of a coalesced call
    start: int
    end: int
    wait: int


@dataclass
class Job:
    """A job that ran: its calls in the order of the program, and how it was recorded."""

    seed: int
    world: int
    groups: list[Group] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    clock: dict[int, int] = field(default_factory=dict)  # what each rank's clock is ahead
    host: dict[int, str] = field(default_factory=dict)
    says: dict[str, bool] = field(default_factory=dict)  # what the files tell
    missing: set[int] = field(default_factory=set)
    kept: dict[int, tuple[int, int]] = field(default_factory=dict)  # calls of a rank that it has


class _Run:
    """A job while it runs: each rank's time, and the numbers of its next calls."""

    def __init__(self, job: Job, dice: random.Random) -> None:
        self.job, self.dice = job, dice
        self.now = {rank: 1_000_000 for rank in range(job.world)}
        self.seq: dict[tuple[int, Group, str], int] = {}

    def collective(self, group: Group) -> None:
        """Run a collective of a group; all that wait for all end together."""
        kind, dtype = self.dice.choice(COLLECTIVES), self.dice.choice([*_WIDTH])
        size, ranks = 8 * self.dice.randint(1, 1 << self.dice.randint(3, 20)), group.ranks
        root = self.dice.randrange(len(ranks))
        start = self._starts(ranks)
        took = self._transfer(size * _WIDTH[dtype])
        sent = [[self.dice.randint(0, size) for _ in ranks] for _ in ranks]
        for nth, rank in enumerate(ranks):
            from_root = kind in _ROOTED_FROM and nth != root
            alone = kind in _ROOTED_FROM or (kind in _ROOTED_TO and nth != root)
            last = start[ranks[root]] if from_root else max(start.values())
            last = start[rank] if alone and not from_root else max(last, start[rank])
            facts = _sizes(kind, size, nth, root, sent) | {"dtype": dtype}
            record = self._record(rank, group, kind, "collective") | facts
            if kind in (*_ROOTED_FROM, *_ROOTED_TO):
                record["Rank"] = root
            self._call(rank, group, [record], start[rank], last, took)

    def coalesced(self, group: Group) -> None:
        """Run several all-reduces as one kernel, as a coalescing manager does."""
        sizes = [8 * self.dice.randint(1, 10_000) for _ in range(self.dice.randint(2, 4))]
        start, took = self._starts(group.ranks), self._transfer(4 * sum(sizes))
        for rank in group.ranks:
            records = []
            for size in sizes:
                sides = {"In msg nelems": size, "Out msg nelems": size, "dtype": "Float"}
                records.append(self._record(rank, group, "allreduce", "collective") | sides)
            self._call(rank, group, records, start[rank], max(start.values()), took)

    def messages(self, group: Group, pairs: list[tuple[int, int]], *, batched: bool) -> None:
        """Run messages from one rank to another, each by itself or a call for all of a rank's."""
        size = {pair: 8 * self.dice.randint(1, 1 << self.dice.randint(3, 20)) for pair in pairs}
        batches = [pairs] if batched else [[pair] for pair in pairs]
        for batch in batches:
            ranks = sorted({rank for pair in batch for rank in pair})
            start = self._starts(ranks)
            took = self._transfer(2 * max(size[pair] for pair in batch))
            for rank in ranks:
                own = [pair for pair in batch if rank in pair]
                peers = [other for pair in own for other in pair if other != rank]
                records = [self._message(rank, group, pair, size[pair]) for pair in own]
                last = max(start[peer] for peer in [*peers, rank])
                self._call(rank, group, records, start[rank], last, took, batched=batched)

    def _message(self, rank: int, group: Group, pair: tuple[int, int], size: int) -> Event:
        sends = pair[0] == rank
        other = {"Dst Rank": pair[1]} if sends else {"Src Rank": pair[0]}
        facts = {"In msg nelems": size, "Out msg nelems": size, "dtype": "BFloat16"}
        return self._record(rank, group, "send" if sends else "recv", "p2p") | facts | other

    def _starts(self, ranks: list[int] | tuple[int, ...]) -> dict[int, int]:
        """Return when each rank begins, after computing for a while."""
        return {rank: self.now[rank] + self.dice.randint(2_000, 400_000) for rank in ranks}

    def _transfer(self, size: int) -> int:
        return 5_000 + round(size / self.dice.choice((20.0, 50.0, 200.0)))

    def _call(
        self, rank: int, group: Group, records: list[Event], start: int, last: int, took: int,
        *, batched: bool = False,
    ) -> None:  # fmt: skip
        end = last + took + self.dice.randint(0, 200)
        self.now[rank] = end
        for record in records if batched or len(records) > 1 else ():
            record["coalesced"] = True
        self.job.calls.append(Call(rank, group, records, start, end, last - start))

    def _record(self, rank: int, group: Group, kind: str, counted: str) -> Event:
        key = (rank, group, counted)
        self.seq[key] = self.seq.get(key, -1) + 1
        return {
            "Collective name": kind, "Group size": len(group.ranks),
            "Process Group Name": group.name, "Process Group Description": group.kind,
            "Process Group Ranks": _listed(group.ranks), "Seq": self.seq[key],
            "In split size": "[]", "Out split size": "[]", "Rank": group.ranks.index(rank),
            "Global rank start": group.ranks[0], "Global rank stride": _stride(group.ranks),
        }  # fmt: skip


def _sizes(kind: str, size: int, nth: int, root: int, sent: list[list[int]]) -> Event:
    """Return the elements in and out of a member of a collective."""
    ranks = len(sent)
    into, out = size, size
    if kind == "_allgather_base" or (kind == "gather" and nth == root):
        out = size * ranks
    elif kind == "_reduce_scatter_base" or (kind == "scatter" and nth == root):
        into = size * ranks
    elif kind == "all_to_all":
        into = out = size * ranks
    elif kind == "all_to_allv":
        received = [row[nth] for row in sent]
        into, out = sum(sent[nth]), sum(received)
        splits = {"In split size": str(sent[nth]), "Out split size": str(received)}
        return {"In msg nelems": into, "Out msg nelems": out, **splits}
    return {"In msg nelems": into, "Out msg nelems": out}


def _listed(ranks: tuple[int, ...]) -> str:
    """Return a list of ranks as PyTorch writes it: cut above thirty."""
    if len(ranks) <= _LISTED:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[: _LISTED - 1]))}, ..., {ranks[-1]}]"


def _stride(ranks: tuple[int, ...]) -> int:
    """Return how far apart ranks lie; -1: unequally, as PyTorch says it."""
    apart = {b - a for a, b in pairwise(ranks)}
    return apart.pop() if len(apart) == 1 else -1


def random_job(seed: int, *, calls: int = 300) -> Job:
    """Return a job of about so many calls."""
    dice = random.Random(seed)
    job = Job(seed, 0)
    shape = {way: dice.choice((1, 2, 2, 4)) for way in ("pp", "dp", "cp", "tp")}
    if dice.random() < 0.1:
        shape = {"pp": 1, "dp": 40, "cp": 1, "tp": 2}  # lists of ranks are cut
    while (world := shape["pp"] * shape["dp"] * shape["cp"] * shape["tp"]) > 16 and world < 80:
        shape[max(shape, key=lambda way: shape[way])] //= 2
    job.world = max(world, 2)
    if world < 2:
        shape["tp"] = 2
    _place(job, dice)
    job.groups = _groups(job.world, shape, dice)
    _run(job, dice, calls)
    _lose(job, dice)
    return job


def _place(job: Job, dice: random.Random) -> None:
    """Put the ranks on hosts, and say what files tell."""
    per_host = dice.choice((1, 2, 4, 8, 16))
    apart = dice.random() < 0.4
    ahead = [dice.randint(-5_000_000, 5_000_000) if apart else 0 for _ in range(job.world)]
    job.host = {rank: f"host-{rank // per_host}" for rank in range(job.world)}
    job.clock = {rank: ahead[rank // per_host] for rank in range(job.world)}
    job.says = {
        "hosts": dice.random() < 0.7,
        "sequence": dice.random() < 0.6,
        "on kernels": dice.random() < 0.7,
        "stride": dice.random() < 0.5,
        "cut": False,  # recordings begin and end at any time: of collectives with numbers alone
    }
    job.says["cut"] = job.says["sequence"] and dice.random() < 0.3


def _groups(world: int, shape: dict[str, int], dice: random.Random) -> list[Group]:
    """Return the groups of a mesh; `shape` goes from its slowest way to its fastest."""
    split = dice.random() < 0.5
    groups = [Group("0", "default_pg", tuple(range(world)))]
    ways = [*shape]
    number = 1
    for kinds in (("tp",), ("cp",), ("dp",), ("pp",), ("dp", "cp"), ("pp", "tp")):
        parts: dict[tuple[int, ...], list[int]] = {}
        for rank in range(world):
            coordinates, left = {}, rank
            for way in reversed(ways):
                coordinates[way], left = left % shape[way], left // shape[way]
            parts.setdefault(tuple(coordinates[w] for w in ways if w not in kinds), []).append(rank)
        if len(next(iter(parts.values()))) < 2:
            continue
        for ranks in parts.values():
            groups.append(Group(str(number), "mesh_" + "_".join(kinds), tuple(ranks)))
            number += 0 if split else 1
        number += 1 if split else 0
    return groups + _experts(groups, number)


def _experts(groups: list[Group], number: int) -> list[Group]:
    """Return the groups that share experts: neighbours of a data parallel group, two by two."""
    pairs = [
        group.ranks[first : first + 2]
        for group in groups
        for first in range(0, len(group.ranks) - 1, 2)
        if group.kind == "mesh_dp" and len(group.ranks) % 2 == 0
    ]
    return [Group(str(number + k), "mesh_ep", pair) for k, pair in enumerate(pairs)]


def _run(job: Job, dice: random.Random, calls: int) -> None:
    run = _Run(job, dice)
    kinds = sorted({group.kind for group in job.groups})
    only_messages = dice.random() < 0.25 and not job.says["cut"]
    if only_messages and {"mesh_tp", "mesh_pp"} <= {*kinds}:  # only messages between stages
        kinds = ["mesh_pp", "mesh_tp"]
    while len(job.calls) < calls:
        kind = dice.choice(kinds)
        groups = [group for group in job.groups if group.kind == kind]
        acts = ("collective", "collective", "coalesced", "single", "chain", "ring")
        acts = acts[:3] if job.says["cut"] or kind == "mesh_ep" else acts
        act = dice.choice(acts[3:] if kinds[0] == kind == "mesh_pp" else acts)
        for group in groups:
            ranks = group.ranks[:16]
            onward = list(pairwise(ranks))
            if act == "collective":
                run.collective(group)
            elif act == "coalesced":
                run.coalesced(group)
            elif act == "single":
                run.messages(group, onward if dice.random() < 0.5 else _back(onward), batched=False)
            elif act == "chain":
                both = [*onward, *_back(onward)] if len(ranks) == 2 else onward
                run.messages(group, both, batched=True)
            else:
                run.messages(group, [*onward, (ranks[-1], ranks[0])], batched=True)


def _back(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(b, a) for a, b in reversed(pairs)]


def _lose(job: Job, dice: random.Random) -> None:
    """Leave out files, and ends of recordings where sequence numbers tell what is left."""
    if job.says["sequence"] and dice.random() < 0.4:
        job.missing = set(dice.sample(range(job.world), dice.randint(1, job.world // 2)))
    for rank in range(job.world) if job.says["cut"] else ():
        count = sum(call.rank == rank for call in job.calls)
        job.kept[rank] = (dice.randint(0, count // 4), count - dice.randint(0, count // 4))


def write_job(job: Job, folder: Path, prefix: str = "") -> Path:
    """Write the files of a job, a rank each."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in sorted(set(range(job.world)) - job.missing):
        (folder / f"{prefix}rank{rank}.json").write_text(json.dumps(_file(job, rank)))
    return folder


def _file(job: Job, rank: int) -> dict[str, Any]:
    own = [group for group in job.groups if rank in group.ranks]
    listed = [
        {"pg_name": g.name, "pg_desc": g.kind, "pg_size": len(g.ranks), "ranks": list(g.ranks)}
        for g in own
    ]
    job_facts = {"rank": rank, "world_size": job.world, "backend": "nccl", "pg_config": listed}
    events: list[Event] = [_slice("user_annotation", "ProfilerStep#3", 0, 10**9, 7, {})]
    calls = [call for call in job.calls if call.rank == rank]
    first, last = job.kept.get(rank, (0, len(calls)))
    for number in range(first, last):
        events += _events(job, calls[number], number)
    return {
        "distributedInfo": job_facts,
        "baseTimeNanoseconds": BASE_NS,
        **({"host_name": job.host[rank]} if job.says["hosts"] else {}),
        "traceEvents": events,
    }


def _events(job: Job, call: Call, number: int) -> list[Event]:
    """Return the records of a rank's call, its launch and its kernel; calls are issued early."""
    shift, coalesced = job.clock[call.rank], "coalesced" in call.records[0]
    issued = shift + _CALL_NS * number
    lasts = _BRIEF_NS if coalesced else _CALL_NS - 1_000
    events = [
        _slice("cpu_op", "record_param_comms", issued + 2 * _BRIEF_NS * n, lasts, 7, event)
        for n, event in enumerate(_said(job, record) for record in call.records)
    ]
    if coalesced:
        issued += 2 * _BRIEF_NS * len(call.records)
        events.append(_slice("user_annotation", "nccl:coalesced", issued, 4 * _BRIEF_NS, 7, {}))
    launch = {"correlation": number + 1}
    events.append(_slice("cuda_runtime", "cudaLaunchKernel", issued + 100, 100, 7, launch))
    facts = {}
    if job.says["on kernels"] and not coalesced:
        facts = {k: v for k, v in _said(job, call.records[0]).items() if k not in _ON_HOST}
    facts |= {"device": 0, "stream": 20, **launch}
    name = _KERNELS.get(call.records[0]["Collective name"], "SendRecv")
    name = f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)"
    events.append(_slice("kernel", name, call.start + shift, call.end - call.start, 20, facts))
    return events


def _said(job: Job, record: Event) -> Event:
    """Return what a record says, as far as this job's PyTorch says it."""
    unsaid = {"coalesced"} | (set() if job.says["sequence"] else {"Seq"})
    if not job.says["stride"]:
        unsaid |= {"Global rank start", "Global rank stride"}
    return {key: value for key, value in record.items() if key not in unsaid}


def _slice(category: str, name: str, start: int, length: int, thread: int, args: Event) -> Event:
    process = 0 if category == "kernel" else 100
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
        "ts": start / 1e3, "dur": length / 1e3, "args": args,
    }  # fmt: skip
