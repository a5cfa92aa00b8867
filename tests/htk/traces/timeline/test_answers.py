"""Lanes, facts, arrows, search and statistics of two ranks whose times are known on paper."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.faces.cli.commands.timeline import command
from htk.faces.notebook.widget import WidgetServer
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.page import Events, _pack_events, render_timeline_page, write_bounded_page
from htk.traces.timeline.rows import RowsTimeline
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write
from tests.two_ranks import COMM, write_ranks


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> TraceTimeline:
    return TraceTimeline(
        open_trace(write_ranks(tmp_path_factory.mktemp("two")), OpenOptions(cache=False))
    )


def spans_of(timeline: TraceTimeline, section: str, rank: int) -> list[tuple[str, int, int]]:
    lanes = timeline.lanes
    found = []
    for k in range(len(lanes.start)):
        lane = lanes.lanes[lanes.lane[k]]
        if (lane.section, lane.rank) == (section, rank):
            found.append((lanes.names[lanes.name[k]], int(lanes.start[k]), int(lanes.end[k])))
    return sorted(found, key=lambda s: s[1])


def test_streams_groups_ranges_and_threads_are_lanes(timeline: TraceTimeline) -> None:
    assert spans_of(timeline, "streams", 1)[:2] == [
        ("ampere_bf16_gemm", 15_000, 45_000),
        (COMM, 52_000, 82_000),
    ]
    assert spans_of(timeline, "ranges", 0) == [
        ("ProfilerStep#0", 0, 100_000),
        ("ProfilerStep#1", 100_000, 200_000),
    ]
    assert ("aten::mm", 2_000, 7_000) in spans_of(timeline, "threads", 0)
    assert ("cudaLaunchKernel", 3_000, 4_000) in spans_of(timeline, "threads", 0)
    assert [s[1:] for s in spans_of(timeline, "groups", 0)][:1] == [(42_000, 82_000)]
    assert ("compute", 5_000, 35_000) in spans_of(timeline, "busy", 0)


def test_what_is_inside_another_lies_deeper(timeline: TraceTimeline) -> None:
    lanes = timeline.lanes
    depth = {
        lanes.names[lanes.name[k]]: lanes.lanes[lanes.lane[k]].depth
        for k in range(len(lanes.start))
    }
    assert (depth["aten::mm"], depth["cudaLaunchKernel"]) == (0, 1)


def test_a_stream_that_overlaps_itself_takes_several_lanes(tmp_path: Path) -> None:
    events: list[Event] = [kernel("a", 1, 10), kernel("b", 6, 10), kernel("c", 30, 1)]
    made = TraceTimeline(
        open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    )
    lanes = made.lanes
    deep = {
        lanes.names[name]: lanes.lanes[lane]
        for name, lane in zip(lanes.name, lanes.lane, strict=True)
        if lanes.lanes[lane].section == "streams"
    }
    assert [deep[n].depth for n in "abc"] == [0, 1, 0]


def test_everything_known_of_a_kernel(timeline: TraceTimeline) -> None:
    found = timeline.jump("longest", text="gemm")
    facts = dict(found["facts"])
    assert found["end"] - found["start"] == 30_000
    assert facts["operator"] == "aten::mm" and facts["step"] == "0"
    assert facts["launched"] == "2.00 µs before it started"
    assert timeline.event(ref=found["ref"])["id"] == found["id"]
    assert found["pages"] == [["its kernel", "kernels", "ampere_bf16_gemm"]]


def test_arrows_from_operator_and_launch_to_the_kernel(timeline: TraceTimeline) -> None:
    mm = timeline.jump("next", text="aten::mm")
    assert [(a["kind"], a["to"][1] - a["from"][1]) for a in mm["arrows"]] == [("launch", 3_000)]
    call = timeline.jump("next", text="cudaLaunchKernel")
    assert [(a["kind"], a["to"][1] - a["from"][1]) for a in call["arrows"]] == [("launch", 2_000)]


def test_a_backward_operator_points_at_its_forward_one(tmp_path: Path) -> None:
    number = {"Sequence number": 5}
    events: list[Event] = [
        op("aten::mm", 1, 4, 1, **number, **{"Fwd thread id": 0}),
        op("MmBackward0", 10, 4, 2, **number, **{"Fwd thread id": 1}),
        launch(1, 11, 1, 2),
        kernel("gemm", 13, 3, 1),
    ]
    made = TraceTimeline(
        open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    )
    arrows = made.jump("next", text="MmBackward0")["arrows"]
    assert ("backward", 4_000, 9_000) in [(a["kind"], a["from"][1], a["to"][1]) for a in arrows]
    assert ("launch", 9_000, 12_000) in [(a["kind"], a["from"][1], a["to"][1]) for a in arrows]


def test_search_and_jumping_round(timeline: TraceTimeline) -> None:
    found = timeline.search("GEMM")
    assert found["spans"] == 4 and found["found"][0][1:] == [4, 120_000]
    first = timeline.jump("next", text="gemm")
    second = timeline.jump("next", id=first["id"])
    assert (first["rank"], first["start"], second["start"]) == (0, 5_000, 105_000)
    assert timeline.jump("next", id=second["id"])["id"] == first["id"]
    assert timeline.jump("previous", id=first["id"])["id"] == second["id"]
    with pytest.raises(UsageError):
        timeline.jump("next", text="no such name")


def test_statistics_of_a_span(timeline: TraceTimeline) -> None:
    found = timeline.stats(10_000, 60_000)
    kinds = {(rank, kind): ns for rank, kind, ns in found["kinds"]}
    assert kinds[0, "compute"] == 25_000 and kinds[1, "compute"] == 30_000
    assert kinds[0, "comm"] == 18_000 and kinds[1, "comm"] == 8_000
    names = {timeline.lanes.names[code]: (count, ns) for code, count, ns in found["names"]}
    assert names["ampere_bf16_gemm"] == (2, 55_000)


def test_only_the_lanes_that_are_marked(timeline: TraceTimeline) -> None:
    lanes = timeline.lanes.lanes
    mine = next(k for k, x in enumerate(lanes) if x.track == "stream 7" and x.rank == 1)
    found = timeline.stats(0, 200_000, str(mine))
    assert found["lanes"] == [[mine, 60_000]] and found["spans"] == 2


def test_one_clock(tmp_path: Path) -> None:
    """A rank whose clock is 1 ms ahead runs beside the other once clocks are aligned."""
    for rank, base in ((0, 0), (1, 1_000_000)):
        events: list[Event] = []
        for k in range(4):
            events += [op("aten::mm", 10 + 100 * k, 5), launch(k + 1, 11 + 100 * k)]
            events += [kernel(COMM, 20 + 100 * k, 50, k + 1)]
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 2, base))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    apart, together = TraceTimeline(trace, aligned=False), TraceTimeline(trace)
    assert spans_of(apart, "streams", 1)[0][1] - spans_of(apart, "streams", 0)[0][1] == 1_000_000
    assert spans_of(together, "streams", 1)[0][1] == spans_of(together, "streams", 0)[0][1]


def test_questions_as_text(timeline: TraceTimeline) -> None:
    about = json.loads(gzip.decompress(timeline.answer("about", {})))
    assert about["events"] == len(timeline.lanes.start)
    assert [s[:3] for s in about["steps"] if s[0] == 0] == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
        [0, 1, 1],
    ]
    for question, given in (
        ("view", {"start": "0"}),
        ("view", {"start": "0", "end": "nan", "width": "10"}),
        ("event", {"id": "x"}),
        ("event", {"id": "99999"}),
        ("nonsense", {}),
    ):
        with pytest.raises(UsageError):
            timeline.answer(question, given)


def test_the_page_holds_every_event(timeline: TraceTimeline) -> None:
    text = render_timeline_page(timeline, "two ranks")
    assert "http://" not in text and "https://" not in text
    none = np.full(len(timeline.lanes.start), -1, np.int64)
    facts, _ = _pack_events(Events(timeline.lanes, none, none))
    assert facts["events"] == len(timeline.lanes.start)
    assert [name for name, _ in facts["columns"]] == ["gap", "length", "name", "cause", "match"]


def test_too_large_a_page_leaves_out_short_calls_and_says_so(
    timeline: TraceTimeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = np.full(len(timeline.lanes.start), -1, np.int64)
    events = Events(timeline.lanes, none, none)
    full = len(_pack_events(events)[1])
    monkeypatch.setattr("htk.traces.timeline.page.MOST_BYTES", full - 1)
    text = write_bounded_page(events, timeline.about(), "t", {})
    assert "events left out: calls of the host under" in text
    kept = json.loads(text.partition('id="about">')[2].partition("</script>")[0])
    gpu = int((timeline.lanes.kind < 3).sum())
    assert gpu <= kept["events"] < len(timeline.lanes.start)


def test_the_rows_of_an_answer(timeline: TraceTimeline) -> None:
    result = ask_trace(timeline.trace, "step_times")
    made = RowsTimeline(result.table, "step_times")
    assert len(made.lanes.start) == result.table.num_rows
    assert dict(made.event(id=0)["facts"])["step"] == "0"
    with pytest.raises(UsageError, match="no start and end"):
        RowsTimeline(ask_trace(timeline.trace, "kernel_top").table, "kernel_top")


def test_rows_of_a_query_are_a_track_of_their_rank(timeline: TraceTimeline) -> None:
    origin = timeline.trace.origin_ns
    rows = pa.table(
        {
            "rank": [1, 0, 1],
            "name": ["late", "early", None],
            "start_ns": [origin + t for t in (60_000, 10_000, 90_000)],
            "duration_ns": [5_000, 7_000, 1_000],
        }
    )
    shown = TraceTimeline(timeline.trace, rows=rows)
    tracks = {lane.rank: k for k, lane in enumerate(shown.lanes.lanes) if lane.section == "query"}
    assert sorted(tracks) == [0, 1]
    assert len(shown.lanes.start) == len(timeline.lanes.start) + 3
    found = {
        (lane, shown.lanes.names[name], start, end)
        for lane, name, start, end in zip(
            shown.lanes.lane.tolist(),
            shown.lanes.name.tolist(),
            shown.lanes.start.tolist(),
            shown.lanes.end.tolist(),
            strict=True,
        )
        if lane in tracks.values()
    }
    assert found == {
        (tracks[1], "late", 60_000, 65_000),
        (tracks[0], "early", 10_000, 17_000),
        (tracks[1], "(no name)", 90_000, 91_000),
    }
    span = next(s for s in np.flatnonzero(shown.lanes.lane == tracks[1]).tolist()
                if shown.lanes.start[s] == 60_000)  # fmt: skip
    assert dict(shown.event(id=span)["facts"])["name"] == "late"
    relative = rows.set_column(2, "start_ns", pa.array([-(10**9), -(10**8), -(10**7)]))
    with pytest.raises(UsageError, match="3 of 3 rows lie outside the recording"):
        TraceTimeline(timeline.trace, rows=relative)


def test_a_widget_s_messages(timeline: TraceTimeline) -> None:
    kernel_side = WidgetServer(lambda aligned: timeline)
    head, buffers = kernel_side.answer({"id": 3, "question": "search", "given": {"text": "gemm"}})
    assert head == {"id": 3} and json.loads(buffers[0])["spans"] == 4
    head, buffers = kernel_side.answer({"id": 4, "question": "view", "given": {}})
    assert head["id"] == 4 and "missing" in head["error"] and not buffers


def test_the_widget_itself(timeline: TraceTimeline) -> None:
    pytest.importorskip("anywidget")
    from htk.faces.notebook.session import Session

    trace = timeline.trace
    made = Session(trace.files, trace.selection, trace.unread, trace.failed).timeline()
    assert "export default" in made._esm and "http" not in made._esm.replace("T.http", "")


def test_an_operator_s_kernels_are_those_of_what_it_calls_too(tmp_path: Path) -> None:
    events: list[Event] = [
        op("outer", 1, 20),
        op("inner", 2, 5),
        launch(1, 3),
        kernel("a", 6, 3, 1),
        launch(2, 10),
        kernel("b", 13, 4, 2),
        op("other", 30, 5),
        launch(3, 31),
        kernel("c", 33, 5, 3),
    ]
    made = TraceTimeline(
        open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    )
    outer = made.jump("next", text="outer")
    assert dict(outer["facts"])["launched"] == "2 GPU activities, 7.00 µs"
    assert len(outer["arrows"]) == 2
    assert dict(made.jump("next", text="inner")["facts"])["launched"].startswith("1 GPU")


def test_threads_that_make_steps_and_run_backward_come_first(tmp_path: Path) -> None:
    events: list[Event] = [
        op("worker", 1, 4, 1),
        op("MmBackward0", 2, 4, 2, **{"Sequence number": 5, "Fwd thread id": 1}),
        span("ProfilerStep#0", 1, 20, 3),
        op("aten::mm", 2, 4, 3),
    ]
    made = TraceTimeline(
        open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    )
    tracks = [lane.track for lane in made.lanes.lanes if lane.section == "threads"]
    assert tracks == ["main thread 3", "backward thread 2", "thread 1"]


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    write_ranks(tmp_path)
    target = tmp_path / "page.html"
    done = CliRunner().invoke(
        command, [str(tmp_path), "--no-cache", "--ranks", "1", "-o", str(target)]
    )
    assert done.exit_code == 0, done.output
    assert (
        json.loads(target.read_text().partition('id="about">')[2].partition("</script>")[0])[
            "lanes"
        ][0][0]
        == 1
    )


def test_what_is_lit_is_what_matches(tmp_path: Path) -> None:
    """Two streams of gemm over each other, one of communication half hidden, on three ranks."""
    for rank in range(3):
        events: list[Event] = [step(0, 0, 100)]
        for number, (name, start, length, stream) in enumerate(
            [("gemm_a", 10, 20, 7), ("gemm_b", 20, 20 + rank, 9), (COMM, 35, 30, 20),
             ("other", 80, 5, 7)], start=1
        ):  # fmt: skip
            events += [launch(number, start - 1), kernel(name, start, length, number, stream)]
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 3))
    timeline = TraceTimeline(open_trace(tmp_path, OpenOptions(cache=False)), aligned=False)
    strips = [k for k, lane in enumerate(timeline.lanes.lanes) if lane.section == "busy"]
    for rank, strip in enumerate(strips):
        view = unpacked(timeline.view(0, 200_000, 200, str(strip), text="gemm"))
        assert view["stack"].reshape(3, 200).sum(axis=1).tolist() == pytest.approx(
            [255 * n for n in (30 + rank + 5, 30 - 5 - rank, 0)], abs=2
        ), "compute; communication that no compute overlaps"
        lit = view["lit_stack"].reshape(3, 200)
        assert lit.sum(axis=1).tolist() == pytest.approx([255 * (30 + rank), 0, 0], abs=2)
        both = unpacked(timeline.view(0, 200_000, 200, str(strip), text=COMM[:8]))
        assert both["lit_stack"].reshape(3, 200).sum(axis=1).tolist()[1] == pytest.approx(
            255 * 30, abs=2
        )


def unpacked(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of bytes of a view."""
    (size,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + size])
    body = data[4 + size :]
    return {
        name: np.frombuffer(body[offset : offset + length], np.uint8)
        for name, offset, length in head["arrays"]
    }
