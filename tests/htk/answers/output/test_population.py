"""Pictures of a figure of each of many ranks, against the table that they are drawn from."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.answers.output.figures import draw_figure
from htk.answers.output.rank_map import META
from htk.base.core.chart import Bar

PARTS = ("compute_ns", "comm_ns")


def table_of(ranks: int, odd: int) -> pa.Table:
    """Ranks of nodes of eight GPUs; one computes twice as long."""
    compute = np.full(ranks, 3_000_000)
    compute[odd] = 6_000_000
    columns = {
        "rank": range(ranks),
        "device": [rank % 8 for rank in range(ranks)],
        "compute_ns": compute,
        "comm_ns": 9_000_000 - compute,
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def drawn(ranks: int, odd: int, *, stacked: bool) -> Any:
    return draw_figure(table_of(ranks, odd), Bar("rank", PARTS, stacked=stacked))


def test_few_ranks_have_bars_side_by_side() -> None:
    fig = drawn(16, 3, stacked=False)
    assert [trace.type for trace in fig.data] == ["bar", "bar"] and fig.layout.meta != META


@pytest.mark.parametrize("ranks", [17, 64, 512, 4096])
def test_each_rank_has_the_cell_of_its_node_and_gpu(ranks: int) -> None:
    """The n-th node's GPUs stand in its column, sixty-four nodes in a band with a gap below."""
    fig = drawn(ranks, 13, stacked=False)
    maps = [trace for trace in fig.data if trace.type == "heatmap"]
    assert [trace.visible for trace in maps] == [True, False]
    high = 8 if ranks >= 8 else ranks
    whose = maps[0].customdata
    seen = {}
    for row, cells in enumerate(maps[0].z):
        for column, value in enumerate(cells):
            if value is not None:
                band, place = divmod(row, high + 1)
                rank = 8 * (64 * band + column) + place
                assert whose[row][column] == rank
                seen[rank] = value
    assert seen == {rank: 6 if rank == 13 else 3 for rank in range(ranks)}


def test_words_say_who_is_unlike_the_others() -> None:
    fig = drawn(512, 16, stacked=False)
    said = fig.layout.title.text.replace("<br>", " ")
    assert said == "compute: 511 ranks at 3 ms; rank 16 at 2.00×"
    names = [text for trace in fig.data for text in (trace.text or ()) if text]
    assert names == ["rank 16", "rank 16"], "in the row of each part"
    choices = [button.label for button in fig.layout.updatemenus[0].buttons]
    assert choices == ["compute", "communication"]


def test_a_few_dozen_ranks_stand_in_order_and_keep_their_sums() -> None:
    fig = drawn(40, 7, stacked=True)
    assert {trace.type for trace in fig.data} == {"bar"}
    sums = np.sum([trace.y for trace in fig.data], axis=0)
    assert sums.tolist() == [9.0] * 40
    compute = fig.data[0]
    assert list(compute.y) == sorted(compute.y) and compute.customdata[-1] == 7
    assert "rank 7" in fig.layout.xaxis.ticktext


def test_many_stacks_are_a_map_and_small_parts_one() -> None:
    causes = [f"cause {k}" for k in range(12)]
    rows = [
        (rank, cause, 1_000_000 * (k + 1)) for rank in range(80) for k, cause in enumerate(causes)
    ]
    names = ("rank", "cause", "idle_ns")
    table = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    fig = draw_figure(table, Bar("rank", "idle_ns", "cause"))
    shown = {t.name or t.hovertemplate for t in fig.data if t.type == "heatmap"}
    assert len(shown) == 8
    heights = [t.z[0][0] for t in fig.data if t.type == "heatmap"]
    assert sum(heights) == sum(range(1, 13)), "nothing is left out of a rank's sum"


def test_shares_of_several_rows_are_their_mean() -> None:
    rows = [(rank, k, 10.0 + 20 * k) for rank in range(20) for k in (0, 1)]
    table = pa.table(dict(zip(("rank", "part", "mfu_pct"), zip(*rows, strict=True), strict=True)))
    fig = draw_figure(table, Bar("rank", "mfu_pct", stacked=False))
    assert fig.data[0].z[0][0] == 20


def test_what_was_not_recorded_is_no_zero() -> None:
    values = [None if rank == 5 else 2.0 for rank in range(20)]
    table = pa.table({"rank": range(20), "slowness_pct": pa.array(values)})
    cells = draw_figure(table, Bar("rank", "slowness_pct", stacked=False)).data[0].z
    assert cells[5][0] is None and cells[4][0] == 2
