"""A file that ends half-way: its rank did not compute less, and its GPU did not stop."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import htk
from htk.analyses.run.moe_balance import _on_every_rank
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job

JOB = Config(model="gpt3-126m", layers=3, gpus_per_node=4, steps=6)
CUT = 2  # the rank whose file ends half-way
UNEQUAL = "ranks compute unequally"


def _cut(folder: Path) -> None:
    """End a rank's file in the middle of its events."""
    (file,) = folder.glob(f"rank{CUT}.*")
    text = gzip.decompress(file.read_bytes())
    file.unlink()
    (folder / f"rank{CUT}.pt.trace.json").write_bytes(text[: len(text) // 2])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, plants in (("even", ()), ("slow", ("straggler:rank=1,factor=1.5",))):
        folder = tmp_path_factory.mktemp(name)
        simulate_job(Config(**{**JOB.__dict__, "plants": plants}), folder)
        _cut(folder)
        made[name] = folder
    return made


def test_the_cut_rank_is_no_cause(folders: dict[str, Path]) -> None:
    trace = htk.open(folders["even"])
    total = {r["rank"]: r["total_ns"] for r in trace.time_breakdown().to_pylist()}
    assert total[CUT] < 0.7 * max(total.values()), "its recording is much shorter"
    findings = [row["finding"] for row in trace.recommendations(min_pct=0.0).to_pylist()]
    assert UNEQUAL not in findings


def test_a_slow_rank_beside_it_is_still_found(folders: dict[str, Path]) -> None:
    trace = htk.open(folders["slow"])
    rows = trace.recommendations().to_pylist()
    assert any("rank 1" in row["evidence"] and "ranks wait" in row["finding"] for row in rows)


def test_a_cut_step_makes_no_other_rank_look_late(folders: dict[str, Path]) -> None:
    """Of the step in which the file ends only the host's part is there: no GPU step to compare."""
    rows = htk.open(folders["even"]).step_times().to_pylist()
    (cut,) = [row for row in rows if row["gpu_period_ns"] is None]
    assert cut["rank"] == CUT and cut["skew_ns"] is None and cut["over_usual_ns"] is None
    longest = max(row["duration_ns"] or 0 for row in rows)
    assert max(row["skew_ns"] or 0 for row in rows) < 0.2 * longest


def test_ranks_are_compared_in_what_all_of_them_hold(folders: dict[str, Path]) -> None:
    """The cut rank came last as often as it would have in half of the recording."""
    result = htk.open(folders["slow"]).stragglers()
    rows = {row["rank"]: row for row in result.to_pylist()}
    assert result.coverage["not_on_all_ranks"] > 0
    assert rows[1]["cost_to_others_ns"] == max(row["cost_to_others_ns"] for row in rows.values())
    held = rows[CUT]["collectives"]
    assert sum(row["arrived_last"] for row in rows.values()) <= held


def test_time_that_was_not_recorded_is_its_own_state(folders: dict[str, Path]) -> None:
    pytest.importorskip("dash")
    from htk.dashboard.plots import draw_busy_time
    from htk.dashboard.utilization_strip import busy_layers

    trace = htk.open(folders["even"])
    edges, layers = busy_layers(trace.tables["activities"], trace.tables["ranks"], trace.origin_ns)
    lost = np.array(layers["unrecorded"])
    quarter = len(lost) // 4
    assert not lost[quarter : 2 * quarter - 20].any(), "all four were recorded then"
    assert lost[-quarter:-5] == pytest.approx(100 / JOB.ranks, abs=0.1)
    stacked = sum(np.array(values) for values in layers.values())
    assert stacked.max() <= 100.1
    drawn = {trace.name: trace for trace in draw_busy_time([(edges, layers)], False).data}
    assert drawn["not recorded"].fillpattern.shape == "/"


def test_calls_that_a_cut_file_lacks_are_not_counted_for_others() -> None:
    """Two groups; in group 0, layer 0 both ranks hold steps 1 and 2, rank 1 lacks step 3."""
    call = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 2], [0, 0, 2], [0, 0, 3], [1, 0, 3], [1, 0, 3]])
    rank = np.array([0, 1, 0, 1, 0, 2, 3])
    assert _on_every_rank(call, rank).tolist() == [True] * 4 + [False] + [True] * 2
    assert _on_every_rank(call[4:5], rank[4:5]).all()
