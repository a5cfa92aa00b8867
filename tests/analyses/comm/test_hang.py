"""Why a job hangs: samples, hand-made cases, and random histories with a planted fault."""

import io
import json
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.analyses.comm.hang import hang
from htk.core.analysis import coverage_of
from htk.core.parser import ParseOptions, Source
from htk.errors import MissingTable
from htk.parsers import flight_recorder
from htk.schema import TABLES

SAMPLES = Path(__file__).parents[3] / "sample_traces" / "flight_recorder"
OTHERS = ("comm_inits", "comm_counts", "comm_notes", "python_stacks")
Dump = dict[str, Any]


def answer(dumps: dict[int, bytes]) -> pa.Table:
    """What hang says of dumps by rank."""
    parts: dict[str, list[pa.Table]] = {"collectives": [], "comm_groups": []}
    for rank, data in dumps.items():
        source = Source(f"dump_{rank}", lambda data=data: io.BytesIO(data))  # type: ignore[misc]
        found = flight_recorder.parse(source, ParseOptions())
        for name, tables in parts.items():
            table = found.tables[name]
            for k, column in enumerate(("rank", "cycle")):
                value = pa.array([rank * (1 - k)] * table.num_rows, pa.int32())
                table = table.append_column(column, value)
            tables.append(table.select(TABLES[name].names).cast(TABLES[name]))
    recorded = (pa.concat_tables(tables) for tables in parts.values())
    return hang(*recorded, *(TABLES[name].empty_table() for name in OTHERS))


def sample(name: str) -> pa.Table:
    files = sorted(p for p in (SAMPLES / name).iterdir() if p.stat().st_size)
    return answer({int(p.stem[-1]): p.read_bytes() for p in files})


def verdicts(found: pa.Table) -> list[tuple[str, str]]:
    """Findings and ranks, without who only waits, and what would decide what is open."""
    left_out = ("waiting", "to_decide")
    return [(r["finding"], r["ranks"]) for r in found.to_pylist() if r["finding"] not in left_out]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hang_missing_rank_v2.10", ("missing_rank", "3")),
        ("size_mismatch_v2.10", ("size_mismatch", "1")),
        ("type_mismatch_v2.10", ("type_mismatch", "0-1")),
        ("p2p_coalesced_v2.10", ("nothing_pending", "0-1")),
        ("ring_wrap_v2.10", ("nothing_pending", "0-1")),
        ("json_v2.10", ("cannot_decide", "1")),
        ("schema_v1.4", ("nothing_pending", "0")),
        ("schema_v2.3", ("nothing_pending", "0")),
        ("truncated", ("cannot_decide", "0,2-3")),
        ("with_nccl_comm_state", ("cannot_decide", "1-3")),
    ],
)
def test_samples(name: str, expected: tuple[str, str]) -> None:
    assert verdicts(sample(name)) == [expected]


def test_without_a_dump_it_says_what_would_make_one() -> None:
    empty = (TABLES[name].empty_table() for name in ("collectives", "comm_groups", *OTHERS))
    with pytest.raises(MissingTable, match="TORCH_FR_BUFFER_SIZE"):
        hang(*empty)


def test_the_verdict_names_call_rank_and_line() -> None:
    facts = coverage_of(sample("hang_missing_rank_v2.10"))
    assert facts["decided"] and facts["dumps"] == "0-3"
    assert facts["verdict"] == (
        "rank 3 never came to all_reduce number 3 of group 0 (default_pg); last call all_reduce "
        "number 2 of group 0 (default_pg), from train_step (/home/user/train.py:120)."
    )


# Random histories: every rank runs a program of collectives, and blocks in each until all members
# of its group have come to it and agree.


@dataclass(frozen=True)
class Step:
    group: tuple[int, ...]
    kind: str = "all_reduce"
    size: int = 64
    dtype: str = "Float"

    @property
    def name(self) -> str:
        return f"pg{'-'.join(map(str, self.group[:2]))}x{len(self.group)}"


@dataclass
class Job:
    """Programs by rank; a fault is a change to one of them."""

    programs: dict[int, list[Step]]
    frozen: set[int] = field(default_factory=set)  # steps (of the shared program) that never end
    timing: bool = True
    ahead: int = 0  # calls that a waiting rank has enqueued behind the one it waits at

    def run(self) -> dict[int, Dump]:
        done = dict.fromkeys(self.programs, 0)
        while any([self._ends(rank, done) for rank in self.programs]):
            pass
        return {rank: self._dump(rank, done[rank]) for rank in self.programs}

    def _ends(self, rank: int, done: dict[int, int]) -> bool:
        program = self.programs[rank]
        if done[rank] >= len(program) or done[rank] in self.frozen:
            return False
        step = program[done[rank]]
        number = self._number(rank, done[rank])
        for member in step.group:
            theirs = self.programs[member]
            at = done[member]
            if at >= len(theirs) or theirs[at] != step or self._number(member, at) != number:
                return False
        for member in step.group:
            done[member] += 1
        return True

    def _number(self, rank: int, at: int) -> int:
        program = self.programs[rank]
        return sum(s.group == program[at].group for s in program[: at + 1])

    def _dump(self, rank: int, done: int) -> Dump:
        program = self.programs[rank][: done + 1 + self.ahead]
        entries, groups = [], {}
        status: dict[str, dict[str, int]] = {}
        for k, step in enumerate(program):
            state = "completed" if k < done else "started" if k == done else "scheduled"
            seq = self._number(rank, k)
            groups[step.name] = {"name": step.name, "desc": "", "ranks": str(list(step.group))}
            counters = status.setdefault(step.name, {"last_completed_collective": 0})
            counters["last_enqueued_collective"] = seq
            if state == "completed":
                counters["last_completed_collective"] = seq
            entries.append(_entry(k, step, seq, state if self.timing else _untimed(state)))
        return {"version": "2.10", "pg_config": groups, "pg_status": status, "entries": entries}


def _untimed(state: str) -> str:
    return "completed" if state == "completed" else "scheduled"


def _entry(record: int, step: Step, seq: int, state: str) -> Dump:
    n = len(step.group)
    into = step.size * (n if step.kind == "reduce_scatter" else 1)
    out = step.size * (n if step.kind == "all_gather" else 1)
    return {
        "record_id": record,
        "pg_id": step.name,
        "process_group": (step.name, ""),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{step.kind}",
        "time_created_ns": 1_000_000 + record,
        "input_sizes": [[into]],
        "output_sizes": [[out]],
        "input_dtypes": [step.dtype],
        "output_dtypes": [step.dtype],
        "state": state,
        "time_discovered_started_ns": 2_000_000 + record if state != "scheduled" else None,
        "is_p2p": False,
    }


def random_job(dice: random.Random) -> tuple[Job, list[int]]:
    """A job without fault, and steps that everybody takes part in."""
    ranks = dice.choice([2, 3, 4, 8, 16, 64])
    width = dice.choice([w for w in (1, 2, 4, 8) if ranks % w == 0 and w < ranks])
    world = tuple(range(ranks))
    blocks = [world[k : k + width] for k in range(0, ranks, width)]
    strided = [world[k::width] for k in range(width)]
    programs: dict[int, list[Step]] = {r: [] for r in world}
    shared = []
    for k in range(dice.randint(4, 12)):
        layout = dice.choice([[world], [world], blocks, strided])
        kind = dice.choice(["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
        size = dice.choice([16, 64, 4096])
        for group in layout:
            for rank in group:
                programs[rank].append(Step(group, kind, size))
        if layout == [world]:
            shared.append(k)
    for rank in world:
        programs[rank].append(Step(world))
    shared.append(len(programs[0]) - 1)
    return Job(programs, timing=dice.random() < 0.5, ahead=dice.randint(0, 2)), shared


def dumps(job: Job, without: tuple[int, ...] = ()) -> dict[int, bytes]:
    return {r: pickle.dumps(d, 2) for r, d in job.run().items() if r not in without}


@pytest.mark.parametrize("seed", range(12))
def test_a_rank_that_never_comes(seed: int) -> None:
    dice = random.Random(seed)
    job, _ = random_job(dice)
    culprit = dice.choice(list(job.programs))
    reached = dice.randrange(1, len(job.programs[culprit]))
    step = job.programs[culprit][reached]
    del job.programs[culprit][reached:]
    found = answer(dumps(job))
    if len(step.group) == 1:  # it waits for nobody there; it is missed at a later call
        assert all(v == ("missing_rank", str(culprit)) for v in verdicts(found))
        return
    assert verdicts(found) == [("missing_rank", str(culprit))]
    assert found["group"][0].as_py() == step.name
    assert coverage_of(found)["decided"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("what", ["size", "type", "dtype"])
def test_a_rank_that_makes_another_call(seed: int, what: str) -> None:
    dice = random.Random(1000 + seed)
    job, shared = random_job(dice)
    culprit, at = dice.choice(list(job.programs)), dice.choice(shared)
    step = job.programs[culprit][at]
    other = {
        "size": Step(step.group, step.kind, 7777),
        "type": Step(step.group, "all_to_all", step.size),
        "dtype": Step(step.group, step.kind, step.size, "BFloat16"),
    }
    job.programs[culprit][at] = other[what]
    job.ahead = 0
    found = answer(dumps(job))
    ((finding, ranks),) = verdicts(found)
    assert finding == f"{what}_mismatch"
    if len(step.group) == 2:  # one against one
        assert ranks == "0-1" and not coverage_of(found)["decided"]
    else:
        assert ranks == str(culprit) and coverage_of(found)["decided"]
    assert found["seq"][0].as_py() == sum(
        s.group == step.group for s in job.programs[culprit][: at + 1]
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_collective_that_does_not_end(seed: int) -> None:
    dice = random.Random(2000 + seed)
    job, shared = random_job(dice)
    job.frozen = {dice.choice(shared)}
    found = answer(dumps(job))
    assert verdicts(found) == [("not_completed", f"0-{len(job.programs) - 1}")]


@pytest.mark.parametrize("seed", range(8))
def test_a_missing_rank_that_left_no_dump(seed: int) -> None:
    dice = random.Random(3000 + seed)
    job, shared = random_job(dice)
    culprit = dice.choice(list(job.programs))
    del job.programs[culprit][dice.choice(shared) :]
    found = answer(dumps(job, without=(culprit,)))
    assert verdicts(found) == [("cannot_decide", str(culprit))]
    assert not coverage_of(found)["decided"]
    assert coverage_of(found)["dumps_missing"] == str(culprit)


@pytest.mark.parametrize("seed", range(8))
def test_two_groups_in_opposite_order(seed: int) -> None:
    dice = random.Random(4000 + seed)
    size = dice.choice([4, 8, 16])
    world = tuple(range(size))
    other = tuple(sorted({0, size - 1, *dice.sample(world, size // 2)}))
    start = [Step(world)] * dice.randint(1, 4)
    programs = {r: [*start, Step(world), *([Step(other)] if r in other else [])] for r in world}
    programs[size - 1] = [*start, Step(other), Step(world)]
    found = answer(dumps(Job(programs, ahead=dice.randint(0, 1), timing=False)))
    ((finding, ranks),) = verdicts(found)
    assert finding == "cycle"
    assert str(size - 1) in ranks.replace("-", ",").split(",")


def test_swapped_calls_are_called_so() -> None:
    world = (0, 1, 2)
    a, b = Step(world, "all_reduce", 16), Step(world, "all_gather", 64)
    programs = {r: [a, b] for r in world} | {1: [b, a]}
    found = answer(dumps(Job(programs, ahead=1)))
    assert verdicts(found) == [("order_mismatch", "1")]
    assert "rank 1 swaps two calls" in found["text"][0].as_py()


def test_a_call_that_contradicts_itself_needs_no_majority() -> None:
    job = Job({r: [Step((0, 1), "all_gather", 8)] for r in (0, 1)}, frozen={0})
    broken = job.run()
    broken[1]["entries"][0]["output_sizes"] = [[9]]
    found = answer({r: pickle.dumps(d, 2) for r, d in broken.items()})
    assert verdicts(found) == [("size_mismatch", "1")]


def test_a_message_that_nobody_receives() -> None:
    def send(record: int, state: str, name: str) -> Dump:
        step = Step((0, 1))
        return _entry(record, step, 0, state) | {
            "profiling_name": name,
            "is_p2p": True,
            "p2p_seq_id": record + 1,
        }

    groups = {"pg0-1x2": {"name": "pg0-1x2", "desc": "", "ranks": "[0, 1]"}}
    one = [send(0, "completed", "nccl:send 0->1"), send(1, "started", "nccl:send 0->1")]
    two = [send(0, "completed", "nccl:recv 1<-0")]
    found = answer(
        {
            rank: json.dumps({"version": "2.10", "pg_config": groups, "entries": entries}).encode()
            for rank, entries in enumerate((one, two))
        }
    )
    assert verdicts(found) == [("missing_rank", "1")]
    assert "message 2 from rank 0 to 1" in found["text"][0].as_py()
