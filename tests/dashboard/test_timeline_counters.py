"""Counters on the timeline in a real browser: what is drawn against the tables it is made of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.dashboard.runs import Runs
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.page import render_timeline_page as as_page
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.conftest import ROOT, new_tab
from tests.dashboard.conftest import go, serving, until, visiting, watch

DRAWN = "() => !!window.htkHandle && window.htkHandle.count() > 0 && window.htkHandle.idle()"
GIB = 2**30
CLOCK_NS = 100  # by which clocks are aligned at most, and times of cells are rounded


@pytest.fixture(scope="module")
def job() -> Trace:
    """Two of the sample's ranks, the straggler among them: of more, counters are folded."""
    whole = open_trace(ROOT / "sample_traces/simulated/llama2-7b", OpenOptions(cache=False))
    return whole.sel(ranks=[3, 4])


@pytest.fixture(scope="module")
def visitor(browser: Any, job: Trace) -> Iterator[tuple[Any, list[str]]]:
    with serving(Runs([], trace=job)) as address:
        yield from visiting(browser, address)


def counter_rows(page: Any) -> dict[tuple[int, str], dict[str, Any]]:
    """Return the rows of counters by rank and name, each with its cells and how high its ink is."""
    rows = page.evaluate(
        """async () => {
          const { state } = window.htkHandle, T = window.htkTimeline;
          const canvas = document.querySelector('canvas.main'), box = canvas.parentElement;
          const frame = () => new Promise(r => requestAnimationFrame(r));
          const found = [];
          for (const row of state.rows.list.filter(r => r.counter)) {
            box.scrollTop = Math.max(0, row.y - 60);
            const still = () => window.htkHandle.idle() && state.scroll === box.scrollTop
              && state.shown.lanes.includes(row.lane);
            for (let k = 0; k < 400 && !still(); k++) await frame();
            state.pointer = state.hover = null;
            window.htkHandle.redraw();
            await frame(); await frame();
            const { shown, view } = state, { cells } = shown.head;
            const at = shown.head.counters.findIndex(line => shown.lanes[line] === row.lane);
            const of = values => [...values.slice(at * cells, (at + 1) * cells)];
            const ratio = canvas.size.ratio, top = T.screenY(state, row.y) * ratio;
            const wide = canvas.width - T.GUTTER * ratio;
            const { data } = canvas.getContext('2d').getImageData(
              T.GUTTER * ratio, top, wide, row.h * ratio);
            const [r, g, b] = T.rgb(state.colours.accent);
            let peak = row.h * ratio; // the highest row of pixels with the line's colour
            for (let i = 0; i < data.length; i += 4) {
              const off = Math.abs(data[i] - r) + Math.abs(data[i + 1] - g);
              if (off + Math.abs(data[i + 2] - b) < 60) { peak = Math.floor(i / 4 / wide); break; }
            }
            found.push({ rank: row.rank, name: row.counter.name, ...row.counter, height: row.h,
              peak: 1 - peak / (row.h * ratio), start: shown.start, end: shown.end, view,
              lows: of(shown.counter_low), highs: of(shown.counter_high) });
          }
          return found;
        }"""
    )
    return {(row["rank"], row["name"]): row for row in rows}


def test_counters_are_what_the_tables_say(page: Any, job: Trace) -> None:
    """Peaks of memory, the longest queue of each stream, and each moment's value of memory."""
    go(page, "/timeline?ranks=3..4")
    until(page, DRAWN)
    rows = counter_rows(page)
    lengths = {
        (r["rank"], r["stream"]): r["length_max"]
        for r in ask_trace(job, "queue_length").to_pylist() if r["stream"] is not None
    }  # fmt: skip
    memory = job.tables["memory"].to_pylist()
    assert len(lengths) >= 6
    for (rank, stream), longest in lengths.items():
        row = rows[rank, f"queue length, stream {stream}"]
        assert max(v for v in row["highs"] if v == v) == longest
    for rank in job.ranks:
        row = rows[rank, "memory allocated"]
        raw = sorted((r["time_ns"] - job.origin_ns, r["event"], r["allocated_bytes"])
                     for r in memory if r["rank"] == rank)  # fmt: skip
        cell = (row["end"] - row["start"]) / len(row["highs"])
        compared = 0
        for k, (low, high) in enumerate(zip(row["lows"], row["highs"], strict=True)):
            begin, end = row["start"] + k * cell, row["start"] + (k + 1) * cell
            before = [v for t, _, v in raw if t < begin - CLOCK_NS][-1:]
            near = [v for t, _, v in raw if begin - CLOCK_NS <= t <= end + CLOCK_NS]
            if before and not near and high == high:
                assert low == high == pytest.approx(before[0], rel=1e-6)
                compared += 1
            elif near and high == high:
                assert high <= max(near + before) * (1 + 1e-6)
        assert compared > 300
        highest = max(v for _, _, v in raw)
        assert max(v for v in row["highs"] if v == v) == pytest.approx(highest, rel=1e-6)
        top = max(r["allocated_bytes"] for r in memory)
        assert row["high"] == top, "one scale for all ranks"
        # The line's highest pixel is as high in the row as its value is on that scale.
        assert row["peak"] == pytest.approx((2 + 29 * highest / top) / 34, abs=0.06)


def test_the_pointer_tells_the_value_and_the_range_of_a_pixel(page: Any, job: Trace) -> None:
    go(page, "/timeline?ranks=3..4")
    until(page, DRAWN)
    counter_rows(page)
    place = page.evaluate(
        """() => {
          const { state } = window.htkHandle, T = window.htkTimeline;
          const canvas = document.querySelector('canvas.main');
          canvas.scrollIntoView({ block: 'center' });
          const row = state.rows.list.find(r => r.rank === 4 && r.counter
            && r.counter.name === 'memory allocated');
          canvas.parentElement.scrollTop = Math.max(0, row.y - 60);
          return { y: row.y, lane: row.lane };
        }"""
    )
    until(
        page,
        """({ lane }) => {
          const { state } = window.htkHandle;
          return window.htkHandle.idle() && state.shown.lanes.includes(lane)
            && state.scroll === document.querySelector('.scroller').scrollTop;
        }""",
        place,
    )
    box = page.locator("canvas.main").bounding_box()
    top = page.evaluate("y => window.htkTimeline.screenY(window.htkHandle.state, y)", place["y"])
    page.mouse.move(box["x"] + 216 + 0.4 * (box["width"] - 216), box["y"] + top + 17)
    until(page, "() => !document.querySelector('.tip').hidden")
    said = page.inner_text(".tip")
    time = page.evaluate(
        """() => { const { view, pointer } = window.htkHandle.state, T = window.htkTimeline;
          const wide = document.querySelector('canvas.main').size.width - T.GUTTER;
          return view.start + (pointer.x - T.GUTTER) / wide * (view.end - view.start); }"""
    )
    value = [r["allocated_bytes"] for r in sorted(
        (r for r in job.tables["memory"].to_pylist() if r["rank"] == 4),
        key=lambda r: (r["time_ns"], r["event"]),
    ) if r["time_ns"] - job.origin_ns <= time][-1]  # fmt: skip
    assert f"{value / GIB:.3g} GiB" in said and "memory allocated" in said and "rank 4" in said


def test_a_page_from_disk_draws_the_same(browser: Any, job: Trace, tmp_path: Path) -> None:
    """The engine in the page and the server agree on each cell of each counter."""
    timeline = TraceTimeline(job)
    target = tmp_path / "page.html"
    target.write_text(as_page(timeline, "two ranks"))
    page = new_tab(browser, viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    watch(page, wrong)
    page.on("request", lambda r: r.url.startswith(target.as_uri()) and wrong.remove(r.url))
    page.goto(target.as_uri())
    until(page, DRAWN)
    compared = 0
    for row in counter_rows(page).values():
        edges = [row["start"] + (row["end"] - row["start"]) * k / len(row["highs"])
                 for k in range(len(row["highs"]) + 1)]  # fmt: skip
        low, high = timeline.counters[row["lane"]].bounds(np.floor(edges).astype(np.int64))
        assert row["lows"] == pytest.approx(low.tolist(), rel=1e-6, nan_ok=True)
        assert row["highs"] == pytest.approx(high.tolist(), rel=1e-6, nan_ok=True)
        compared += 1
    assert compared == len(timeline.counters) >= 12
    page.close()
    assert wrong == []
