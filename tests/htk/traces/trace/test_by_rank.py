"""What of a device's time collectives take, and what went before them, made rank by rank: the same
as made of the tables of all ranks, wherever it is made."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from htk.answers.ask import ask_trace
from htk.base.columns.arrow import read_numbers
from htk.base.core.parser import Parsed
from htk.base.io.entry import MemoryEntry
from htk.base.io.store import Store
from htk.base.spread.mapper import Mapper, ThreadMapper
from htk.base.spread.workplace import Workplace, choose_mapper
from htk.quantities.derived.clocks import aligned_matches, rank_clocks
from htk.quantities.derived.exposure import collective_shares
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.own_time import own_times
from htk.quantities.derived.registry import BY_RANK
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace import by_rank, joined
from htk.traces.trace.by_rank import made_by_rank
from htk.traces.trace.file import TraceFile
from htk.traces.trace.joined import JoinedTables
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from tests.htk.quantities.derived.random_jobs import random_job
from tests.tables import make
from tests.thinned import thinned

SOURCES = ("kineto", "kineto", "nccl_debug", "x")


def random_files(seed: int) -> tuple[list[TraceFile], pa.Table, pa.Table]:
    """Files of ranks, some with several, with calls on two devices beside other activities."""
    tables, windows, facts = random_job(seed)
    dice = random.Random(seed)
    files = []
    for table in tables:
        rank = table["rank"][0].as_py() if table.num_rows else 99
        for cycle in table["cycle"].unique().to_pylist() or [0]:
            calls = table.filter(pc.equal(table["cycle"], cycle))
            devices = [dice.choice((0, 0, 1, None)) for _ in range(calls.num_rows)]
            sources = [dice.choice(SOURCES if seed % 4 == 0 else SOURCES[:1]) for _ in devices]
            for name, values in (("device", devices), ("source", sources)):
                at = calls.schema.get_field_index(name)
                field = calls.schema.field(name)
                calls = calls.set_column(at, field, pa.array(values).cast(field.type))
            own = {"kernels": kernels_beside(calls, dice)}
            if dice.random() < 0.9:
                own["collectives"] = calls.drop_columns(["rank", "cycle"])
            entry = MemoryEntry(Parsed(own))
            files.append(TraceFile(entry, f"rank{rank}-{cycle}.json", rank, cycle))
    dice.shuffle(files)
    return files, windows, facts


def kernels_beside(calls: pa.Table, dice: random.Random) -> pa.Table:
    """The calls as kernels, and others at any time, which overlap them and each other."""
    rows = [
        {"start_ns": row["start_ns"], "end_ns": row["end_ns"], "device": row["device"],
         "kind": "comm"}
        for row in calls.to_pylist()
    ]  # fmt: skip
    for _ in range(150):
        start = dice.randint(0, 41_000)
        kind, device = dice.choice(("compute", "compute", "memory", "comm")), dice.choice((0, 1))
        end = start + dice.choice((0, 40, 300, 1500))
        rows.append({"start_ns": start, "end_ns": end, "device": device, "kind": kind})
    return make("kernels", rows).drop_columns(["rank", "cycle"])


def whole(files: list[TraceFile], windows: pa.Table, ranks: pa.Table) -> dict[str, pa.Table]:
    """The tables made of those of all files."""
    calls, activities = (
        pa.concat_tables([file.table(name) for file in files]).unify_dictionaries()
        for name in ("collectives", "activities")
    )
    matches = collective_matches(calls, windows, ranks)
    clocks = rank_clocks(calls, matches, ranks)
    aligned = aligned_matches(calls, matches, clocks, windows, ranks)
    return {
        "aligned_matches": aligned,
        "own_times": own_times(calls, activities),
        "collective_shares": collective_shares(calls, aligned, activities),
    }


@pytest.mark.parametrize("seed", thinned(range(25), 13))
@pytest.mark.parametrize("name", BY_RANK)
def test_rank_by_rank_gives_the_rows_of_one_table(name: str, seed: int) -> None:
    files, windows, ranks = random_files(seed)
    tables = whole(files, windows, ranks)
    made = made_by_rank(name, files, tables, ThreadMapper(1 + seed % 2))
    assert made is not None and made.equals(tables[name])


def test_random_files_hold_what_may_go_wrong() -> None:
    """Else the property says little."""
    jobs = [random_files(seed) for seed in range(10)]
    found = [whole(*job) for job in jobs]
    times = [read_numbers(tables["own_times"][f"own_{k}_ns"]) for tables in found
             for k in ("compute", "comm", "memory", "idle")]  # fmt: skip
    shares = [read_numbers(tables["collective_shares"][c]) for tables in found
              for c in tables["collective_shares"].column_names]  # fmt: skip
    assert all((values > 0).any() for values in (*times[:4], *shares[:3]))
    assert any(tables["collective_shares"]["shared_ns"].null_count for tables in found)
    of_ranks = [[(f.rank, f.cycle) for f in files] for files, _, _ in jobs]
    assert any(len({r for r, _ in files}) < len(files) for files in of_ranks)
    assert any("collectives" not in f.entry.tables for files, _, _ in jobs for f in files)


def test_a_group_is_the_same_on_all_ranks_that_name_it() -> None:
    """Rank 0's second call does not list its ranks. Of rank 0 alone it would be of the group of
    the first; as rank 1 knows two groups by that name, it is of neither."""
    calls = [
        [{"group_ranks": "[0,1]", "start_ns": 0, "end_ns": 10}, {"start_ns": 30, "end_ns": 40}],
        [{"group_ranks": "[0,1]", "start_ns": 0, "end_ns": 10},
         {"group_ranks": "[1,2]", "start_ns": 30, "end_ns": 40}],
    ]  # fmt: skip
    common = {"group": "dp", "group_size": 2, "source": "kineto", "timing": "gpu", "device": 0}
    files = []
    for rank, own in enumerate(calls):
        rows = make("collectives", [common | {"type": "all_reduce"} | row for row in own])
        kernels = make("kernels", [{"start_ns": 12, "end_ns": 20, "kind": "compute"}])
        tables = {"collectives": rows, "kernels": kernels}
        own_tables = {name: table.drop_columns(["rank", "cycle"]) for name, table in tables.items()}
        files.append(TraceFile(MemoryEntry(Parsed(own_tables)), f"rank{rank}.json", rank, 0))
    of_both = made_by_rank("own_times", files, {}, ThreadMapper(1))
    alone = made_by_rank("own_times", files[:1], {}, ThreadMapper(1))
    assert of_both is not None and alone is not None
    assert of_both["own_compute_ns"].to_pylist() == [0, 0, 0, 0]
    assert alone["own_compute_ns"].to_pylist() == [0, 8]
    assert alone["own_idle_ns"].to_pylist() == [0, 12]


def test_files_that_tell_of_several_ranks_are_not_divided() -> None:
    files, windows, ranks = random_files(1)
    tables = whole(files, windows, ranks)
    of_nobody = [replace(files[0], rank=None), *files[1:]]
    assert made_by_rank("own_times", of_nobody, tables, ThreadMapper(1)) is None
    calls = make("collectives", [{"rank": k, "start_ns": 0, "end_ns": 1} for k in range(3)])
    log = TraceFile(MemoryEntry(Parsed({"collectives": calls})), "nccl.log", 0, 0)
    assert made_by_rank("own_times", [*files, log], tables, ThreadMapper(1)) is None


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    """Seven of eight ranks on two nodes, whose clocks are apart."""
    options = {
        "model": "tiny", "layers": 2, "hidden": 64, "heads": 2, "ffn": 128, "vocab": 100,
        "seq": 32, "nodes": 2, "gpus_per_node": 4, "strategy": "hybrid_shard",
        "tensor_parallel": 2, "steps": 2, "clock_offset_us": 400.0,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        simulate_job(check_config(Config(**options)), folder)  # type: ignore[arg-type]
        next(folder.glob("rank5*")).unlink()
        yield open_trace(folder)


@pytest.mark.parametrize(
    "on", ["threads", "processes", pytest.param("ray", marks=pytest.mark.nightly)]
)
def test_wherever_it_is_made_the_rows_are_the_same(on: str, job: Trace) -> None:
    workers = choose_mapper(on, 2)
    try:
        for name in BY_RANK:
            made = made_by_rank(name, job.files, job.tables, workers)
            assert made is not None and made.num_rows > 100
            assert made.equals(job.tables[name])
    finally:
        workers.close()


def test_ranks_with_many_events_are_asked_one_by_one(
    job: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        name: ask_trace(job, name) for name in ("comm_wait", "stragglers", "recommendations")
    }
    made: list[tuple[str, int]] = []

    def noted(name: str, files: object, tables: object, mapper: Mapper) -> pa.Table | None:
        made.append((name, mapper.workers))
        return made_by_rank(name, files, tables, mapper)  # type: ignore[arg-type]

    monkeypatch.setattr(by_rank, "made_by_rank", noted)
    monkeypatch.setattr(joined, "_LEAST_BYTES", 1)
    for on, workers in ((None, 1), ("processes", os.cpu_count() or 1)):
        work = Workplace(on)
        store = Store(Store().root / f"on-{on}")
        trace = replace(job, work=work, joined=JoinedTables(store, job.files, work))
        for name, answer in answers.items():
            again = ask_trace(trace, name)
            assert again.to_pylist() == answer.to_pylist()
            assert dict(again.coverage) == dict(answer.coverage)
        work.close()
        assert {*made} == {(name, workers) for name in BY_RANK}
        made.clear()


def test_which_ranks_recorded_kernels_is_asked_of_the_files(
    job: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long rank 2's GPU was busy was not recorded: unknown, however large the files are."""
    files = []
    for file in job.files:
        own = {name: file.entry.tables[name] for name in file.entry.tables}
        if file.rank == 2:
            own["kernels"] = own["kernels"].slice(0, 0)
        parsed = replace(file.entry.parsed, tables=own)
        files.append(replace(file, entry=MemoryEntry(parsed)))
    of_small = ask_trace(Trace(tuple(files)), "stragglers").to_pylist()
    assert {row["rank"] for row in of_small if row["recorded_ns"] is None} == {2}
    monkeypatch.setattr(joined, "_LEAST_BYTES", 0)
    assert ask_trace(Trace(tuple(files)), "stragglers").to_pylist() == of_small
