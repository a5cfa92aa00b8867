"""Answers about a whole recording are kept as they were, and given for no other question, files or
code."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import htk
from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.kept import kept_answer
from htk.base.errors import HtkError
from htk.base.io.store import Store
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.joined import JoinedTables
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Tables, Trace
from htk.verdicts.overview.summary import summarise_trace

JOB = Config(
    model="gpt3-126m", layers=1, seq=128, nodes=2, gpus_per_node=2, steps=3, carry_in=2, seed=3
)
RANKS = 4
# What grows with a rank's events; the rest has a row for each rank, step, kind of kernel or cause.
LARGE = {
    "kernels", "kernel_links", "activities", "cpu_ops", "op_links", "launches", "annotations",
    "memory", "idle_causes", "collectives", "collective_matches", "aligned_matches",
    "collective_facts", "collective_shares", "own_times",
}  # fmt: skip


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job") / "ranks"
    simulate_job(check_config(JOB), folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("htk.traces.trace.joined._FEWEST_FILES", RANKS)
    return tmp_path / "cache"


def answers_in(cache: Path) -> set[str]:
    folders = [e.folder for e in Store(cache).list() if e.source.endswith("files answered for")]
    return {f.stem.removeprefix("derived-") for folder in folders for f in folder.glob("d*.arrow")}


def asked(trace: Trace, name: str, **options: Any) -> Any:
    """The rows, what is said of columns and rows, and the coverage; or why there is no answer."""
    try:
        result = ask_trace(trace, name, **options)
    except HtkError as error:
        return str(error)
    return result.table.to_pylist(), result.table.schema.metadata, dict(result.coverage)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tables that are read from now on."""
    names: set[str] = set()
    get = Tables.__getitem__

    def noted(self: Tables, name: str) -> pa.Table:
        names.add(name)
        return get(self, name)

    monkeypatch.setattr(Tables, "__getitem__", noted)
    return names


def test_each_question_is_answered_the_same_from_what_was_kept(ranks: Path, cache: Path) -> None:
    bare = open_trace(ranks, OpenOptions(cache=False))
    first, again = open_trace(ranks), open_trace(ranks)
    for name in ANALYSES:
        expected = asked(bare, name)
        assert asked(first, name) == expected, name
        assert asked(again, name) == expected, name
    kept = answers_in(cache)
    assert {"comm_wait", "recommendations", "kernel_top", "stragglers"} <= kept <= set(ANALYSES)


def test_a_second_summary_reads_no_table_that_grows_with_events(
    ranks: Path, read: set[str]
) -> None:
    expected = summarise_trace(open_trace(ranks, OpenOptions(cache=False)))
    assert read >= LARGE - {"memory", "annotations"}
    assert summarise_trace(open_trace(ranks)).table.equals(expected.table)
    read.clear()
    second = summarise_trace(open_trace(ranks))
    assert second.table.equals(expected.table) and second.coverage == expected.coverage
    assert read and not read & LARGE
    read.clear()
    assert htk.open(ranks).comm_wait().shape[0] == RANKS
    assert read and not read & LARGE


def test_other_options_selections_and_files_are_asked_anew(
    ranks: Path, cache: Path, tmp_path: Path
) -> None:
    bare = open_trace(ranks, OpenOptions(cache=False))
    trace = open_trace(ranks)
    asked(trace, "kernel_top")
    assert answers_in(cache) == {"kernel_top"}
    assert asked(trace, "kernel_top", n=2) == asked(bare, "kernel_top", n=2)
    assert len(ask_trace(trace, "kernel_top", n=2).to_pylist()) < len(
        ask_trace(trace, "kernel_top").to_pylist()
    )
    default = find_analysis("kernel_top").options["n"].default
    assert asked(trace, "kernel_top", n=default) == asked(trace, "kernel_top")
    for chosen in ({"ranks": [1]}, {"steps": "first:1"}):
        answer = asked(trace.sel(**chosen), "kernel_top")
        assert answer == asked(bare.sel(**chosen), "kernel_top") != asked(trace, "kernel_top")
    changed = tmp_path / "changed"
    shutil.copytree(ranks, changed)
    other = Config(**{**JOB.__dict__, "seed": 4, "steps": 2})
    simulate_job(check_config(other), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "rank2.pt.trace.json.gz", changed)
    without = open_trace(changed, OpenOptions(cache=False))
    assert asked(open_trace(changed), "time_breakdown") == asked(without, "time_breakdown")
    assert asked(open_trace(changed), "kernel_top") == asked(without, "kernel_top")


def test_answers_of_other_code_and_of_plugins_are_not_given(
    ranks: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, made = find_analysis("time_breakdown"), pa.table({"x": [1]})
    trace = open_trace(ranks)
    assert kept_answer(trace, question, {}, lambda: made).equals(made)
    assert kept_answer(trace, question, {}, lambda: pa.table({"x": [2]})).equals(made)
    monkeypatch.setattr("htk.traces.trace.joined.answer_code", lambda: "mended")
    assert ask_trace(open_trace(ranks), "time_breakdown").shape[0] == RANKS
    monkeypatch.setattr("htk.answers.kept._OWN", "htk_of_others.")
    assert kept_answer(trace, question, {}, lambda: pa.table({"x": [3]}))["x"].to_pylist() == [3]


def test_what_is_large_or_of_few_small_files_is_not_kept(
    ranks: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("htk.traces.trace.joined._LARGEST_ANSWER", 1)
    assert ask_trace(open_trace(ranks), "kernel_top").shape[0] and answers_in(cache) == set()
    monkeypatch.setattr("htk.traces.trace.joined._LARGEST_ANSWER", 1 << 20)
    monkeypatch.setattr("htk.traces.trace.joined._FEWEST_FILES", RANKS + 1)
    assert ask_trace(open_trace(ranks), "kernel_top").shape[0] and answers_in(cache) == set()
    trace = open_trace(ranks)
    assert isinstance(trace.joined, JoinedTables)
    monkeypatch.setattr("htk.traces.trace.joined._LEAST_BYTES", 100)
    assert ask_trace(trace, "kernel_top").shape[0] and answers_in(cache) == {"kernel_top"}
