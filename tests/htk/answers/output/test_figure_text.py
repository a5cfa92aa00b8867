"""Names in pictures: text, whatever tag they would open."""

import pyarrow as pa

from htk.answers.output.figure_text import with_plain_names
from htk.answers.output.figures import draw_figure
from htk.base.core.chart import Bar

LINK = "<a href='https://evil.example/'>gemm</a>"
TEXT = "&lt;a href='https://evil.example/'>gemm&lt;/a>"


def test_no_name_of_a_picture_opens_a_tag() -> None:
    names = [LINK, "void gemm<float, 4>(x&)", "plain"]
    table = pa.table({"name": names, "kind": ["comm", LINK, "comm"], "total_ns": [3, 2, 1]})
    fig = draw_figure(table, Bar("name", "total_ns", "kind", horizontal=True))
    shown = [TEXT, "void gemm&lt;float, 4>(x&)", "plain"]
    assert [y for trace in fig.data for y in trace.y] == [shown[0], shown[2], shown[1]]
    assert [trace.name for trace in fig.data] == ["communication", TEXT]
    assert list(fig.layout.yaxis.categoryarray) == list(fig.layout.yaxis.tickvals) == shown
    again = with_plain_names(fig)
    assert list(again.layout.yaxis.tickvals) == shown, "what is text stays as it is"


def test_our_own_lines_and_numbers_stay() -> None:
    import plotly.graph_objects as go

    fig = go.Figure(go.Scatter(x=[1.5, 2.5], y=[3, 4], text=["<b>a</b><br>b", f"<b>{LINK}</b>"]))
    with_plain_names(fig)
    assert list(fig.data[0].text) == ["<b>a</b><br>b", f"<b>{TEXT}</b>"]
    assert list(fig.data[0].x) == [1.5, 2.5]


def test_legends_have_words_for_codes() -> None:
    causes = pa.table({"rank": [0, 0], "cause": ["host_sync", "unknown"], "idle_ns": [5, 7]})
    shown = draw_figure(causes, Bar("rank", "idle_ns", "cause"))
    assert [trace.name for trace in shown.data] == ["host sync", "unknown"]
    exposed = pa.table({"rank": [0], "overlap_ns": [5], "exposed_comm_ns": [7]})
    shown = draw_figure(exposed, Bar("rank", ("overlap_ns", "exposed_comm_ns")))
    assert [trace.name for trace in shown.data] == ["overlap", "exposed communication"]


def test_streams_are_names_not_amounts() -> None:
    table = pa.table({"stream": pa.array([20, 7, None], pa.int64()), "length_max": [3, 9, 9]})
    axis = draw_figure(table, Bar("stream", "length_max", stacked=False)).layout.xaxis
    assert axis.type == "category" and list(axis.categoryarray) == [7, 20]
