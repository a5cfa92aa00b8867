"""The shipped sample traces are what their README says."""

import collections
import gzip
import json
import runpy
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import TraceError
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.api import whatif

SAMPLES = Path(__file__).parents[2] / "sample_traces"
RECORDED = SAMPLES / "recorded"


def test_the_folder_stays_small() -> None:
    assert sum(p.stat().st_size for p in SAMPLES.rglob("*") if p.is_file()) < 8 << 20


def test_every_folder_is_described() -> None:
    readme = (SAMPLES / "README.md").read_text()
    for folder in SAMPLES.iterdir():
        if folder.is_dir() and not folder.name.startswith(("_", ".")):
            assert f"`{folder.name}/" in readme


def test_no_recorded_file_names_a_place_of_the_machine_it_was_made_on() -> None:
    for file in RECORDED.rglob("*.gz"):
        text = gzip.decompress(file.read_bytes())
        assert b"/home/" not in text and b"/work/" not in text and b"/Users/" not in text


@pytest.mark.parametrize(("name", "ranks"), [("transformer", 1), ("ddp", 2), ("fsdp2", 2)])
def test_two_steps_of_each_rank(name: str, ranks: int) -> None:
    files = sorted((RECORDED / name).glob("*.gz"))
    assert len(files) == ranks
    for file in files:
        events = _events(file)
        names = {e["name"] for e in events if e.get("cat") == "user_annotation"}
        assert len([n for n in names if n.startswith("ProfilerStep#")]) == 2
        assert {"forward", "backward"} <= names


def test_stacks_are_only_in_the_single_process_set() -> None:
    having = {
        file.parent.name
        for file in RECORDED.rglob("*.gz")
        if any(e.get("cat") == "python_function" for e in _events(file))
    }
    assert having == {"transformer"}


def test_gloo_shows_a_reduce_scatter_as_an_all_reduce_and_its_operator_says_what_it_was() -> None:
    """Two steps of three units: gathered forward, layers again backward, all reduced."""
    counted = collections.Counter(
        e["name"] for e in _events(RECORDED / "fsdp2/rank0.pt.trace.json.gz")
    )
    assert counted["c10d::_allgather_base_"] == counted["gloo:all_gather"] == 10
    assert counted["c10d::_reduce_scatter_base_"] == counted["gloo:all_reduce"] == 6
    assert counted["record_param_comms"] == 0
    trace = open_trace(RECORDED / "fsdp2", OpenOptions(cache=False))
    kinds = collections.Counter(trace.tables["collectives"]["type"].to_pylist())
    assert kinds == {"all_gather": 20, "reduce_scatter": 12}  # of both ranks


def test_damaged_files_are_made_as_told() -> None:
    made = runpy.run_path(str(SAMPLES / "damage.py"))["damaged"]
    whole = (SAMPLES / "kineto/rank0.pt.trace.json").read_bytes()
    assert {p.name for p in (SAMPLES / "damaged").iterdir()} == set(made(whole))
    for name, data in made(whole).items():
        shipped = (SAMPLES / "damaged" / name).read_bytes()
        if name.endswith(".gz"):  # zlib is free to pack otherwise elsewhere
            assert shipped[:2] == data[:2]
        else:
            assert shipped == data


@pytest.mark.parametrize(
    "name",
    ["truncated.pt.trace.json", "truncated.pt.trace.json.gz", "unescaped_quote.pt.trace.json"],
)
def test_a_damaged_trace_is_read_as_far_as_it_goes_and_says_so(name: str) -> None:
    trace = open_trace(SAMPLES / "damaged" / name, OpenOptions(cache=False, rank=0))
    issues = trace.tables["parse_issues"]
    assert issues.num_rows >= 1
    assert trace.tables["cpu_ops"].num_rows >= 1


@pytest.mark.parametrize("name", ["bare_inf.pt.trace.json", "control_characters.pt.trace.json"])
def test_what_is_only_untidy_loses_nothing(name: str) -> None:
    whole = open_trace(SAMPLES / "kineto/rank0.pt.trace.json", OpenOptions(cache=False, rank=0))
    untidy = open_trace(SAMPLES / "damaged" / name, OpenOptions(cache=False, rank=0))
    for table in ("cpu_ops", "kernels", "annotations"):
        assert untidy.tables[table].num_rows == whole.tables[table].num_rows


@pytest.mark.parametrize("name", ["empty.pt.trace.json", "not_a_trace.json"])
def test_what_is_no_trace_is_refused(name: str) -> None:
    with pytest.raises(TraceError):
        open_trace(SAMPLES / "damaged" / name, OpenOptions(cache=False))


def _events(file: Path) -> list[dict[str, object]]:
    events: list[dict[str, object]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return events


def test_the_eight_ranks_answer_what_ifs_and_say_what_was_planted() -> None:
    """The first thing that a visitor tries must not be refused; truth is the simulator's own."""
    folder = SAMPLES / "simulated/llama2-7b"
    truth = json.loads((folder / "truth.json").read_text())
    trace = open_trace(folder, OpenOptions(cache=False))
    row = whatif(trace).batch("2x").run().to_pylist()[0]
    assert row["verdict"] == "trusted"
    steps = [s["end_ns"] - s["start_ns"] for rank in truth["ranks"] for s in rank["steps"]]
    assert min(steps) < row["measured_step_time_ns"] < max(steps)
    assert 1.5 < row["step_time_ns"] / row["measured_step_time_ns"] < 2  # collectives do not grow
    late = ask_trace(trace, "stragglers").to_pylist()[0]
    assert late["rank"] in [p["rank"] for p in truth["planted"] if "rank" in p]
