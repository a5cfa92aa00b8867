"""A plan begins with the model and the GPUs of the run that it is opened from."""

from pathlib import Path

from htk.dashboard.page import Visit
from htk.dashboard.pages.plan import address_of
from htk.dashboard.plan_of_run import fields_of_run, read_plan_fields
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import ROOT
from tests.two_ranks import write_ranks


def test_model_gpus_and_nodes_are_the_run_s() -> None:
    """Llama 2 7B on two nodes of four A100s of 80 GB, as `sample_traces/README.md` says."""
    trace = open_trace(ROOT / "sample_traces/simulated/llama2-7b", OpenOptions(cache=False))
    assert fields_of_run(trace) == {
        "model": "llama2-7b",
        "gpu": "a100-80gb",
        "gpus": "8",
        "node": "4",
    }
    one = fields_of_run(trace.sel(ranks=[0]))
    assert one == fields_of_run(trace), "a chosen rank is not the job"


def test_what_is_not_recorded_stays_as_plans_have_it(tmp_path: Path) -> None:
    trace = open_trace(write_ranks(tmp_path), OpenOptions(cache=False))
    assert "gpu" not in fields_of_run(trace) and "node" not in fields_of_run(trace)


def test_the_address_of_the_page_holds_only_what_is_not_the_run_s() -> None:
    runs = Runs([], trace=open_trace("sample", OpenOptions(cache=False)))
    bare = Visit(runs, UrlState.from_address("/plan", ""))
    fields = read_plan_fields(bare)
    assert (fields["model"], fields["gpus"], fields["seq"]) == ("llama2-7b", "2", "8192")
    asked = Visit(runs, UrlState.from_address("/plan", "?o.gpus=64&o.model=llama3-70b"))
    assert read_plan_fields(asked) == fields | {"gpus": "64", "model": "llama3-70b"}
    whole = Visit(runs, UrlState("plan", options=read_plan_fields(asked)))
    assert address_of(whole) == "?o.model=llama3-70b&o.gpus=64"
    assert address_of(Visit(runs, UrlState("plan", options=fields))) == "?"
