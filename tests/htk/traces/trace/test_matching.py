"""Collectives matched by partition on disk: what is matched at once, wherever the work runs."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from htk.answers.ask import ask_trace
from htk.base.io.store import Store
from htk.base.spread.workplace import Workplace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace import matching
from htk.traces.trace.joined import JoinedTables
from htk.traces.trace.matching import matched_by_partition
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace

JOB = {
    "model": "tiny", "layers": 2, "hidden": 64, "heads": 2, "ffn": 128, "vocab": 100, "seq": 32,
    "nodes": 2, "gpus_per_node": 4, "strategy": "hybrid_shard", "tensor_parallel": 2, "steps": 2,
    "clock_offset_us": 400.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    """Eight ranks on two nodes, one of which was not recorded."""
    folder = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        simulate_job(check_config(Config(**JOB)), folder)  # type: ignore[arg-type]
        next(folder.glob("rank5*")).unlink()
        yield open_trace(folder)


def with_work(trace: Trace, work: Workplace) -> Trace:
    return replace(trace, work=work, joined=JoinedTables(Store(), trace.files, work))


@pytest.mark.parametrize(
    "on", ["threads", "processes", pytest.param("ray", marks=pytest.mark.nightly)]
)
def test_partitions_on_disk_give_the_matches_of_one_table(on: str, job: Trace) -> None:
    whole = job.tables["collective_matches"]
    work = Workplace(on, memory_bytes=1)
    try:
        windows, ranks = job.tables["rank_windows"], job.tables["ranks"]
        parted = matched_by_partition(job.files, windows, ranks, work, Store().root)
    finally:
        work.close()
    assert whole["match"].null_count < whole.num_rows > 100
    assert parted.to_pylist() == whole.to_pylist()
    assert not list(Store().root.glob(".new-*"))


def test_little_memory_matches_by_partition(job: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def noted(*arguments: object) -> pa.Table:
        made.append(matched_by_partition(*arguments))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(matching, "matched_by_partition", noted)
    answer = ask_trace(job, "collective_times")
    assert not made
    little = ask_trace(with_work(job, Workplace(memory_bytes=1)), "collective_times")
    assert len(made) == 1 and made[0].num_rows == job.tables["collectives"].num_rows
    assert little.to_pylist() == answer.to_pylist()
    assert dict(little.coverage) == dict(answer.coverage)


def test_a_full_disk_matches_in_memory_and_says_so(
    job: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(matching._Split, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        little = ask_trace(with_work(job, Workplace(memory_bytes=1)), "collective_times")
    assert little.to_pylist() == ask_trace(job, "collective_times").to_pylist()


def test_few_calls_are_matched_at_once(job: Trace) -> None:
    roomy = Workplace(memory_bytes=1 << 40)
    assert not matching.worth_partitions(job.files, roomy, exceeds_memory=True)
    assert not matching.worth_partitions(job.files, Workplace("processes"), exceeds_memory=False)
    calls = sum(file.table("collectives").num_rows for file in job.files)
    tight = Workplace(memory_bytes=calls * matching.WORK_PER_CALL - 1)
    assert matching.worth_partitions(job.files, tight, exceeds_memory=True)
