"""Every analysis has a page, and every part of the composed pages can be drawn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from plotly.utils import PlotlyJSONEncoder

from htk.analyses import ANALYSES, find_analysis
from htk.dashboard import derived, plots
from htk.dashboard.components import draw_part_safely
from htk.dashboard.page import Visit
from htk.dashboard.pages import load_pages
from htk.dashboard.questions import WANTED, in_short, menu_of
from htk.dashboard.runs import Runs
from htk.dashboard.table_view import group_rows
from htk.dashboard.url_state import UrlState
from htk.traces.trace.opening import SAMPLE, OpenOptions, open_trace
from tests.two_ranks import write_ranks


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(trace=open_trace("sample", OpenOptions(cache=False)))


def drawn(component: object) -> str:
    return json.dumps(component, cls=PlotlyJSONEncoder)


def test_every_question_has_a_page(runs: Runs) -> None:
    for name in ANALYSES:
        text = drawn(derived.draw_question_page(Visit(runs, UrlState(name)), name))
        assert json.dumps(find_analysis(name).question) in text


def test_the_menu_has_what_the_recording_can_answer(runs: Runs) -> None:
    """The sample has no all-to-alls, no server, no counters, no rows of a whole job."""
    trace = runs.trace("")
    assert trace is not None
    offered = {name for questions in menu_of(trace).values() for name, _, _ in questions}
    assert {"kernel_top", "stragglers", "critical_path", "memory_peaks"} <= offered
    absent = {"moe_balance", "serving_iterations", "kernel_metrics", "hang", "straggler_whatif"}
    assert not absent & offered
    assert {entry.subject for entry in ANALYSES.values()} == set(WANTED)


def test_an_answer_begins_with_its_sentence(runs: Runs) -> None:
    page = json.loads(drawn(derived.draw_question_page(Visit(runs, UrlState("flops")), "flops")))
    heading = page["props"]["children"][0]["props"]["children"]
    assert heading.startswith("Highest MFU: rank 0, 25.0 %; lowest: rank 1")


def test_communication_by_size_has_a_bar_for_each_size() -> None:
    """Both types of a sharded job have one size."""
    folder = Path(__file__).parents[2] / "sample_traces/simulated/llama2-7b"
    visit = Visit(Runs(trace=open_trace(folder, OpenOptions(cache=False))), UrlState())
    table = visit.ask("comm_summary", by="size").to_pylist()
    drawn_part = json.loads(drawn(load_pages()["communication"].parts["summary"](visit)))
    exposed, shared = _figures(drawn_part)[0]["data"]
    assert {name.split(",")[0] for name in exposed["y"]} == {row["type"] for row in table}
    assert all("from 256 MiB" in name for name in exposed["y"])
    seconds = sum(row["shared_ns"] for row in table) / 1e9
    assert sum(shared["x"]) == pytest.approx(seconds)


def test_words_of_a_question_in_the_menu_leave_out_what_it_asks_besides() -> None:
    for whole, short in (
        ("Which rank is late, in what, and how much?", "Which rank is late"),
        ("Why is it idle: was the host late?", "Why is it idle"),
        ("How does the time divide into data loading, forward and backward?", None),
    ):
        assert in_short(whole) == (short or whole.rstrip("?"))


def test_every_part_of_every_page(runs: Runs) -> None:
    options = {"base": "0", "new": "1"}  # of the comparison
    for path, page in load_pages().items():
        visit = Visit(runs, UrlState(path, options=options if path == "compare" else {}), dark=True)
        assert drawn(page.layout(visit))
        for part in page.parts.values():
            assert "Internal error" not in drawn(draw_part_safely(part, visit))


def test_kernels_and_operators_by_the_line_of_the_program(runs: Runs) -> None:
    for path, part in (("kernels", "top"), ("operators", "table")):
        visit = Visit(runs, UrlState(path, options={"by": "source"}))
        assert "model.py(113): forward" in drawn(load_pages()[path].parts[part](visit))


def test_records_without_a_profile_say_why_the_job_hangs() -> None:
    path = Path(__file__).parents[2] / "sample_traces/flight_recorder/hang_missing_rank_v2.10"
    visit = Visit(Runs(trace=open_trace(path, OpenOptions(cache=False))), UrlState())
    overview = load_pages()[""]
    assert "records" in drawn(overview.layout(visit))
    assert "rank 3 never came" in drawn(overview.parts["records"](visit))
    assert "rank 3 never came" in drawn(load_pages()["communication"].parts["hang"](visit))


def test_groups_add_up_what_adds_up(runs: Runs) -> None:
    table = runs.ask("", UrlState().selection, "kernel_top", n=1000).table
    by_kind = {row["kind"]: row for row in group_rows(table, "kind").to_pylist()}
    rows = table.to_pylist()
    for kind, row in by_kind.items():
        mine = [r for r in rows if r["kind"] == kind]
        assert row["rows"] == len(mine)
        assert row["total_ns"] == sum(r["total_ns"] for r in mine)
    assert "duration_ns_max" not in group_rows(table, "kind").column_names


def test_rows_of_a_job_fill_the_page_of_its_stragglers() -> None:
    """The heat map has a cell for each worker, the steps a line for each kind of replay."""
    path = Path(__file__).parents[2] / "sample_traces/operation_rows/slow_worker.parquet"
    visit = Visit(Runs(trace=open_trace(path, OpenOptions(cache=False))), UrlState("job"))
    page = load_pages()["job"]
    parts = {name: json.loads(drawn(part(visit))) for name, part in page.parts.items()}
    assert "likely cause" in drawn(parts["tiles"]) and '"worker"' in drawn(parts["tiles"])
    (cells,) = _figures(parts["workers"])[0]["data"]
    assert cells["type"] == "heatmap" and (cells["x"], cells["y"]) == (["0", "1", "2"], ["0", "1"])
    assert max(max(row) for row in cells["z"]) == cells["z"][1][1] > 1.1  # stage 1, dp rank 1
    assert len(_figures(parts["steps"])[0]["data"]) == 3
    assert "Internal error" not in drawn(list(parts.values()))
    assert "dp rank 1, stage 1 like its peers" in drawn(parts["whatif"])


def _figures(component: Any) -> list[Any]:
    """The figures within a component, as JSON."""
    if isinstance(component, dict):
        own = [component["figure"]] if "figure" in component else []
        return own + [f for value in component.values() for f in _figures(value)]
    if isinstance(component, list):
        return [f for value in component for f in _figures(value)]
    return []


def test_the_page_of_communication_shows_who_is_late_in_which_step(tmp_path: Path) -> None:
    """Rank 1 is 10 µs late in both steps; how late in the first is not known, as nothing before it
    was recorded."""
    visit = Visit(
        Runs(trace=open_trace(write_ranks(tmp_path), OpenOptions(cache=False))), UrlState()
    )
    (figure,) = _figures(json.loads(drawn(load_pages()["communication"].parts["steps"](visit))))
    (cells,) = figure["data"]
    assert cells["type"] == "heatmap"
    late = {
        (rank, step): us for rank, step, us in zip(cells["y"], cells["x"], cells["z"], strict=True)
    }
    assert late == {
        ("rank 0", "step 0"): 0,
        ("rank 0", "step 1"): 0,
        ("rank 1", "step 0"): 0,
        ("rank 1", "step 1"): pytest.approx(10.0),
    }


def test_a_rank_without_a_file_has_a_bar_of_its_own_look(tmp_path: Path) -> None:
    (write_ranks(tmp_path) / "rank0.json").unlink()
    visit = Visit(Runs(trace=open_trace(tmp_path, OpenOptions(cache=False))), UrlState())
    bars = _of_class(json.loads(drawn(load_pages()[""].parts["bars"](visit))), "rank-bar")
    kinds = [
        [(piece["className"], piece["style"]["width"]) for piece in _of_class(bar, r"k-\w+")]
        for bar in bars
    ]
    assert kinds[0] == [("k-unrecorded", "100.000%")]
    assert kinds[1] and not [kind for kind, _ in kinds[1] if kind == "k-unrecorded"]
    assert bars[0]["aria-label"] == "rank 0: no file of this rank"
    assert bars[1]["aria-label"].startswith("rank 1: ")


def _of_class(component: Any, name: str) -> list[dict[str, Any]]:
    """The properties of all elements of a class, as JSON, in their order."""
    if isinstance(component, dict):
        is_one = bool(re.fullmatch(name, str(component.get("className", ""))))
        return [component] * is_one + [c for v in component.values() for c in _of_class(v, name)]
    if isinstance(component, list):
        return [c for value in component for c in _of_class(value, name)]
    return []


def test_a_flame_chart_has_rows_of_a_line_and_names_that_read() -> None:
    """A row for all operators and one for each depth; ink and fill differ 4.5-fold at least."""
    rows = [
        {"id": 1, "parent": None, "op": "aten::linear", "device_total_ns": 9, "count": 1},
        {"id": 2, "parent": 1, "op": "aten::addmm", "device_total_ns": 8, "count": 1},
        {"id": 3, "parent": None, "op": "c10d::allreduce_", "device_total_ns": 5, "count": 1},
        {"id": 4, "parent": 3, "op": "aten::copy_", "device_total_ns": 4, "count": 1},
        {"id": 5, "parent": 4, "op": "aten::to", "device_total_ns": 0, "count": 1},
    ]
    assert plots.tree_height(rows) == 60 + 4 * 28
    for dark in (False, True):
        chart = plots.draw_call_tree(rows, "device_total_ns", dark).data[0]
        inks, fills = chart.textfont.color, chart.marker.colors
        assert len(inks) == len(fills) == 6
        for ink, fill in zip(inks, fills, strict=True):
            assert contrast(ink, fill) >= 4.5, (dark, fill)


def contrast(one: str, other: str) -> float:
    """Return the ratio of two colours' luminances as WCAG 2 reckons it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("part", ["families", "tensor"])
def test_panels_that_a_name_filter_leaves_whole_say_so(part: str) -> None:
    """Families have no names: their panels count all kernels, beside a table of some."""
    runs = Runs(trace=open_trace(SAMPLE, OpenOptions(cache=False)))
    make = load_pages()["kernels"].parts[part]
    for filters, said in (({"name": "gemm"}, True), ({}, False)):
        drawn = str(make(Visit(runs, UrlState("kernels", filters))))
        assert ("All kernels: the name filter does not apply." in drawn) is said
