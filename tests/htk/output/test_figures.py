"""What a picture shows, as the numbers that plotly is given."""

import pyarrow as pa

from htk.core.chart import Bar, Line
from htk.output.figures import figure
from htk.output.tokens import LIGHT


def test_bars_that_ranks_would_share_are_their_mean() -> None:
    table = pa.table({"rank": [0, 0, 1], "cause": ["a", "b", "a"], "idle_ns": [2e6, 6e6, 4e6]})
    fig = figure(table, Bar("cause", "idle_ns"))
    assert list(fig.data[0].x) == ["a", "b"] and list(fig.data[0].y) == [3, 3]
    assert fig.layout.yaxis.title.text == "idle [ms] (mean over ranks)"
    by_rank = figure(table, Bar("rank", "idle_ns", "cause"))
    assert [list(t.x) for t in by_rank.data] == [["rank 0", "rank 1"], ["rank 0"]]


def test_a_line_stays_with_its_rank_and_time_begins_at_nothing() -> None:
    table = pa.table({
        "rank": [0, 1, 0, 1], "time_ns": [5_000_000, 6_000_000, 7_000_000, 8_000_000],
        "allocated_bytes": [1 << 20, 2 << 20, 3 << 20, 4 << 20],
    })  # fmt: skip
    fig = figure(table, Line("time_ns", "allocated_bytes"))
    assert [t.name for t in fig.data] == ["rank 0", "rank 1"]
    assert list(fig.data[0].y) == [1, 3]
    first, second = fig.data[0].x
    assert second - first == 2


def test_lying_bars_keep_the_order_of_the_table_and_are_few() -> None:
    names = [f"kernel {k}" for k in range(30)]
    kinds = ["comm", "compute"] * 15
    table = pa.table({"name": names, "kind": kinds, "total_ns": list(range(30, 0, -1))})
    fig = figure(table, Bar("name", "total_ns", "kind", horizontal=True))
    assert list(fig.layout.yaxis.categoryarray) == names[:16]
    assert [t.marker.color for t in fig.data] == [LIGHT["comm"], LIGHT["compute"]]


def test_many_bytes_are_gibibytes_in_all_of_a_figure() -> None:
    table = pa.table({"rank": [0, 1], "peak_bytes": [3 << 30, 1 << 29], "free_bytes": [0, 1 << 20]})
    fig = figure(table, Bar("rank", "peak_bytes"))
    assert list(fig.data[0].y) == [3, 0.5] and fig.layout.yaxis.title.text == "peak [GiB]"


def test_waiting_and_transfer_differ_in_pattern_and_what_cannot_be_told_in_colour() -> None:
    names = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_undetermined_ns")
    table = pa.table({"group": ["0"], **{name: [1] for name in names}})
    marks = [t.marker for t in figure(table, Bar("group", names)).data]
    assert [m.color for m in marks] == [LIGHT["comm"], LIGHT["comm"], LIGHT["undetermined"]]
    assert marks[0].pattern.shape != marks[1].pattern.shape
