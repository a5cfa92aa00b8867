"""A plan begins with the GPUs of the run that it is opened from."""

from pathlib import Path

from htk.dashboard.plan_of_run import fields_of_run
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import ROOT
from tests.two_ranks import write_ranks


def test_gpus_nodes_and_their_number_are_the_run_s() -> None:
    """Eight ranks on two nodes of four A100s of 80 GB, as `sample_traces/README.md` says."""
    trace = open_trace(ROOT / "sample_traces/simulated/llama2-7b", OpenOptions(cache=False))
    assert fields_of_run(trace) == {"gpu": "a100-80gb", "gpus": "8", "node": "4"}
    one = fields_of_run(trace.sel(ranks=[0]))
    assert one == fields_of_run(trace), "a chosen rank is not the job"


def test_what_is_not_recorded_stays_as_plans_have_it(tmp_path: Path) -> None:
    trace = open_trace(write_ranks(tmp_path), OpenOptions(cache=False))
    assert "gpu" not in fields_of_run(trace) and "node" not in fields_of_run(trace)
