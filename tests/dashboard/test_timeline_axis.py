"""The timeline's axis in a real browser: hours between recordings cut out, records of a dump."""

from collections.abc import Iterator
from typing import Any

import pytest

from htk.dashboard.runs import Runs
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.conftest import ROOT
from tests.dashboard.conftest import go, serving, settled, until, visiting
from tests.kineto_file import kernel, of_rank, step, write

DRAWN = "() => !!window.htkHandle && window.htkHandle.count() > 0 && window.htkHandle.idle()"
HANG = ROOT / "sample_traces/flight_recorder/hang_missing_rank_v2.10"
LATER_US = 7_200e6  # two hours


@pytest.fixture(scope="module")
def two_hours_apart(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Two recordings of 100 and 200 µs of a rank: gemm at 10 in the first, at 30 in the other."""
    folder = tmp_path_factory.mktemp("apart") / "run"
    folder.mkdir()
    for cycle, (length, begin) in enumerate(((100, 10), (200, 30))):
        low = cycle * LATER_US
        events = [step(cycle, low, length), kernel("gemm", low + begin, 40 + 10 * cycle)]
        write(folder / f"c{cycle}.json", *events, **of_rank(0))
    return open_trace(folder, OpenOptions(cache=False))


@pytest.fixture(scope="module")
def visitor(browser: Any, two_hours_apart: Trace) -> Iterator[tuple[Any, list[str]]]:
    runs = Runs([HANG.parent], trace=two_hours_apart)
    with serving(runs) as address:
        yield from visiting(browser, address)


def open_timeline(page: Any, path: str) -> None:
    """Go to a timeline, and wait for it, not for the one before it."""
    go(page, "/sql")
    page.evaluate("() => { delete window.htkHandle; }")
    go(page, path)
    until(page, DRAWN)


def drawn_spans(page: Any, name: str) -> list[tuple[float, float]]:
    """Return the times at which spans of a name are drawn, read back from their pixels' places."""
    spans: list[tuple[float, float]] = page.evaluate(
        """name => {
          const { state } = window.htkHandle, { shown, about } = state, T = window.htkTimeline;
          const time = (share) =>
            T.timeAt(about, shown.start + share * (shown.end - shown.start));
          const own = [...shown.name.keys()].filter(
            k => about.names[shown.name[k]] === name
              && about.lanes[shown.lanes[shown.lane[k]]][1] !== 'busy');
          return own.map(k => [time(shown.x[k]), time(shown.x[k] + shown.w[k])]);
        }""",
        name,
    )
    return sorted(tuple(span) for span in spans)  # type: ignore[misc]


def test_hours_between_recordings_are_cut_out(page: Any, two_hours_apart: Trace) -> None:
    open_timeline(page, "/timeline")
    kernels = two_hours_apart.tables["kernels"].to_pylist()
    recorded = [tuple(k[c] - two_hours_apart.origin_ns for c in ("start_ns", "end_ns"))
                for k in kernels]  # fmt: skip
    assert recorded == [(10_000, 50_000), (7_200_000_030_000, 7_200_000_080_000)]
    drawn = drawn_spans(page, "gemm")
    assert len(drawn) == 2
    for shown, truth in zip(drawn, recorded, strict=True):
        assert shown == pytest.approx(truth, abs=2), "float32 of 309 µs"
    view = page.evaluate("window.htkHandle.view()")
    assert view["end"] - view["start"] == pytest.approx(309_000, abs=2), "and 9 of the break"
    assert page.evaluate(
        """() => window.htkTimeline.breaks(window.htkHandle.state.about, window.htkHandle.view())"""
    ) == [{"from": 100_000, "upto": 109_000, "time": 7_199_999_900_000}]


def test_what_is_said_of_the_second_recording_is_its_time(page: Any) -> None:
    """A marked range, the address and the panel hold times of the recording, not of the axis."""
    open_timeline(page, "/timeline")
    page.evaluate("() => window.htkHandle.mark(50000, 159000)")  # to 50 µs of the second
    until(page, "() => document.querySelector('.panel table')")
    assert "2.000 h marked" in page.inner_text(".panel h3")
    until(page, "() => location.hash.includes('range=50000..7200000050000')")
    page.evaluate("() => { delete window.htkHandle; }")
    page.click("text=Look at this time alone")
    until(page, "() => location.search.includes('to=7200000.050000ms')")
    until(page, DRAWN)
    chosen = page.evaluate("() => window.htkHandle.state.filter")
    assert chosen == {"start": 50_000, "end": 159_000}
    page.click(".bar >> text=Recording 2 of 2")
    view = page.evaluate("window.htkHandle.view()")
    assert view == {"start": 101_001, "end": 309_001}, "and 2 % on either side, within the axis"


def test_busy_over_time_leaves_the_hours_out_too(page: Any) -> None:
    """Each recording has an axis of its own; a range brushed on the second is of its time."""
    go(page, "/idle")
    settled(page)
    where = "main figure[aria-label='Busy over time'] .js-plotly-plot"
    until(page, "where => !!document.querySelector(where)?.data?.length", where)
    drawn = page.evaluate(
        """where => document.querySelector(where).data.filter(d => d.name === 'compute')
          .map(d => [d.xaxis, [...d.x], [...d.y]])""",
        where,
    )
    hours = 7_200_000.0  # in ms
    assert [axis for axis, _, _ in drawn] == ["x", "x2"]
    for (_, x, y), begin, (first, last) in zip(
        drawn, (0.0, hours), ((0.01, 0.05), (0.03, 0.08)), strict=True
    ):
        slices = len(x)
        width = (x[-1] - x[0]) / (slices - 1)
        assert width * slices == pytest.approx(0.1 if not begin else 0.2, rel=1e-3)
        assert sum(y) / 100 * width == pytest.approx(last - first, rel=0.01), "as long as it ran"
        for time, busy in zip(x, y, strict=True):
            inside = first + width < time - begin < last - width
            outside = time - begin < first - width or time - begin > last + width
            assert not inside or busy == 100
            assert not outside or busy == 0
    area = page.locator(f"{where} .draglayer .x2y .nsewdrag")
    box = area.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.move(box["x"] + box["width"] * 0.75, y)
    page.mouse.up()
    page.wait_for_selector(".pill.on")
    asked = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    low, high = float(asked["from"][:-2]) - hours, float(asked["to"][:-2]) - hours
    assert (low, high) == pytest.approx((0.05, 0.15), abs=0.005)


def test_records_of_a_dump_are_on_the_timeline(page: Any) -> None:
    """Three ranks wait in an all-reduce that the fourth never entered."""
    open_timeline(page, f"/timeline?run={HANG.parent.name}/{HANG.name}")
    trace = open_trace(HANG, OpenOptions(cache=False))
    calls = trace.tables["collectives"].to_pylist()
    for kind in ("broadcast", "all_gather", "all_reduce"):
        truth = sorted((c["start_ns"] - trace.origin_ns, c["end_ns"] - trace.origin_ns)
                       for c in calls if c["type"] == kind and c["end_ns"])  # fmt: skip
        drawn = drawn_spans(page, kind)
        assert len(drawn) == len(truth) > 0
        for shown, recorded in zip(drawn, truth, strict=True):
            assert shown == pytest.approx(recorded, abs=2)
    begun = sorted(c["start_ns"] - trace.origin_ns for c in calls if not c["end_ns"])
    waiting = drawn_spans(page, "all_reduce, not ended")
    assert [start for start, _ in waiting] == pytest.approx(begun, abs=2) and len(begun) == 3
    last = max(c["end_ns"] or c["start_ns"] for c in calls) - trace.origin_ns
    assert all(end > last for _, end in waiting), "beyond everything that is known"
    page.evaluate("() => window.htkHandle.jump('longest', 'not ended')")
    until(page, "() => !!window.htkHandle.selected()")
    assert "it had not ended" in page.inner_text(".panel")
    assert "communication that had not ended" in page.inner_text(".legend")
