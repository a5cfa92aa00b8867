"""Every picture against the table it belongs to: what the browser drew, mark by mark.

What should stand there is worked out from the rows alone, never by the code that draws.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.base.core.chart import Bar, Heatmap, Line, Scatter, TimelineChart
from htk.base.core.humanize import parse_int_ranges, shorten_text
from htk.base.schema import ABSOLUTE_TIMES
from htk.base.schema.columns import heading_of, unit_of
from htk.dashboard.runs import Runs
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.conftest import ROOT
from tests.dashboard.conftest import go, serving, visiting
from tests.dashboard.figure_marks import drawn
from tests.dashboard.more_recordings import write_recordings
from tests.thinned import thinned

SAMPLES = ROOT / "sample_traces"
JOB = SAMPLES / "simulated" / "llama2-7b"
LYING_BARS = 16  # of a picture whose bars lie: more names have no room
FEW_LINES = 4  # of ranks; more are drawn as their median, least and most
# Sums may stand in a bar together; these not.
_NO_SUM = re.compile(r"_(max|min|mean|pct|p\d\d|std)$|imbalance|slowness")
_UNITS = {
    "µs": 1e3,
    "s": 1e9,
    "ms": 1e6,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
}  # of an axis, in those of a column

_OPERATIONS = "sample_traces/operation_rows/slow_worker.parquet"
# What the job has nothing of, and the recording that has.
ELSEWHERE = {
    **dict.fromkeys(("alltoall_balance", "moe_balance"), "more/experts"),
    **dict.fromkeys(("pipeline_bubble", "comm_matrix"), "more/pipeline"),
    **{
        "serving_iterations": "more/server",
        "iteration_times": "more/server",
        "iteration_gaps": "more/server",
        "comm_proxy": "more/proxy",
    },
    **{"link_counters": "more/links", "kernel_metrics": "more/metrics"},
    **dict.fromkeys(("straggler_slowdown", "straggler_whatif"), _OPERATIONS),
    **{f"slowdown_by_{what}": _OPERATIONS for what in ("stage", "type", "worker")},
}


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "more"
    folder.mkdir()
    write_recordings(folder)
    return folder


@pytest.fixture(scope="module")
def traces(more: Path) -> dict[str, Trace]:
    """Return the job, under no name, and the recordings of what it lacks."""
    folder_of = {"": JOB.parent, "more": more.parent, "sample_traces": ROOT}
    places = {run: folder_of[run.partition("/")[0]] / (run or JOB.name) for run in RUNS}
    return {run: open_trace(place, OpenOptions(cache=False)) for run, place in places.items()}


@pytest.fixture(scope="module")
def visitor(browser: Any, more: Path, traces: dict[str, Trace]) -> Iterator[tuple[Any, list[str]]]:
    with serving(Runs([SAMPLES, more], trace=traces[""])) as address:
        yield from visiting(browser, address)


CHARTED = sorted(name for name in ANALYSES if find_analysis(name).chart is not None)
RUNS = ("", *dict.fromkeys(ELSEWHERE.values()))
Rows = list[dict[str, Any]]


@pytest.mark.parametrize("name", thinned(CHARTED))
def test_a_picture_of_the_registry_is_its_table(
    page: Any, traces: dict[str, Trace], name: str
) -> None:
    """Each mark is where a row says, at its length; nothing is missing, hidden or added."""
    analysis, run = find_analysis(name), ELSEWHERE.get(name, "")
    rows = ask_trace(traces[run], name).to_pylist()
    assert rows
    go(page, f"/{name}?run={run}" if run else f"/{name}")
    picture = drawn(page, analysis.question)
    match analysis.chart:
        case Bar():
            compare_bars(picture, rows, analysis.chart, len(traces[run].ranks))
        case Line():
            compare_lines(picture, rows, analysis.chart)
        case Scatter():
            compare_points(picture, rows, analysis.chart)
        case Heatmap():
            compare_cells(picture, rows, analysis.chart)
        case TimelineChart():
            compare_spans(picture, rows, analysis.chart)


def compare_bars(picture: dict[str, Any], rows: Rows, chart: Bar, ranks: int) -> None:
    ys = (chart.y,) if isinstance(chart.y, str) else chart.y
    if chart.instead and all(row[chart.y] is None for row in rows):
        ys = (chart.instead,)
    if chart.x == "rank":  # a row of all ranks together is no rank
        rows = [row for row in rows if row["rank"] is not None] or rows
    title = picture["x" if chart.horizontal else "y"]
    averaged = "mean over ranks" in title
    if chart.horizontal and averaged:
        shown = list(dict.fromkeys(row[chart.x] for row in rows))[:LYING_BARS]
        rows = [row for row in rows if row[chart.x] in shown]
    elif chart.horizontal:
        rows = rows[:LYING_BARS]
    names = {row[chart.x] for row in rows}
    named = any(isinstance(value, str) for value in names)  # no number: it has no place on an axis
    assert len({place(chart.x, value) for value in names}) == len(names), "two names in a bar"
    expected: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        for y in ys:
            series = plain(heading_of(y)) if chart.color is None else word(chart.color, row)
            if row[y] is not None and (row[chart.x] is not None or named):
                expected[series, place(chart.x, row[chart.x])].append(row[y] / unit(title, y))
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    bars = [bar for bar in picture["bars"] if None not in (bar["value"], bar["at"])]
    for bar in bars:
        found[plain(bar["trace"]), unescape(str(bar["at"]))].append(bar["value"])
        assert bar["ends"] == pytest.approx(
            sorted([bar["from"], bar["from"] + bar["value"]]), abs=2 * bar["pixel"]
        )
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        total = sum(values) / (ranks if averaged else 1)
        assert sum(found[key]) == pytest.approx(total), key
        additive = averaged or not any(_NO_SUM.search(y) for y in ys)
        assert len(found[key]) == 1 or additive, f"{key}: what cannot be summed is stacked"
    for number, bar in enumerate(bars):
        hidden = [other for other in bars[:number] if overlapping(bar["box"], other["box"])]
        assert not hidden, f"{bar} hides {hidden}"


def compare_lines(picture: dict[str, Any], rows: Rows, chart: Line) -> None:
    if chart.steps:
        compare_bands(picture, rows, chart)
        return
    ys = (chart.y,) if isinstance(chart.y, str) else chart.y
    origin = min(row[chart.x] for row in rows) if chart.x in ABSOLUTE_TIMES else 0
    x_unit = unit(picture["x"], chart.x)
    points = [
        (whose(row, chart), y, (row[chart.x] - origin) / x_unit, row[y] / unit(picture["y"], y))
        for row in rows
        for y in ys
        if row[y] is not None and row[chart.x] is not None
    ]
    owners, drawn_ys = ({point[k] for point in points} for k in (0, 1))
    if chart.x != "step" or len(owners) <= FEW_LINES:
        found = [(p["trace"], p["x"], p["y"]) for p in picture["points"]]
        of_one = len(drawn_ys) == 1
        named = [
            (owner if of_one else ", ".join(filter(None, (plain(heading_of(y)), owner))), x, value)
            for owner, y, x, value in points
        ]
        same_points(found, named)
        return
    of_step: dict[float, list[float]] = defaultdict(list)
    for _, _, x, y in points:
        of_step[x].append(y)
    middle = [("median", x, median(ys)) for x, ys in of_step.items()]
    edges = [("", x, y) for x, ys in of_step.items() for y in (min(ys), max(ys))]
    found = [
        ("median" if "median" in p["trace"] else "", p["x"], p["y"]) for p in picture["points"]
    ]
    same_points(found, middle + edges)


def compare_bands(picture: dict[str, Any], rows: Rows, chart: Line) -> None:
    """What is drawn at each time of a row is the lowest, median and highest that the ranks named in
    the legend hold then; each rank stands in one band or line."""
    y = str(chart.y)
    origin, factor = min(row[chart.x] for row in rows), unit(picture["y"], y)
    held: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        held[row["rank"]].append((row[chart.x] - origin, row[y] / factor))
    drawn: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for point in picture["points"]:
        drawn[point["trace"]].append((point["x"] * unit(picture["x"], chart.x), point["y"]))
    ranks_of = {}
    for name in {trace.partition(":")[0] for trace in drawn}:
        numbers = name.removeprefix("rank").removeprefix("s").replace(" ", "")
        ranks_of[name] = parse_int_ranges(numbers)
    assert sorted(rank for ranks in ranks_of.values() for rank in ranks) == sorted(held)
    for trace, line in drawn.items():
        ranks = ranks_of[trace.partition(":")[0]]
        of = min if "lowest" in trace else max if trace.endswith(": highest") else median
        for at in sorted({t for rank in ranks for t, _ in held[rank]}):
            now = [held[rank] for rank in ranks if held[rank][0][0] <= at < held[rank][-1][0]]
            if not now:  # the end
                continue
            expected = of([[v for t, v in points if t <= at][-1] for points in now])
            assert [v for t, v in line if t <= at + 0.5][-1] == pytest.approx(expected), trace
        assert max(v for _, v in line) <= max(v for rank in ranks for _, v in held[rank]) + 1e-9


def whose(row: dict[str, Any], chart: Line) -> str:
    """Return how a legend calls what a row is of: its rank, or its host and link."""
    if chart.owner:
        return " ".join(str(row[name]) for name in ("host", "link"))
    return f"rank {row['rank']}" if "rank" in row else ""


def compare_points(picture: dict[str, Any], rows: Rows, chart: Scatter) -> None:
    x_unit, y_unit = unit(picture["x"], chart.x), unit(picture["y"], chart.y)
    expected = [
        (
            word(chart.color, row) if chart.color else "",
            row[chart.x] / x_unit,
            row[chart.y] / y_unit,
        )
        for row in rows
        if row[chart.x] is not None and row[chart.y] is not None
    ]
    found = [(plain(p["trace"]) if chart.color else "", p["x"], p["y"]) for p in picture["points"]]
    same_points(found, expected)


def compare_cells(picture: dict[str, Any], rows: Rows, chart: Heatmap) -> None:
    factor = unit(picture["scale"], chart.value)
    x, y = ([place(name, row[name]) for row in rows] for name in (chart.x, chart.y))
    values = [row[chart.value] for row in rows]
    expected = {(a, b): v / factor for a, b, v in zip(x, y, values, strict=True) if v is not None}
    lost = {(a, b) for a in x for b in y if (a, b) not in expected} if chart.missing else set()
    cells = picture["cells"]
    found = {(c["x"], c["y"]): c["value"] for c in cells if c["trace"] != chart.missing}
    assert found == pytest.approx(expected)
    assert {(c["x"], c["y"]) for c in cells if c["trace"] == chart.missing and lost} == lost


def compare_spans(picture: dict[str, Any], rows: Rows, chart: TimelineChart) -> None:
    assert chart.color
    rows = [row for row in rows if row[chart.start] is not None and row[chart.end] is not None]
    origin = min(row[chart.start] for row in rows)
    factor = unit(picture["x"], chart.start)
    expected = [
        (
            f"{word(chart.color, row)} of {place(chart.lane, row[chart.lane])}",
            (row[chart.start] - origin) / factor,
            (row[chart.end] - row[chart.start]) / factor,
        )
        for row in rows
    ]
    bars = picture["bars"]
    found = [(f"{plain(b['trace'])} of {b['at']}", b["from"], b["value"]) for b in bars]
    same_points(found, expected)
    for bar in bars:
        ends = [bar["from"], bar["from"] + bar["value"]]
        assert bar["ends"] == pytest.approx(ends, abs=2 * bar["pixel"])


def same_points(found: list[tuple[str, float, float]], expected: list[Any]) -> None:
    """Assert that the points and their names are those of the table, in any order."""
    found, expected = sorted(found), sorted(expected)
    assert [name for name, *_ in found] == [name for name, *_ in expected]
    for number in (1, 2):
        column = [point[number] for point in expected]
        assert [point[number] for point in found] == pytest.approx(column)


def place(name: str, value: Any) -> str:
    """Return how a row's place on an axis is called."""
    if value is None:
        return "–"
    if name in ("rank", "step", "device", "stage"):
        return f"{name} {value}"
    return shorten_text(value, 50) if isinstance(value, str) else str(value)


def word(column: str, row: dict[str, Any]) -> str:
    """Return how the legend calls the series of a row."""
    value = row[column]
    if value is None:
        return "–"
    if isinstance(value, bool):
        return plain(column if value else f"not {column}")
    return f"rank {value}" if column.endswith("rank") else plain(str(value))


def plain(text: str) -> str:
    """Return a name without what differs between a table's words and a legend's."""
    words = text.removesuffix(" %").replace("_", " ")
    return re.sub(r"\bcomm\b", "communication", words)


def unit(title: str, column: str) -> float:
    """Return how much of a column's unit the unit of an axis is, as its title says."""
    words = re.sub(r" \(mean over ranks\)", "", title)
    stated = re.search(r"\[(.+)\]", words)
    shown = stated[1] if stated else words
    if unit_of(column) in ("ns", "bytes"):
        return float(_UNITS[shown])
    return 1.0


def overlapping(a: list[float], b: list[float]) -> bool:
    """Return whether two boxes share more than their edges."""
    sides = [min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (0, 1)]
    return all(side > 2.5 for side in sides)
