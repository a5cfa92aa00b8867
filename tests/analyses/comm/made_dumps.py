"""Flight recorder dumps of jobs that are made up, with what is true of them: any seed.

A job of tensor, data and pipeline parallel ranks runs a program of collectives and messages, each
of which blocks until all its members have come to it. One rank stops, leaves a call out, or calls
two groups in the wrong order; or a collective never ends; or the job comes to its end.
"""

import itertools
import json
import pickle
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FAULTS = ("ended", "missing", "network", "swapped", "skipped")
_MICROBATCHES = 2


class MadeCall(NamedTuple):
    """One call of a rank's program; a message has a sender and a receiver."""

    group: str
    members: tuple[int, ...]
    kind: str
    pair: tuple[int, int] | None = None


class Site(NamedTuple):
    """What members of a call meet at: its group or pair, and its number there."""

    group: str
    members: tuple[int, ...]
    pair: tuple[int, int] | None
    number: int


@dataclass
class MadeJob:
    """Programs by rank, the planted fault, and how far each rank came."""

    fault: str
    culprit: int
    programs: dict[int, list[MadeCall]]
    planned: list[MadeCall]  # of the culprit, without the fault
    library: str
    frozen: Site | None = None
    done: dict[int, int] = field(default_factory=dict)

    @property
    def hangs(self) -> bool:
        return any(self.done[rank] < len(calls) for rank, calls in self.programs.items())

    def waiting(self) -> dict[int, Site]:
        """Return the call at which each rank that is not through its program waits."""
        return {
            rank: sites_of(calls)[self.done[rank]]
            for rank, calls in self.programs.items()
            if self.done[rank] < len(calls)
        }

    def first_missed(self) -> Site | None:
        """Return the first call of the culprit's plan, behind its last, at which a rank waits."""
        awaited = set(self.waiting().values())
        planned = sites_of(self.planned)[self.done[self.culprit] :]
        return next((site for site in planned if site in awaited), None)

    def run(self) -> None:
        """Let every rank go as far as it comes."""
        self.done = dict.fromkeys(self.programs, 0)
        sites = {rank: sites_of(calls) for rank, calls in self.programs.items()}
        todo = list(self.programs)
        while todo:
            rank = todo.pop()
            if self.done[rank] >= len(self.programs[rank]):
                continue
            site = sites[rank][self.done[rank]]
            members = site.pair or site.members
            here = [m for m in members if sites[m][self.done[m] : self.done[m] + 1] == [site]]
            kinds = {self.programs[m][self.done[m]].kind for m in here}
            agree = site.pair is not None or len(kinds) == 1
            if len(here) < len(members) or not agree or site == self.frozen:
                continue
            for member in members:
                self.done[member] += 1
            todo += members


def sites_of(calls: list[MadeCall]) -> list[Site]:
    """Return where the calls of a program meet those of others, numbered from 1."""
    seen: Counter[tuple[Any, ...]] = Counter()
    sites = []
    for call in calls:
        lane = (call.group, call.members, call.pair)
        seen[lane] += 1
        sites.append(Site(*lane, seen[lane]))
    return sites


def made_job(seed: int) -> MadeJob:
    """Return the job that the seed makes up, run as far as it comes."""
    dice = random.Random(seed)
    library = dice.choice(["nccl", "nccl", "gloo"])
    width, replicas = dice.choice([(2, 2), (2, 4), (4, 2), (4, 4)])
    stages = 1 if library == "gloo" else dice.choice([1, 2, 4])  # gloo records no message
    programs = _programs(width, replicas, stages, dice.randint(2, 4))
    job = MadeJob(dice.choice(FAULTS), dice.choice([*programs]), programs, [], library)
    job.planned = list(programs[job.culprit])
    _plant(job, dice)
    job.run()
    return job


def _programs(width: int, replicas: int, stages: int, steps: int) -> dict[int, list[MadeCall]]:
    world = tuple(range(width * replicas * stages))
    programs: dict[int, list[MadeCall]] = {rank: [] for rank in world}
    for rank in world:
        stage, replica, shard = (
            rank // (replicas * width),
            rank // width % replicas,
            rank % width,
        )
        row = tuple(rank - shard + other for other in range(width))
        column = tuple(rank - replica * width + other * width for other in range(replicas))
        line = tuple(rank + (other - stage) * replicas * width for other in range(stages))
        tensor, data = MadeCall("tp", row, "all_reduce"), MadeCall("dp", column, "all_reduce")
        for _ in range(steps):
            for _ in range(_MICROBATCHES):
                if stage:
                    programs[rank].append(MadeCall("pp", line, "recv", (line[stage - 1], rank)))
                programs[rank].append(tensor)
                if stage + 1 < stages:
                    programs[rank].append(MadeCall("pp", line, "send", (rank, line[stage + 1])))
            programs[rank].append(data)
            programs[rank].append(MadeCall("world", world, "barrier"))
    return programs


def _plant(job: MadeJob, dice: random.Random) -> None:
    calls = job.programs[job.culprit]
    if job.fault == "missing":
        del calls[dice.randrange(1, len(calls)) :]
    elif job.fault == "network":
        collective = [s for s in sites_of(calls) if s.pair is None]
        job.frozen = dice.choice(collective)
    elif job.fault == "swapped":
        other = [k for k, (a, b) in enumerate(itertools.pairwise(calls)) if a.group != b.group]
        position = dice.choice(other)
        early, late = calls[position : position + 2]
        calls[position : position + 2] = [late, early]
    elif job.fault == "skipped":
        del calls[dice.choice([k for k, call in enumerate(calls) if call.pair is None])]


def dumped(job: MadeJob, seed: int) -> dict[str, bytes]:
    """Return the files that the ranks' recorders leave: pickles, JSON or both, by name."""
    dice = random.Random(seed)
    forms = dice.choice([("pickle",), ("json",), ("pickle", "json")])
    has_timed_out = dice.random() < 0.5  # gloo then calls it retired, and counts it as completed
    files = {}
    for rank in job.programs:
        dump = _dump(job, rank, has_timed_out=has_timed_out)
        if "pickle" in forms:
            files[f"comm_lib_trace_rank_{rank}"] = pickle.dumps(dump, 2)
        if "json" in forms:
            files[f"comm_lib_trace_rank_{rank}.json"] = _as_json(dump)
    return files


def _dump(job: MadeJob, rank: int, *, has_timed_out: bool) -> dict[str, Any]:
    calls, done = job.programs[rank], job.done[rank]
    is_gloo = job.library == "gloo"
    entries, groups = [], {}
    status: dict[str, dict[str, int]] = {}
    launched: Counter[tuple[str, bool]] = Counter()
    for k, call in enumerate(calls[: done + 1]):
        launched[call.group, call.pair is not None] += 1
        seq = launched[call.group, call.pair is not None]
        counts_as_done = k < done or (is_gloo and has_timed_out)
        groups[call.group] = {"name": call.group, "desc": "", "ranks": str(list(call.members))}
        if call.pair is None:
            counters = status.setdefault(call.group, {"last_completed_collective": 0})
            counters["last_enqueued_collective"] = seq
            if counts_as_done:
                counters["last_completed_collective"] = seq
        state = "completed" if k < done and not is_gloo else "scheduled"
        entry = _entry(call, rank, k, seq)
        entry |= {"state": state, "retired": counts_as_done}
        entry["profiling_name"] = f"{job.library}:{entry['profiling_name']}"
        entries.append(entry)
    return {
        "version": "2.10",
        "pg_config": groups,
        "comm_lib_version": "",
        "pg_status": status,
        "entries": entries,
    }


def _entry(call: MadeCall, rank: int, record: int, seq: int) -> dict[str, Any]:
    name = call.kind
    if call.pair:
        peer = call.pair[1] if call.kind == "send" else call.pair[0]
        arrow = "->" if call.kind == "send" else "<-"
        name = f"{call.kind} {call.members.index(rank)}{arrow}{call.members.index(peer)}"
    return {
        "frames": [{"name": call.kind, "filename": "/app/train.py", "line": 10 + record}],
        "record_id": record,
        "pg_id": call.group,
        "process_group": (call.group, ""),
        "collective_seq_id": 0 if call.pair else seq,
        "p2p_seq_id": seq if call.pair else 0,
        "profiling_name": name,
        "time_created_ns": 10**18 + record * 10**6 + rank,
        "input_sizes": [[64]],
        "output_sizes": [[64]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "timeout_ms": 600_000,
        "is_p2p": call.pair is not None,
    }


def _as_json(dump: dict[str, Any]) -> bytes:
    """Return a dump as torch writes JSON: no frames, counters as text, absent times as 0."""
    left_out = ("frames",)
    entries = [
        {key: 0 if value is None else value for key, value in entry.items() if key not in left_out}
        for entry in dump["entries"]
    ]
    status = {
        group: {key: str(value) for key, value in counters.items()}
        for group, counters in dump["pg_status"].items()
    }
    return json.dumps(dump | {"entries": entries, "pg_status": status}).encode()
