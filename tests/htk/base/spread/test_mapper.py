"""One seam, three ways to work: the same results in order, whatever becomes of a worker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import neg
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from htk.answers.ask import ask_trace
from htk.base.errors import AnalysisError, UsageError
from htk.base.spread.mapper import ON, TRIES, Lost, Mapper, ThreadMapper
from htk.base.spread.processes import ProcessMapper
from htk.base.spread.workplace import Workplace, choose_mapper
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.htk.base.spread.worker_tasks import Deadly, Meeting, doubled
from tests.operation_job import JobPlan, simulate
from tests.two_ranks import write_ranks

JOB = Path(__file__).parents[4] / "sample_traces/simulated/llama2-7b"

JOB_QUESTIONS = (
    "straggler_slowdown",
    "slowdown_by_type",
    "slowdown_by_stage",
    "slowdown_by_worker",
    "straggler_causes",
    "straggler_whatif",
)
# Ray takes ten seconds to start.
RAY_AT_NIGHT = [
    "processes",
    pytest.param("ray", marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module")
def workplaces() -> Iterator[dict[str, Workplace]]:
    """Two workers of each kind, started when first asked for and kept for all tests."""
    places = {on: Workplace(on) for on in ON}
    for on, workplace in places.items():
        workplace.__dict__["mapper"] = _Later(on)
    yield places
    for workplace in places.values():
        workplace.close()


class _Later:
    """A mapper of two workers that is started when it is first used."""

    shares_memory = False
    workers = 2

    def __init__(self, on: str) -> None:
        self._on = on
        self._mapper: Mapper | None = None

    def map(self, function, items):  # type: ignore[no-untyped-def]
        if self._mapper is None:
            if self._on == "ray":
                pytest.importorskip("ray", reason="Ray is not installed")
            try:
                self._mapper = choose_mapper(self._on, 2)
            except AnalysisError as error:  # Ray gives its own agent 15 s to start
                pytest.skip(str(error))
        return self._mapper.map(function, items)

    def close(self) -> None:
        if self._mapper is not None:
            self._mapper.close()


@pytest.mark.parametrize("on", ["threads", *RAY_AT_NIGHT])
def test_results_come_in_the_order_of_the_items(on: str, workplaces: dict[str, Workplace]) -> None:
    items = list(range(23))
    assert list(workplaces[on].mapper.map(doubled, items)) == [2 * item for item in items]
    assert list(workplaces[on].mapper.map(doubled, [])) == []
    with pytest.raises(UsageError, match="-1 is below zero"):
        list(workplaces[on].mapper.map(doubled, [3, -1, 4]))
    assert list(workplaces[on].mapper.map(doubled, [5])) == [10]


@pytest.mark.parametrize("on", ["threads", *RAY_AT_NIGHT])
def test_two_workers_overlap(on: str, workplaces: dict[str, Workplace], tmp_path: Path) -> None:
    results = list(workplaces[on].mapper.map(Meeting(tmp_path), range(2)))
    assert [item for item, _ in results] == [0, 1]
    assert len({process for _, process in results}) == (1 if on == "threads" else 2)


@pytest.mark.parametrize("on", RAY_AT_NIGHT)
def test_one_of_many_that_kills_its_worker_costs_no_other(
    on: str, workplaces: dict[str, Workplace], tmp_path: Path
) -> None:
    """Ray gets several items in one task."""
    results = list(workplaces[on].mapper.map(Deadly(tmp_path, 21, 10 * TRIES), range(64)))
    assert isinstance(results[21], Lost)
    # It may end a process once more before its turn, which the item waited for is charged with.
    assert len(list(tmp_path.glob("21-*"))) in (TRIES, TRIES + 1)
    assert [r[0] for k, r in enumerate(results) if k != 21] == [k for k in range(64) if k != 21]


@pytest.mark.parametrize("on", RAY_AT_NIGHT)
def test_a_worker_killed_mid_way_costs_no_result(
    on: str, workplaces: dict[str, Workplace], tmp_path: Path
) -> None:
    results = list(workplaces[on].mapper.map(Deadly(tmp_path, 3, 1), range(8)))
    assert [item for item, _ in results] == list(range(8))
    assert os.getpid() not in {process for _, process in results}
    assert len(list(tmp_path.glob("3-*"))) >= 2


def test_a_pool_that_broke_before_the_next_item_is_given_to_it_costs_no_result() -> None:
    """The death of a worker is found out at the next submission, or at the next result."""
    processes = ProcessMapper(2)
    try:
        assert list(processes.map(neg, range(3))) == [0, -1, -2]
        for round_ in range(2 * TRIES):  # no item is charged for the deaths of earlier rounds
            pool = processes._pool
            assert pool is not None
            last = pool.submit(neg, 1)
            for process in list(pool._processes.values()):
                os.kill(process.pid, signal.SIGKILL)
            with suppress(BrokenProcessPool):
                last.result()
            pool._executor_manager_thread.join()  # from here on it refuses
            assert list(processes.map(neg, range(5))) == [0, -1, -2, -3, -4], round_
    finally:
        processes.close()


@pytest.mark.parametrize("on", RAY_AT_NIGHT)
def test_what_kills_every_worker_is_lost_and_the_rest_is_not(
    on: str, workplaces: dict[str, Workplace], tmp_path: Path
) -> None:
    results = list(workplaces[on].mapper.map(Deadly(tmp_path, 2, 10 * TRIES), range(6)))
    assert isinstance(results[2], Lost) and str(TRIES) in results[2].why
    assert [r[0] for k, r in enumerate(results) if k != 2] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("on", RAY_AT_NIGHT)
def test_files_read_and_questions_answered_elsewhere_give_the_same(
    on: str,
    workplaces: dict[str, Workplace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workplaces[on].mapper.map(doubled, [1])  # skips where there is no Ray
    folder = write_ranks(tmp_path)
    (folder / "rank2.json").write_text('{"traceEvents": [{"ph": ')  # damaged: said, not fatal
    here = open_trace(folder)
    monkeypatch.setattr("htk.traces.trace.opening.Workplace", lambda *_: workplaces[on])
    away = open_trace(folder, OpenOptions(on=on))
    assert away.failed == here.failed and away.unread == here.unread
    assert [(f.file, f.rank, f.cycle) for f in away.files] == [
        (f.file, f.rank, f.cycle) for f in here.files
    ]
    for name in ("time_breakdown", "idle_breakdown", "queue_length"):
        answer, again = ask_trace(here, name), ask_trace(away, name)
        assert again.to_pylist() == answer.to_pylist() and answer.shape[0]
        assert dict(again.coverage) == dict(answer.coverage)


def counted_tasks(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each round of work adds how many tasks it is."""
    tasks: list[int] = []
    run = work.mapper.map

    def counted(function, items):  # type: ignore[no-untyped-def]
        tasks.append(len(items))
        return run(function, items)

    monkeypatch.setattr(work.mapper, "map", counted)
    return tasks


# Ray once ended the process that ran this: not in every run of the tests, then.
@pytest.mark.parametrize("on", RAY_AT_NIGHT)
def test_rows_of_a_job_are_looked_at_elsewhere_with_the_same_answers(
    on: str,
    workplaces: dict[str, Workplace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Integers and floats bit for bit; each part is whole steps of all ranks."""
    list(workplaces[on].mapper.map(doubled, [1]))  # skips where there is no Ray
    plan = JobPlan(noise=0.1, seed=1, steps=9, worker={(2, 1): 1.3}, lengths=0.3)
    rows = simulate(plan).sort_by([("step", "ascending"), ("start_ns", "ascending")])
    for rank in range(16):  # a file each, as they are logged
        own = rows.filter(pc.equal(rows["rank"], rank)).drop_columns(["cycle", "index_in_type"])
        parquet.write_table(own, tmp_path / f"rank{rank}.parquet")
    monkeypatch.setattr("htk.quantities.straggler.streamed._ROWS_AT_ONCE", 2_000)
    here = open_trace(tmp_path)
    monkeypatch.setattr("htk.traces.trace.opening.Workplace", lambda *_: workplaces[on])
    away = open_trace(tmp_path, OpenOptions(on=on))
    tasks = counted_tasks(workplaces[on], monkeypatch)
    for name in JOB_QUESTIONS:
        answer, again = ask_trace(here, name), ask_trace(away, name)
        assert again.table.equals(answer.table) and answer.table.num_rows
        assert dict(again.coverage) == dict(answer.coverage)
    assert len(tasks) >= 2 * len(JOB_QUESTIONS) and set(tasks) == {3}
    chosen = ask_trace(away.sel(steps=[11, 12, 13]), "straggler_slowdown")
    assert chosen.table.equals(ask_trace(here.sel(steps=[11, 12, 13]), "straggler_slowdown").table)


@pytest.mark.parametrize("on", RAY_AT_NIGHT)
def test_the_critical_path_is_cut_elsewhere_with_the_same_answer(
    on: str, workplaces: dict[str, Workplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    list(workplaces[on].mapper.map(doubled, [1]))  # skips where there is no Ray
    here = open_trace(JOB)
    monkeypatch.setattr("htk.traces.trace.opening.Workplace", lambda *_: workplaces[on])
    away = open_trace(JOB, OpenOptions(on=on))
    tasks = counted_tasks(workplaces[on], monkeypatch)
    for by in ("event", "piece"):
        answer, again = (ask_trace(each, "critical_path", by=by, n=0) for each in (here, away))
        assert again.table.equals(answer.table) and answer.table.num_rows
        assert dict(again.coverage) == dict(answer.coverage)
    assert len(tasks) >= 2 * 4 and min(tasks[:3]) > 1


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(UsageError, match="threads, processes, ray"):
        choose_mapper("abacus")


def test_no_more_is_begun_than_keeps_the_workers_busy() -> None:
    begun: list[int] = []
    results = ThreadMapper(2).map(partial(_note, begun), range(50))
    assert next(iter(results)) == 0
    assert len(begun) <= 5
    results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 7


def _note(begun: list[int], item: int) -> int:
    begun.append(item)
    return item


def test_a_workplace_says_whether_it_is_elsewhere() -> None:
    assert [Workplace(on).is_elsewhere for on in (None, *ON)] == [False, False, True, True]
    assert replace(Workplace("processes"), on=None).mapper.shares_memory


def _arriving(seen: str) -> None:
    """Stand for what a worker imports before it can begin."""
    Path(seen).touch()
    time.sleep(600)


class _LongInComing:
    def __init__(self, seen: str) -> None:
        self.seen = seen

    def __reduce__(self) -> tuple[object, ...]:
        return _arriving, (self.seen,)


_INTERRUPTED = """
import signal, sys
from htk.base.spread.processes import ProcessMapper
from tests.htk.base.spread.test_mapper import _LongInComing
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__main__":
    mapper = ProcessMapper(2)
    try:
        list(mapper.map(print, [_LongInComing(sys.argv[1]), _LongInComing(sys.argv[2])]))
    except KeyboardInterrupt:
        mapper.close()
        sys.exit(130)
"""


def test_an_interrupt_ends_workers_that_still_import_without_a_word(tmp_path: Path) -> None:
    seen = [tmp_path / "one", tmp_path / "two"]
    script = tmp_path / "script.py"
    script.write_text(_INTERRUPTED)
    child = subprocess.Popen(
        [sys.executable, str(script), *map(str, seen)],
        cwd=Path(__file__).parents[4],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not all(path.exists() for path in seen) and child.poll() is None:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    said = child.communicate(timeout=120)[1]
    assert (child.returncode, said) == (130, b"")
