"""What-ifs from a few ranks: against a case worked out on paper, and against those from all."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from htk.base.errors import UsageError
from htk.faces.cli.main import htk
from htk.quantities.graph.build import Graph, build_graph
from htk.quantities.graph.nodes import collective_rows
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.whatif.api import whatif
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from htk.whatif.representatives import (
    _Calls,
    _choose_ranks,
    _find_followers,
    _number_roles,
    choose_representatives,
)
from tests.htk.whatif.seven_ranks import US, write_seven
from tests.htk.whatif.simulated_job import written
from tests.tables import make


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return open_trace(str(write_seven(tmp_path_factory.mktemp("seven"))))


def test_who_stands_for_whom_worked_out_on_paper(seven: Trace) -> None:
    """Waits are 20, 18, 16 and 0 of one role, 14, 12 and 8 of the other; the median ones, the
    lower of two, are of ranks 2 and 5; the others wait for rank 3."""
    chosen = choose_representatives(seven)
    assert chosen.ranks == [2, 3, 5]
    assert chosen.roles == [[0, 1, 2, 3], [4, 5, 6]]
    assert str(chosen) == "3 of 7 ranks, of 2 roles: 2..3 for 0..3; 5 for 4..6"
    left_out = chosen.tables.left_out
    assert (left_out.ranks, left_out.leader.tolist()) == (7, [2, 5, 2, 5])  # two steps
    # Of 0 and 1, who follow rank 2, the last arrives at 44; of 4 and 6 at 54.
    origin = int(seven.tables["kernels"]["start_ns"][0].as_py()) - 5 * US
    arrived = (left_out.arrived_ns - origin).tolist()
    assert arrived == [44 * US, 54 * US, 144 * US, 154 * US]


def calls(*members: tuple[int, int, int, int, bool], ranks: int) -> _Calls:
    match, rank, arrived, kind = (np.array([m[k] for m in members]) for k in range(4))
    is_message = np.array([m[4] for m in members], bool)
    in_step = [np.ones(len(members), bool)]
    return _Calls(rank, match, arrived, kind, is_message, in_step, ranks)


def test_a_pipeline_is_chosen_whole_and_only_once() -> None:
    """Two replicas of two stages: ranks 0 and 1, 2 and 3. Each rank sends or receives, and sums its
    gradients with the same stage of the other replica; rank 1 is the last there, by 50."""
    found = calls(
        *((0, 0, 10, 0, True), (0, 1, 12, 1, True), (1, 2, 10, 0, True), (1, 3, 11, 1, True)),
        *((2, 0, 20, 2, False), (2, 2, 25, 2, False), (3, 1, 70, 3, False), (3, 3, 20, 3, False)),
        ranks=4,
    )
    of_rank = np.arange(4)
    work = make("gpu_work", [{"rank": r, "gpu_activities": 100} for r in range(4)])
    role = _number_roles(found, of_rank, work)
    assert role.tolist() == [0, 1, 0, 1]
    assert _choose_ranks(found, of_rank, role).all()  # the late rank brings its whole replica
    prompt = replace(found, arrived=np.where(found.arrived == 70, 21, found.arrived))
    in_first = replace(prompt, in_steps=[])
    assert _choose_ranks(in_first, of_rank, role).tolist() == [False, False, True, True]
    followers = _find_followers(prompt, np.array([True, True, False, False]), role)
    assert [column.tolist() for column in followers] == [[2, 3], [0, 1], [25, 20]]


def test_ranks_that_run_more_have_another_role() -> None:
    found = calls(*((0, r, 10, 0, False) for r in range(4)), ranks=4)
    work = make(
        "gpu_work",
        [{"rank": r, "gpu_activities": n} for r, n in enumerate((200, 104, 100, 108))],
    )
    assert _number_roles(found, np.arange(4), work).tolist() == [
        0,
        1,
        1,
        1,
    ]  # each 5 % over the one below


JOB: dict[str, Any] = {"model": "gpt3-126m", "layers": 2, "seq": 512, "micro_batch": 4, "nodes": 2,
                       "gpus_per_node": 4, "steps": 3}  # fmt: skip
JOBS: dict[str, dict[str, Any]] = {
    "sharded, clocks apart": {"strategy": "full_shard", "clock_offset_us": 300.0},
    "a slow rank": {"strategy": "ddp", "plants": ("straggler:rank=3,factor=1.3",)},
    "tensor-parallel": {"strategy": "ddp", "tensor_parallel": 2},
    "experts": {"strategy": "ddp", "experts": 4, "active_experts": 2, "expert_parallel": 4,
                "expert_skew": 0.3},
}  # fmt: skip
EDITS = (("batch", "2x"), ("network", "bandwidth=0.5x"), ("replace", "gemm=2x"), ("host", "2x"))


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("job")
    return open_trace(str(written(folder, **JOB | JOBS[request.param])))


def arrivals(trace: Trace, graph: Graph) -> dict[int, int]:
    """When the last member arrived at each collective of a graph."""
    tables = trace.tables if len(graph.ranks) == len(trace.ranks) else None
    source = tables or trace.sel(ranks=graph.ranks).tables
    match = source["collective_matches"]["match"].to_numpy(zero_copy_only=False)
    rows = collective_rows(source, graph.activities.row)
    joined = np.flatnonzero((rows >= 0) & (graph.activities.kind == 1))
    node = graph.src[graph.run_edge[joined]]
    times = (graph.time[node] + graph.origin_ns).tolist()
    return dict(zip(match[rows[joined]].astype(int).tolist(), times, strict=True))


def test_the_last_arrivals_are_those_of_all_ranks(job: Trace) -> None:
    chosen = choose_representatives(job)
    few, every = build_graph(chosen.tables), build_graph(job.tables)
    assert len(chosen.ranks) < len(job.ranks) and few.ranks == chosen.ranks
    assert (few.step, few.period_ns) == (every.step, every.period_ns)
    assert few.window[0] + few.origin_ns == every.window[0] + every.origin_ns
    of_few, of_all = arrivals(job, few), arrivals(job, every)
    assert of_few and of_few == {match: of_all[match] for match in of_few}


def test_answers_are_those_of_all_ranks_within_what_is_said(job: Trace) -> None:
    few, every = build_baseline(choose_representatives(job).tables), build_baseline(job.tables)
    assert few.gate.verdict == every.gate.verdict == "trusted"
    assert few.step_ns == every.step_ns and few.rates.gpus == every.rates.gpus
    assert not few.waits.any()  # nobody is taken for unrecorded
    for edit in EDITS:
        near, exact = predict_answer(few, [edit]), predict_answer(every, [edit])
        assert near.step_ns is not None and exact.step_ns is not None
        assert "left_out" not in exact.sigma_by_cause
        off = abs(math.log(near.step_ns / exact.step_ns))
        assert off <= 1.645 * near.sigma_by_cause["left_out"], edit
        assert near.exposed_ns is None and near.idle_ns is None  # means over all GPUs


def test_where_every_rank_is_chosen_nothing_changes(tmp_path: Path) -> None:
    trace = open_trace(str(written(tmp_path, nodes=1, gpus_per_node=2)))
    chosen = choose_representatives(trace)
    assert chosen.ranks == trace.ranks and not len(chosen.tables.left_out.match)
    few, every = build_baseline(chosen.tables), build_baseline(trace.tables)
    assert few.gate == every.gate
    for edit in EDITS:
        assert predict_answer(few, [edit]).step_ns == predict_answer(every, [edit]).step_ns


def test_what_compares_ranks_is_refused_in_one_line(seven: Trace) -> None:
    few = whatif(seven).representatives()
    for name, value in (("no_skew", "on"), ("fix_rank", "all"), ("world", "8"), ("tp", "2")):
        with pytest.raises(UsageError, match=f"^{name} needs all ranks: [^\n]*$"):
            few.change(name, value).run()
    with pytest.raises(UsageError, match="what each rank sends is of all ranks"):
        few.traffic()
    with pytest.raises(UsageError, match="predicted trace is of all ranks"):
        few.write("nowhere")
    with pytest.raises(UsageError, match="give no further ones"):
        few.calibrate_with(seven).batch("2x").run()


@pytest.mark.parametrize("job", ["a slow rank"], indirect=True)
def test_the_answer_says_which_ranks_it_rests_on(job: Trace) -> None:
    folder = str(Path(job.files[0].file).parent)
    few = CliRunner().invoke(htk, ["whatif", folder, "--representatives", "--batch", "2x"])
    assert few.exit_code == 0, few.output
    chosen = choose_representatives(job)
    words = " ".join(few.output.split())
    assert f"({len(job.ranks)} ranks recorded) worked with {chosen}" in words
    assert "a rank that was left out comes as long after" in words
    every = CliRunner().invoke(htk, ["whatif", folder, "--batch", "2x"])
    assert "worked with" not in every.output and "left out" not in every.output
    none = CliRunner().invoke(htk, ["whatif", folder, "--representatives"])
    assert "each cause alone, but those that need all ranks" in " ".join(none.output.split())
