"""What a label says of how its question spreads over ranks is true: a job of two nodes whose ranks
recorded two cycles, cut into parts at random."""

import gzip
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner

from htk.analyses import ANALYSES, find_analysis
from htk.analyses.comm.comm_progress import comm_progress
from htk.answers.ask import ask_trace
from htk.answers.table import table_of_answer, tables_read
from htk.base.core.analysis import Analysis, coverage_of
from htk.base.core.spread import ByKey, ByRank
from htk.base.errors import MissingTable
from htk.base.spread.workplace import Workplace
from htk.faces.cli.main import htk
from htk.quantities.derived import registry
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from tests.tables import make
from tests.thinned import thinned

SIZES = "--layers 2 --hidden 64 --heads 2 --ffn 128 --vocab 100 --seq 32 --micro-batch 1"
JOB = "--nodes 2 --gpus-per-node 3 --steps 2 --strategy hybrid_shard --clock-offset-us 400"
MINUTE_NS = 60_000_000_000
# What a first round tells of all ranks.
OF_ALL = {"ranks", "collectives", "rank_window_times", *registry.OVER_RANKS}
CHOICES: dict[str, Sequence[dict[str, Any]]] = {
    name: [{"per": "step"}]
    for name in ("time_breakdown", "comm_compute_ratio", "phase_breakdown", "flops")
} | {
    "comm_compute_overlap": [{"per": "step"}, {"by": "group"}, {"by": "collective", "per": "step"}],
    "idle_breakdown": [{"per": "step"}, {"by": "stream"}, {"compat": "hta"}],
    "kernel_families": [{"per": "rank"}, {"per": "step"}],
    "kernel_top": [{"per": "rank", "n": 2}, {"per": "step"}, {"n": 3, "by": "mean"}, {"n": 0}],
    "fsdp_units": [{"per": "rank"}, {"per": "step"}],
    "memory_timeline": [{"slices": 7}],
}
ASKED = [
    (name, options)
    for name in ANALYSES
    for options in ({}, *CHOICES.get(name, ()))
    if isinstance(find_analysis(name).spread(options), ByRank | ByKey)
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("job")
    for cycle, first_step in enumerate((10, 12)):
        made = tmp_path_factory.mktemp("cycle")
        asked = f"simulate --model tiny {SIZES} {JOB} --first-step {first_step} --run {cycle}"
        result = CliRunner().invoke(htk, [*asked.split(), "-o", str(made)])
        assert result.exit_code == 0, result.output
        for file in made.glob("rank*.gz"):
            text = gzip.decompress(file.read_bytes()).decode()
            begins = re.search(r'"baseTimeNanoseconds": ?(\d+)', text)
            assert begins is not None
            later = text.replace(begins[1], str(int(begins[1]) + cycle * MINUTE_NS))
            (folder / f"{file.name.partition('.')[0]}_cycle{cycle}.json").write_text(later)
    trace = open_trace(folder)
    assert {(file.rank, file.cycle) for file in trace.files} == {
        (rank, cycle) for rank in range(6) for cycle in range(2)
    }
    return trace


def parts_of(trace: Trace, seed: int) -> list[Trace]:
    """The ranks, dealt out at random to two or three parts, none of them empty."""
    dice = random.Random(seed)
    ranks = trace.ranks
    dice.shuffle(ranks)
    cuts = sorted(dice.sample(range(1, len(ranks)), dice.choice((1, 2))))
    dealt = [ranks[a:b] for a, b in zip([0, *cuts], [*cuts, len(ranks)], strict=True)]
    return [trace.part([f for f in trace.files if f.rank in ranks]) for ranks in dealt]


def answers(
    parts: Sequence[Trace], analysis: Analysis[...], options: Mapping[str, Any]
) -> list[pa.Table]:
    tables = []
    for part in parts:
        try:
            tables.append(table_of_answer(part, analysis, options, in_part=True))
        except MissingTable:  # these ranks recorded nothing of the kind
            continue
    return tables


def in_rank_order(tables: Sequence[pa.Table]) -> list[dict[str, Any]]:
    return sorted((row for t in tables for row in t.to_pylist()), key=lambda row: row["rank"])


@pytest.mark.parametrize("seed", thinned(range(3), 3))
@pytest.mark.parametrize(("name", "options"), ASKED)
def test_any_partition_of_the_ranks_gives_the_same_answer(
    name: str, options: dict[str, Any], seed: int, job: Trace
) -> None:
    analysis = find_analysis(name)
    spread = analysis.spread(options)
    answer = table_of_answer(job, analysis, options)
    tables = answers(parts_of(job, seed), analysis, options)
    assert answer.num_rows and len(tables) > 1
    if isinstance(spread, ByKey):
        finished = spread.finish(pa.concat_tables(tables), **analysis.filled(options))
        assert finished.to_pylist() == answer.to_pylist()
        assert not analysis.null_without  # is applied to answers, not to parts of them
        return
    assert isinstance(spread, ByRank)
    assert in_rank_order(tables) == answer.to_pylist()
    assert spread.merged_facts([coverage_of(t) for t in tables]) == coverage_of(answer)


class _TwoRounds:
    """The tables of some ranks, but those of communication of all ranks."""

    def __init__(self, part: Trace, job: Trace) -> None:
        self.part, self.tables, self.ranks, self.everything = part, self, part.ranks, self
        self.job, self.files = job, part.files

    def __getitem__(self, name: str) -> pa.Table:
        return (self.job if name in OF_ALL else self.part).tables[name]

    def need(self, name: str) -> pa.Table:
        return self[name]


def _without_gains(answer: pa.Table) -> list[dict[str, Any]]:
    """Return the rows without what a replay of the ranks that stand for all tells."""
    gains = [name for name in answer.column_names if name.startswith("step_gain_ns")]
    return answer.drop_columns(gains).to_pylist()


@pytest.mark.parametrize(
    "name", [n for n in ANALYSES if find_analysis(n).spread().word == "two_rounds"]
)
def test_after_a_first_round_ranks_answer_by_themselves(name: str, job: Trace) -> None:
    analysis = find_analysis(name)
    answer = _without_gains(table_of_answer(job, analysis, {}))
    assert set(registry.OVER_RANKS) & tables_read(analysis)
    parts = parts_of(job, 1)
    alone = [row for table in answers(parts, analysis, {}) for row in _without_gains(table)]
    assert sorted(map(str, alone)) != sorted(map(str, answer))  # else it is by rank
    for part in parts:
        both = cast(Trace, _TwoRounds(part, job))
        rows = [
            r
            for r in _without_gains(table_of_answer(both, analysis, {}))
            if r["rank"] in part.ranks
        ]
        assert rows == [row for row in answer if row["rank"] in part.ranks]


def test_by_group_rows_of_a_group_come_from_its_calls_alone() -> None:
    counts = [
        {"comm_hash": group, "comm_rank": rank, "type": kind, "count": 7 * group - late}
        for group in (1, 2, 3)
        for kind in ("all_reduce", "broadcast")
        for late, rank in enumerate((2, 0, 1))
    ]
    assert comm_progress.spread().word == "by_group"
    table = make("comm_counts", counts)
    alone = [
        row
        for group in (1, 2, 3)
        for row in comm_progress(
            make("comm_counts", [c for c in counts if c["comm_hash"] == group])
        ).to_pylist()
    ]
    rows = comm_progress(table).to_pylist()
    assert len(rows) == 6 and sorted(map(str, rows)) == sorted(map(str, alone))


@pytest.mark.parametrize(
    "narrowed",
    [{}, {"steps": [11, 12]}, {"ranks": [1, 2, 5]}, {"from_ns": 1_000_000}, {"to_ns": MINUTE_NS}],
)
@pytest.mark.parametrize("name", ["time_breakdown", "idle_breakdown", "kernel_top"])
def test_little_memory_gives_the_same_answer(
    name: str, narrowed: dict[str, Any], job: Trace
) -> None:
    trace = job.sel(**narrowed)
    answer = ask_trace(trace, name)
    little = Workplace(memory_bytes=1)
    assert little.mapper.shares_memory
    again = ask_trace(replace(trace, work=little), name)
    assert again.to_pylist() == answer.to_pylist()
    assert again.table.schema == answer.table.schema
    assert dict(again.coverage) == dict(answer.coverage)


def test_the_docs_say_how_questions_spread() -> None:
    page = (Path(__file__).parents[2] / "docs/scale.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")][1:]
    listed = {cells[0].strip().replace(" ", "_"): cells[2] for cells in rows}
    words = {"by_rank", "by_group", "at_collectives", "in_two_rounds", "whole"}
    assert words <= set(listed)
    for word in words - {"whole"}:
        first = listed[word].partition(";")[0]
        spread = word.removeprefix("in_")
        assert [n.strip() for n in first.split(",")] == [
            name for name in ANALYSES if find_analysis(name).spread().word == spread
        ]
