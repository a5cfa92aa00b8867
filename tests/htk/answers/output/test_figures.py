"""What a picture shows, as the numbers that plotly is given."""

import math

import pyarrow as pa
import pytest

from htk.analyses import find_analysis
from htk.answers.output.figures import draw_figure, keep_marks_apart
from htk.answers.output.tokens import DARK, LIGHT
from htk.base.core.chart import Bar, Heatmap, Line, TimelineChart


def test_bars_that_ranks_would_share_are_their_mean() -> None:
    table = pa.table({"rank": [0, 0, 1], "cause": ["a", "b", "a"], "idle_ns": [2e6, 6e6, 4e6]})
    fig = draw_figure(table, Bar("cause", "idle_ns"))
    assert list(fig.data[0].x) == ["a", "b"] and list(fig.data[0].y) == [3, 3]
    assert fig.layout.yaxis.title.text == "idle [ms] (mean over ranks)"
    by_rank = draw_figure(table, Bar("rank", "idle_ns", "cause"))
    assert [list(t.x) for t in by_rank.data] == [["rank 0", "rank 1"], ["rank 0"]]


@pytest.mark.parametrize(
    "chart", [Bar("cause", "idle_ns"), Line("rank", "idle_ns"), Heatmap("rank", "cause", "idle_ns")]
)
def test_a_picture_without_rows_says_so(chart: Bar | Line | Heatmap) -> None:
    table = pa.table({"rank": [0], "cause": ["a"], "idle_ns": [2e6]})
    notes = [draw_figure(t, chart).layout.annotations for t in (table.slice(0, 0), table)]
    assert [[n.text for n in of] for of in notes] == [["no rows"], []]


def test_a_line_stays_with_its_rank_and_time_begins_at_nothing() -> None:
    table = pa.table({
        "rank": [0, 1, 0, 1], "time_ns": [5_000_000, 6_000_000, 7_000_000, 8_000_000],
        "allocated_bytes": [1 << 20, 2 << 20, 3 << 20, 4 << 20],
    })  # fmt: skip
    fig = draw_figure(table, Line("time_ns", "allocated_bytes"))
    assert [t.name for t in fig.data] == ["rank 0", "rank 1"]
    assert list(fig.data[0].y) == [1, 3]
    first, second = fig.data[0].x
    assert second - first == 2


def test_lying_bars_keep_the_order_of_the_table_and_are_few() -> None:
    names = [f"kernel {k}" for k in range(30)]
    kinds = ["comm", "compute"] * 15
    table = pa.table({"name": names, "kind": kinds, "total_ns": list(range(30, 0, -1))})
    fig = draw_figure(table, Bar("name", "total_ns", "kind", horizontal=True))
    assert list(fig.layout.yaxis.categoryarray) == names[:16]
    assert [t.marker.color for t in fig.data] == [LIGHT["comm"], LIGHT["compute"]]


def test_many_bytes_are_gibibytes_in_all_of_a_figure() -> None:
    table = pa.table({"rank": [0, 1], "peak_bytes": [3 << 30, 1 << 29], "free_bytes": [0, 1 << 20]})
    fig = draw_figure(table, Bar("rank", "peak_bytes"))
    assert list(fig.data[0].y) == [3, 0.5] and fig.layout.yaxis.title.text == "peak [GiB]"


def test_waiting_and_transfer_differ_in_pattern_and_what_cannot_be_told_in_colour() -> None:
    names = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_undetermined_ns")
    table = pa.table({"group": ["0"], **{name: [1] for name in names}})
    marks = [t.marker for t in draw_figure(table, Bar("group", names)).data]
    assert [m.color for m in marks] == [LIGHT["comm"], LIGHT["comm"], LIGHT["undetermined"]]
    assert marks[0].pattern.shape != marks[1].pattern.shape


def test_sums_of_all_ranks_are_no_bar_beside_single_ones() -> None:
    table = pa.table({
        "rank": pa.array([None, 0, 1, None, 0, 1], pa.int32()),
        "kinds": ["compute", "compute", "compute", "comm", "comm", "comm"],
        "total_ns": [9e6, 4e6, 5e6, 3e6, 1e6, 2e6],
    })  # fmt: skip
    fig = draw_figure(table, Bar("rank", "total_ns", "kinds"))
    assert [(t.name, list(t.x), list(t.y)) for t in fig.data] == [
        ("compute", ["rank 0", "rank 1"], [4, 5]),
        ("comm", ["rank 0", "rank 1"], [1, 2]),
    ]


def test_many_ranks_are_a_median_and_a_range() -> None:
    """Eight ranks, three steps, rank 5 slow in the second: no eight lines over each other."""
    steps = [1, 2, 3]
    rows = [(r, s, (100 + s + (50 if (r, s) == (5, 2) else 0)) * 1e6)
            for r in range(8) for s in steps]  # fmt: skip
    ranks, numbers, lengths = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"rank": ranks, "step": numbers, "duration_ns": lengths})
    most, least, middle = draw_figure(table, Line("step", "duration_ns", "rank")).data
    assert list(most.y) == [101, 152, 103] and list(least.y) == [101, 102, 103]
    assert list(middle.y) == [101, 102, 103]
    assert [whose for _, whose in middle.customdata][1] == "rank 5"


def test_cells_of_a_heat_map_that_were_not_recorded_are_not_zero() -> None:
    """Rank 1 holds step 3 alone; rank 0 was late by nothing in step 4, which is a value."""
    from htk.verdicts.causes.straggler_steps import RETURNS

    rows = [
        {"rank": 0, "cycle": 0, "step": 3, "lateness_ns": 7},
        {"rank": 0, "cycle": 0, "step": 4, "lateness_ns": 0},
        {"rank": 1, "cycle": 0, "step": 3, "lateness_ns": 9},
    ]
    table = pa.Table.from_pylist(rows, schema=RETURNS)
    for dark in (False, True):
        cells, lost = draw_figure(table, find_analysis("straggler_steps").chart, dark=dark).data
        assert len(cells.z) == 3 and lost.name == "no collective recorded"
        assert [(x[-1], y[-1]) for x, y in zip(lost.x, lost.y, strict=True)] == [("4", "1")]
        assert lost.colorscale[0][1] == (DARK if dark else LIGHT)["unrecorded"]
    whole = table.slice(0, 2)
    assert len(draw_figure(whole, find_analysis("straggler_steps").chart).data) == 1


def test_marks_that_would_run_into_each_other_are_left_out_where_they_stand() -> None:
    """128 and 256 are one of thirteen doublings apart; 3, 4 and 10 lie in a tenth of 1 to 100."""
    sizes = [1 << k for k in (7, 8, 10, 14, 15, 19, 20)]
    assert keep_marks_apart(sizes, 7, math.log) == [1 << k for k in (7, 10, 14, 19)]
    assert keep_marks_apart([1, 3, 4, 10, 100], 10) == [1, 100]
    assert keep_marks_apart([3], 7) == [3] and keep_marks_apart([], 7) == []


def test_nothing_is_drawn_between_two_recordings() -> None:
    """Memory that the first one held is not known to be held until the second."""
    table = pa.table(
        {
            "cycle": [0, 0, 1, 1, 1],
            "time_ns": [0, 10**6, 50 * 10**6, 51 * 10**6, 52 * 10**6],
            "allocated_bytes": [n << 20 for n in (5, 7, 2, 3, 4)],
        }
    )
    (drawn,) = draw_figure(table, Line("time_ns", "allocated_bytes", steps=True)).data
    assert list(drawn.x) == [0, 1, None, 50, 51, 52]
    assert list(drawn.y) == [5, 7, None, 2, 3, 4]
    assert not drawn.connectgaps


def test_cells_of_a_heat_map_stand_in_the_order_of_their_numbers() -> None:
    """Whatever the order of the rows; and a number is a cell of its own, not a point of a scale."""
    table = pa.table({
        "dp_rank": pa.array([10, 2, 2, 10], pa.int32()),
        "stage": pa.array([11, 11, 2, 2], pa.int32()), "slowdown": [1.4, 1.2, 1.1, 1.0],
    })  # fmt: skip
    fig = draw_figure(table, Heatmap("dp_rank", "stage", "slowdown"))
    assert fig.layout.xaxis.type == fig.layout.yaxis.type == "category"
    assert list(fig.layout.xaxis.categoryarray) == [2, 10]
    assert list(fig.layout.yaxis.categoryarray) == ["stage 2", "stage 11"]
    assert fig.layout.yaxis.autorange == "reversed", "the first stage on top, as in lists of them"


def test_spans_keep_their_length_wherever_the_first_ends() -> None:
    """The first to end has begun 7 ms after the first to begin."""
    table = pa.table({
        "rank": [0, 1, 1], "start_ns": [5_000_000, 12_000_000, 20_000_000],
        "end_ns": [25_000_000, 14_000_000, 21_500_000],
    })  # fmt: skip
    (spans,) = draw_figure(table, TimelineChart("start_ns", "end_ns", "rank")).data
    assert list(spans.base) == [0, 7, 15] and list(spans.x) == [20, 2, 1.5]


def test_cells_and_means_of_many_rows_are_all_there() -> None:
    """20 ranks × 120 steps: each has its cell, and the mean is over all of them."""
    ranks, steps = 20, 120
    table = pa.table({
        "rank": [k // steps for k in range(ranks * steps)],
        "step": [k % steps for k in range(ranks * steps)],
        "wait_ns": [(k // steps) * 1_000_000 for k in range(ranks * steps)],
    })  # fmt: skip
    (cells,) = draw_figure(table, Heatmap("step", "rank", "wait_ns", missing="lost")).data
    assert len(cells.z) == ranks * steps
    (bars,) = draw_figure(table, Bar("step", "wait_ns")).data
    assert list(bars.y) == pytest.approx([(ranks - 1) / 2] * steps)
    *_, middle = draw_figure(table, Line("step", "wait_ns", "rank")).data
    assert list(middle.y) == pytest.approx([(ranks - 1) / 2] * steps)


def test_what_saves_does_not_hide_what_costs() -> None:
    table = pa.table({"step": [1, 2], "host_ns": [-4e6, 1e6], "wait_ns": [3e6, 2e6]})
    assert draw_figure(table, Bar("step", ("host_ns", "wait_ns"))).layout.barmode == "relative"
