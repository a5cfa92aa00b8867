"""Jobs whose ranks run programs of collectives and block as NCCL does; their flight recorders."""

import io
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from htk.analyses.comm.hang import hang
from htk.base.core.parser import ParseOptions, Source
from htk.base.schema import TABLES
from htk.parsers import flight_recorder

SAMPLES = Path(__file__).parents[3] / "sample_traces" / "flight_recorder"
OTHERS = ("comm_inits", "comm_counts", "comm_notes", "python_stacks")
Dump = dict[str, Any]


def answer(dumps: dict[int, bytes]) -> pa.Table:
    """What hang says of dumps by rank."""
    parts: dict[str, list[pa.Table]] = {"collectives": [], "comm_groups": []}
    for rank, data in dumps.items():
        source = Source(f"dump_{rank}", lambda data=data: io.BytesIO(data))  # type: ignore[misc]
        parsed = flight_recorder.parse(source, ParseOptions())
        for name, tables in parts.items():
            table = parsed.tables[name]
            for k, column in enumerate(("rank", "cycle")):
                value = pa.array([rank * (1 - k)] * table.num_rows, pa.int32())
                table = table.append_column(column, value)
            tables.append(table.select(TABLES[name].names).cast(TABLES[name]))
    recorded = (pa.concat_tables(tables) for tables in parts.values())
    return hang(*recorded, *(TABLES[name].empty_table() for name in OTHERS))


def sample(name: str) -> pa.Table:
    files = sorted(p for p in (SAMPLES / name).iterdir() if p.stat().st_size)
    return answer({int(p.stem[-1]): p.read_bytes() for p in files})


def verdicts(table: pa.Table) -> list[tuple[str, str]]:
    """Findings and ranks, without who only waits, and what would decide what is open."""
    left_out = ("waiting", "to_decide")
    return [(r["finding"], r["ranks"]) for r in table.to_pylist() if r["finding"] not in left_out]


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
            theirs, position = self.programs[member], done[member]
            if theirs[position : position + 1] != [step]:
                return False
            if self._number(member, position) != number:
                return False
        for member in step.group:
            done[member] += 1
        return True

    def _number(self, rank: int, position: int) -> int:
        program = self.programs[rank]
        return sum(s.group == program[position].group for s in program[: position + 1])

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
            entries.append(entry_of(k, step, seq, state if self.timing else _untimed(state)))
        return {"version": "2.10", "pg_config": groups, "pg_status": status, "entries": entries}


def _untimed(state: str) -> str:
    return "completed" if state == "completed" else "scheduled"


def entry_of(record: int, step: Step, seq: int, state: str) -> Dump:
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


def dumps(job: Job, without: tuple[int, ...] = ()) -> dict[int, bytes]:
    return {r: pickle.dumps(d, 2) for r, d in job.run().items() if r not in without}


PAGE = Path(__file__).parents[3] / "docs" / "hang.md"
