"""One step alone: how it repeats, and delays that nothing recorded explains; by hand."""

from pathlib import Path

import pytest

from htk.quantities.graph.build import build_graph
from htk.quantities.graph.fidelity import judge_steadiest_step
from htk.quantities.graph.replay import replay_graph
from htk.traces.trace.opening import open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write


def two_kernels(step_us: float) -> list[Event]:
    """Two launches in 25 us; kernels of 100 and 50 us on one stream, from 20 to 170 us."""
    calls = [op("aten::mm", 0, 30), launch(1, 0, 10), launch(2, 15, 10)]
    return [step(7, 0, step_us), *calls, kernel("a", 20, 100, 1), kernel("b", 120, 50, 2)]


@pytest.mark.parametrize(
    ("step_us", "period_us"),
    [
        (400.0, 400),  # the host takes so long from one step to the next
        (30.0, 150),  # the GPU does
    ],
)
def test_a_lone_step_repeats_as_soon_as_host_and_gpu_can(
    tmp_path: Path, step_us: float, period_us: int
) -> None:
    tables = open_trace(str(write(tmp_path / "t.json", *two_kernels(step_us)))).tables
    graph, replayed, judged = judge_steadiest_step(tables)
    assert graph.is_lone
    assert graph.period_ns == 150_000  # what was seen of it: from the first activity to the last
    assert replayed.period_ns == period_us * 1000
    assert judged.verdict.startswith("indicative: only one whole step")


def test_what_was_launched_before_the_recording_is_no_step_before(tmp_path: Path) -> None:
    """A kernel of it ran before the first of the step, on its stream: how soon these follow each
    other is known, and of the host's threads still nothing."""
    events = [*two_kernels(400.0), kernel("before", 5, 10, 99)]
    graph, replayed, _ = judge_steadiest_step(
        open_trace(str(write(tmp_path / "t.json", *events))).tables
    )
    assert graph.is_lone
    assert replayed.period_ns == 400_000
    assert len(graph.wrap_src) == 2, "of the thread and of the stream, each once"


def test_a_rank_that_began_later_repeats_its_step_beside_one_that_did_not(tmp_path: Path) -> None:
    """Of rank 0 two steps of 400 us were recorded, of rank 1 the second alone, of 700 us."""
    early = two_kernels(400.0)
    late = [_moved(event, 400, 10) for event in two_kernels(400.0)]
    write(tmp_path / "rank0.json", *early, *late, **of_rank(0, 2))
    alone = [_moved(event, 400, 10) for event in two_kernels(700.0)]
    write(tmp_path / "rank1.json", *alone, **of_rank(1, 2))
    graph = build_graph(open_trace(tmp_path).tables, 8)
    assert not graph.is_lone
    assert replay_graph(graph).period_ns == 700_000


def _moved(event: Event, us: float, number: int) -> Event:
    """Return an event of the next step."""
    args = {k: v + number if k == "correlation" else v for k, v in event["args"].items()}
    name = event["name"].replace("#7", "#8")
    return event | {"ts": event["ts"] + us, "name": name, "args": args}


def test_a_step_s_own_range_on_the_host_tells_how_it_repeats(tmp_path: Path) -> None:
    """Longer ones beside it are of the GPU, and of a step that ran nothing there."""
    on_gpu = step(7, 0, 900) | {"cat": "gpu_user_annotation", "pid": 0, "tid": 7}
    events = [*two_kernels(400.0), on_gpu, step(8, 500, 5000)]
    graph, replayed, _ = judge_steadiest_step(
        open_trace(str(write(tmp_path / "t.json", *events))).tables
    )
    assert graph.is_lone and graph.step == 7
    assert replayed.period_ns == 400_000


def test_a_step_that_was_not_marked_repeats_nothing(tmp_path: Path) -> None:
    tables = open_trace(str(write(tmp_path / "t.json", *two_kernels(400.0)[1:]))).tables
    graph, replayed, _ = judge_steadiest_step(tables)
    assert not graph.is_lone
    assert replayed.period_ns == graph.period_ns == 150_000
    later = graph.weight.copy()
    later[graph.edges("launch")] += 7_000  # of both: what lies before the first is not in the step
    assert replay_graph(graph, later).period_ns == 150_000


def delayed() -> list[Event]:
    """The second kernel starts 5 ms after its launch, though its stream has been idle."""
    calls = [op("aten::mm", 0, 30), launch(1, 0, 10), launch(2, 200, 10)]
    return [step(7, 0, 6000), *calls, kernel("a", 20, 100, 1), kernel("b", 5200, 800, 2)]


def test_a_delay_that_nothing_explains_stays_and_is_told(tmp_path: Path) -> None:
    tables = open_trace(str(write(tmp_path / "t.json", *delayed()))).tables
    assert replay_graph(build_graph(tables)).first_end < 2_000_000  # what the graph alone says
    graph, replayed, judged = judge_steadiest_step(tables)
    assert replayed.first_end == 6_000_000 - 20_000
    path_ns = 5_000_000 - 20_000  # launched at 200 us, it could have started at 220
    assert judged.unexplained_pct == pytest.approx(100 * path_ns / graph.period_ns, abs=0.01)
    assert "% of the step is delay that nothing recorded explains" in judged.verdict
    assert judged.verdict.startswith("indicative: only ")  # what led there was not recorded
    assert judged.figures["unexplained_pct"] == round(judged.unexplained_pct, 1)
