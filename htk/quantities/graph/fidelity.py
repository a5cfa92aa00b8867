"""Fidelity of the graph: the untouched step is replayed and compared with the recording.

Where the graph alone does not replay the step, delays that nothing recorded explains are kept as
they were (`unexplained`); then the answer is never better than indicative.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from htk.base.columns.arrow import read_lengths, read_numbers
from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.base.mappings import NamedTables
from htk.quantities.graph.build import Graph, build_graph, steps_at_hand
from htk.quantities.graph.critical_path import (
    PathEdges,
    PathEvents,
    PathPieces,
    StepPath,
    event_numbers,
    list_pieces,
)
from htk.quantities.graph.gate import Figures, Gate, TestedStep, judge_figures
from htk.quantities.graph.held_out import held_out, with_durations
from htk.quantities.graph.path_lead import name_lead
from htk.quantities.graph.replay import (
    Replay,
    find_critical_edges,
    last_end,
    replay_graph,
    replay_one_step,
)
from htk.quantities.graph.shared_tables import SharedTables
from htk.quantities.graph.step_lengths import step_lengths
from htk.quantities.graph.unexplained import keep_unexplained


class _Judged(Protocol):
    @property
    def gate(self) -> Gate: ...


_T = TypeVar("_T", bound=_Judged)


class JudgedReplay(NamedTuple):
    graph: Graph
    replay: Replay
    gate: Gate


class JudgedPath(NamedTuple):
    """The critical path of a step, and what the tests of its replay say of it."""

    graph: Graph
    path: Ints
    edges: PathEdges
    figures: Figures
    tested: TestedStep
    gate: Gate


def step_path(tables: NamedTables, step: int | None = None) -> StepPath:
    """Return the critical path of a step; without a number of the steadiest."""
    judged_path = _path_of_step(tables, step)
    events = PathEvents.from_path(judged_path.graph, judged_path.path, event_numbers(tables))
    facts = judged_path.tested.facts(judged_path.figures, judged_path.gate)
    graph = judged_path.graph
    lead = _name_lead(tables, judged_path)
    return StepPath(judged_path.edges, events, facts, graph.window[0], graph.origin_ns, lead)


class DrawnPath(NamedTuple):
    pieces: pa.Table
    step: int | None
    verdict: str
    lead: str  # what lies between the step's start and the first piece
    lead_ns: int


def draw_path(tables: NamedTables, step: int | None = None) -> DrawnPath:
    """Return the pieces of a step's critical path; raise UsageError where its replay is refused."""
    judged_path = _path_of_step(tables, step)
    verdict = judged_path.gate.verdict
    if verdict.startswith("refused"):
        raise UsageError(f"no critical path is drawn, its replay is {verdict}")
    graph = judged_path.graph
    begin = int(judged_path.edges.begin[0]) if len(judged_path.path) else graph.window[0]
    lead_ns = max(begin - graph.window[0], 0)
    pieces = list_pieces(tables, graph, judged_path.path)
    return DrawnPath(pieces, graph.step, verdict, _name_lead(tables, judged_path), lead_ns)


def _name_lead(tables: NamedTables, judged_path: JudgedPath) -> str:
    """Return what lies between the beginning of the step and that of its path."""
    graph = judged_path.graph
    if not len(judged_path.path):
        return ""
    rank = int(PathPieces.from_path(graph, judged_path.path[:1]).rank[0])
    start = graph.window[0] + graph.origin_ns
    end = int(judged_path.edges.begin[0]) + graph.origin_ns
    return name_lead(tables, rank, start, end)


def _path_of_step(tables: NamedTables, step: int | None) -> JudgedPath:
    """Return the path of the graph that `judge_steadiest_step` takes."""
    tables = SharedTables(tables)

    def judge_path(graph: Graph) -> JudgedPath:
        time = replay_one_step(graph, graph.weight, graph.wrap_weight, graph.wrap_seen)
        return _judged_path(tables, graph, time)

    return _judge_explained(build_graph(tables, step), judge_path)


def _judge_explained(graph: Graph, judge: Callable[[Graph], _T]) -> _T:
    """Return what a graph is judged to be; where it alone does not replay the step, that of the
    graph with what nothing explains kept, unless this is refused too."""
    plain = judge(graph)
    if plain.gate.replays:
        return plain
    kept = keep_unexplained(graph)
    if not kept.unexplained.any():
        return plain
    explained = judge(kept)
    return plain if explained.gate.verdict.startswith("refused") else explained


def test_replay(tables: NamedTables, graph: Graph, replayed: Replay) -> Gate:
    """Return all five tests."""
    return _judged_path(tables, graph, replayed.time).gate


def _judged_path(tables: NamedTables, graph: Graph, time: Ints) -> JudgedPath:
    path = find_critical_edges(graph, time)
    edges = PathEdges.from_path(graph, path, time)
    figures, tested = _test_graph(tables, graph, time)
    return JudgedPath(graph, path, edges, figures, tested, judge_figures(figures, edges, tested))


def _test_graph(tables: NamedTables, graph: Graph, time: Ints) -> tuple[Figures, TestedStep]:
    """Return what a graph of all ranks is tested on, and the step that it is of."""
    steps = steps_at_hand(tables)
    held_out_end = None
    neighbour = held_out(steps, graph.step)
    if neighbour is not None:
        weights = with_durations(graph, step_lengths(tables, neighbour))
        held_out_end = last_end(graph, replay_one_step(graph, *weights))
    figures = Figures.from_graph(graph, time, linked_time(tables), held_out_end)
    return figures, TestedStep(steps, graph.step, graph.cycle, graph.window)


def linked_time(tables: NamedTables) -> tuple[int, int]:
    """Return the GPU time, and that of activities whose launches were recorded."""
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    length = read_lengths(kernels)
    linked_ns = int(length[read_numbers(links["launch_row"], -1) >= 0].sum())
    return int(length.sum()), linked_ns


def judge_steadiest_step(tables: NamedTables) -> JudgedReplay:
    """Return the steadiest step, replayed and judged."""
    tables = SharedTables(tables)  # both graphs read the same

    def judge_path(graph: Graph) -> JudgedReplay:
        replayed = replay_graph(graph)
        return JudgedReplay(graph, replayed, test_replay(tables, graph, replayed))

    return _judge_explained(build_graph(tables), judge_path)
