"""The timeline in a real browser: served, from disk, in a notebook's cell."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from htk.faces.notebook.widget import WidgetServer
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.page import COMPONENT, read_script, read_style
from htk.traces.timeline.page import render_timeline_page as as_page
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import new_tab
from tests.dashboard.conftest import until, watch
from tests.two_ranks import COMM, write_ranks

DRAWN = "() => !!window.htkHandle && window.htkHandle.count() > 0 && window.htkHandle.idle()"


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> TraceTimeline:
    """Two ranks, two steps, 10 µs apart: tests/two_ranks.py says when what runs."""
    return TraceTimeline(
        open_trace(write_ranks(tmp_path_factory.mktemp("two")), OpenOptions(cache=False))
    )


@pytest.fixture(scope="module")
def file(timeline: TraceTimeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "page.html"
    target.write_text(as_page(timeline, "two </script> ranks"))
    return target


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Any]:
    """The page from disk; it may ask for nothing but itself."""
    found = new_tab(browser, viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    watch(found, wrong)
    found.on("request", lambda r: r.url.startswith(file.as_uri()) and wrong.remove(r.url))
    found.goto(file.as_uri())
    until(found, DRAWN)
    yield found
    found.close()
    assert wrong == []


def view(page: Any) -> dict[str, float]:
    found: dict[str, float] = page.evaluate("() => window.htkHandle.view()")
    return found


def width(page: Any) -> float:
    return view(page)["end"] - view(page)["start"]


def point(page: Any, time: float, lane: int) -> tuple[float, float]:
    """Where on the screen a lane is at a time; the lane is scrolled to."""
    page.evaluate(
        """lane => {
          const s = window.htkHandle.state, place = document.querySelector('canvas.main');
          place.scrollIntoView({block: 'nearest'});
          place.parentElement.scrollTop = Math.max(0, s.rows.at[lane] - 100);
        }""",
        lane,
    )
    scrolled = "document.querySelector('canvas.main').parentElement.scrollTop"
    until(page, f"() => window.htkHandle.state.scroll === {scrolled} && ({DRAWN})()")
    return tuple(  # type: ignore[return-value]
        page.evaluate(
            """([time, lane]) => {
              const s = window.htkHandle.state, T = window.htkTimeline;
              const place = document.querySelector('canvas.main');
              const box = place.getBoundingClientRect();
              const share = (time - s.view.start) / (s.view.end - s.view.start);
              const y = s.rows.at[lane] - place.parentElement.scrollTop + T.AXIS + 8;
              return [box.x + T.GUTTER + share * (box.width - T.GUTTER), box.y + y];
            }""",
            [time, lane],
        )
    )


def lane(timeline: TraceTimeline, rank: int, section: str, track: str) -> int:
    lanes = timeline.lanes.lanes
    return next(
        k
        for k, x in enumerate(lanes)
        if (x.rank, x.section) == (rank, section) and track in x.track
    )


def panel(page: Any) -> str:
    return str(page.inner_text(".htk-timeline .panel"))


def test_keys_zoom_and_pan(opened: Any) -> None:
    whole = width(opened)
    opened.focus("canvas.main")
    opened.keyboard.press("w")
    assert width(opened) < whole
    before = view(opened)
    opened.keyboard.press("d")
    assert view(opened)["start"] > before["start"]
    opened.keyboard.press("a")
    assert view(opened)["start"] == pytest.approx(before["start"], abs=1)
    opened.keyboard.press("0")
    assert width(opened) == whole
    opened.keyboard.press("?")
    assert "critical path" in panel(opened)


def test_keys_begin_with_an_event_of_the_recording_and_go_on_from_it(opened: Any) -> None:
    opened.keyboard.press("Escape")
    opened.focus("canvas.main")
    opened.keyboard.press(".")
    until(opened, "() => window.htkHandle.selected()")
    first = opened.evaluate("() => window.htkHandle.selected()")
    assert opened.evaluate("k => window.htkHandle.state.about.lanes[k][1]", first["lane"]) not in (
        "busy",
        "phases",
    )
    name = panel(opened).splitlines()[0]
    for key in (".", ","):
        opened.keyboard.press(key)
        opened.wait_for_timeout(200)
        assert panel(opened).splitlines()[0] == name, "of the same name, be it the only one"
    opened.keyboard.press("Escape")


def test_the_wheel_zooms_where_the_pointer_is_and_dragging_moves(
    opened: Any, timeline: TraceTimeline
) -> None:
    gemm = lane(timeline, 0, "streams", "stream 7")
    x, y = point(opened, 100_000, gemm)
    opened.mouse.move(x, y)
    opened.keyboard.down("Control")
    opened.mouse.wheel(0, -300)
    opened.keyboard.up("Control")
    until(opened, "() => window.htkHandle.view().end - window.htkHandle.view().start < 150000")
    now = view(opened)
    assert now["start"] < 100_000 < now["end"]
    opened.mouse.move(x, y)
    opened.mouse.down()
    opened.mouse.move(x - 120, y, steps=3)
    opened.mouse.up()
    assert view(opened)["start"] > now["start"]


def test_a_click_tells_all_and_arrows_lead_on(opened: Any, timeline: TraceTimeline) -> None:
    opened.evaluate("() => window.htkHandle.go(0, 100000)")
    until(opened, DRAWN)
    opened.mouse.click(*point(opened, 20_000, lane(timeline, 0, "streams", "stream 7")))
    until(opened, "() => !!window.htkHandle.selected()")
    assert "ampere_bf16_gemm" in panel(opened) and "30.00 µs" in panel(opened)
    arrows = opened.evaluate("() => window.htkHandle.selected().arrows")
    assert [(a["kind"], a["from"][1], a["to"][1]) for a in arrows] == [("launch", 3000, 5000)]
    opened.keyboard.press("[")
    until(opened, "() => window.htkHandle.selected().name === 'cudaLaunchKernel'")
    opened.keyboard.press("Escape")
    assert opened.evaluate("() => window.htkHandle.selected()") is None


def test_a_collective_is_joined_across_ranks(opened: Any, timeline: TraceTimeline) -> None:
    opened.evaluate("() => window.htkHandle.go(0, 100000)")
    until(opened, DRAWN)
    opened.mouse.click(*point(opened, 60_000, lane(timeline, 0, "streams", "stream 20")))
    until(opened, "() => !!window.htkHandle.selected()")
    arrows = opened.evaluate("() => window.htkHandle.selected().arrows")
    across = [a for a in arrows if a["kind"] == "collective"]
    # Rank 1 began last, at 52 µs: the others waited for it.
    assert [(a["from"][1], a["to"][1]) for a in across] == [(52_000, 42_000)]


def test_a_marked_span_gives_its_statistics(opened: Any, timeline: TraceTimeline) -> None:
    opened.evaluate("() => window.htkHandle.go(0, 100000)")
    until(opened, DRAWN)
    x0, y0 = point(opened, 0, lane(timeline, 0, "streams", "stream 7"))
    x1, _ = point(opened, 40_000, lane(timeline, 0, "streams", "stream 7"))
    opened.keyboard.down("Shift")
    opened.mouse.move(x0, y0)
    opened.mouse.down()
    opened.mouse.move(x1, y0, steps=4)
    opened.mouse.up()
    opened.keyboard.up("Shift")
    until(opened, "() => document.querySelector('.htk-timeline .panel table') !== null")
    assert "At least one runs" in panel(opened) and "ampere_bf16_gemm" in panel(opened)
    marked = opened.evaluate("() => window.htkHandle.range()")
    assert abs(marked["end"] - 40_000) < 500


def test_search_and_jumps(opened: Any) -> None:
    opened.keyboard.press("Escape")
    opened.focus("canvas.main")
    opened.keyboard.press("/")
    opened.keyboard.type("GEMM")
    until(opened, "() => document.querySelector('.found').innerText.startsWith('4 events')")
    starts = []
    for _ in range(5):
        opened.keyboard.press("Enter")
        known = starts[-1] if starts else None
        until(
            opened,
            "k => window.htkHandle.selected() && window.htkHandle.selected().id !== k",
            known,
        )
        starts.append(opened.evaluate("() => window.htkHandle.selected().id"))
    assert len(set(starts[:4])) == 4 and starts[4] == starts[0], "round and round"
    opened.fill(".htk-timeline input", "no such thing")
    until(opened, "() => document.querySelector('.found').innerText.startsWith('nothing')")


def test_a_page_from_disk_lights_what_matches(opened: Any) -> None:
    """Each rank runs the product for 30 µs in either step, and the all-reduce for 40 or 30."""
    for text, expected in (("gemm", {"compute": 60_000}), ("allreduce", {"comm": 80_000})):
        opened.evaluate("text => window.htkHandle.search(text)", text)
        key = json.dumps({"text": text}, separators=(",", ":"))
        until(opened, "key => window.htkHandle.state.shown?.litKey === key", key)
        lit = opened.evaluate(
            """() => {
              const { shown } = window.htkHandle.state, T = window.htkTimeline;
              const cell = (shown.end - shown.start) / shown.head.cells;
              return Object.fromEntries(T.STRIPES.map((kind, k) => [kind,
                shown.lit_stack.slice(k * shown.head.cells, (k + 1) * shown.head.cells)
                  .reduce((a, b) => a + b, 0) / 255 * cell]));
            }"""
        )
        wanted = {"compute": 0, "comm": 0, "memory": 0, **expected}
        assert lit == pytest.approx(wanted, abs=600), "of rank 0"


def test_the_later_of_two_questions_is_answered(opened: Any) -> None:
    """Whatever takes longer: a click, what is marked after it, and letting go of all."""
    opened.evaluate(
        """async () => {
          const handle = window.htkHandle, { source } = handle.state, { ask } = source;
          const late = [];
          const slowly = async (act) => {
            source.ask = async (...given) => {
              const found = await ask(...given);
              await new Promise((go) => late.push(go));
              return found;
            };
            const acting = act();
            source.ask = ask;
            return async () => {
              while (!late.length) await new Promise((go) => setTimeout(go));
              late.pop()();
              await acting;
            };
          };
          window.said = [];
          const say = () => {
            const [one, range] = [handle.selected(), handle.range()];
            window.said.push([one && one.id, range && range.end]);
          };
          const escape = new KeyboardEvent('keydown', { key: 'Escape' });
          let arrive = await slowly(() => handle.select(0));
          await handle.select(1);
          await arrive();
          say();
          arrive = await slowly(() => handle.select(0));
          await handle.mark(0, 40000);
          await arrive();
          say();
          arrive = await slowly(() => handle.select(0));
          document.querySelector('canvas.main').dispatchEvent(escape);
          await arrive();
          say();
        }"""
    )
    assert opened.evaluate("() => window.said") == [[1, None], [None, 40_000], [None, None]]


def test_what_is_shown_is_in_the_address(browser: Any, file: Path, opened: Any) -> None:
    opened.evaluate("() => window.htkHandle.go(40000, 90000)")
    opened.evaluate("() => window.htkHandle.select(0)")
    until(
        opened, "() => location.hash.includes('at=40000..90000') && location.hash.includes('event')"
    )
    again = new_tab(browser)
    again.goto(opened.url)
    until(again, DRAWN)
    until(again, "() => !!window.htkHandle.selected()")
    assert view(again) == {"start": 40_000, "end": 90_000}
    again.close()


def test_ranks_fold(opened: Any) -> None:
    rows = "() => window.htkHandle.rows().length"
    before = opened.evaluate(rows)
    box = opened.locator("canvas.main").bounding_box()
    opened.mouse.click(box["x"] + 60, box["y"] + 24 + 12)
    assert opened.evaluate(rows) < before


def test_the_page_of_the_dashboard(page: Any, address: str) -> None:
    page.goto(f"{address}/timeline?ranks=1&from=20us&to=40us")
    until(page, DRAWN)
    about = page.evaluate("() => window.htkHandle.state.about")
    assert {x[0] for x in about["lanes"]} == {1}, "only the rank that is chosen"
    assert view(page)["start"] == pytest.approx(19_400)
    page.evaluate(
        "() => { const s = window.htkHandle.state, gemm = s.about.names.indexOf('gemm');"
        " window.htkHandle.select(s.shown.id[s.shown.name.indexOf(gemm)]); }"
    )
    until(page, "() => !!window.htkHandle.selected()")
    assert "its kernel" in panel(page)
    until(page, "() => location.hash.includes('event=')")
    assert page.evaluate("() => location.search") == "?ranks=1&from=20us&to=40us"
    page.evaluate("() => window.htkHandle.mark(22000, 30000)")
    page.evaluate("() => { delete window.htkHandle; }")  # another takes its place
    page.click("text=Look at this time alone")
    until(page, "() => location.search.includes('from=0.022000ms')")
    until(page, DRAWN)
    assert "range" not in page.evaluate("() => location.hash"), "what was marked is what is shown"
    assert view(page)["start"] == pytest.approx(22_000 - 0.03 * 8000)


def test_one_clock_for_all_ranks_and_the_critical_path(page: Any, address: str) -> None:
    page.goto(f"{address}/timeline")
    until(page, DRAWN)
    assert page.evaluate("() => window.htkHandle.state.shown.aligned") is True
    page.click(".bar >> text=Align clocks")
    until(page, "() => window.htkHandle.state.shown.aligned === false")
    until(page, "() => location.hash.includes('aligned=0')")
    page.click(".bar >> text=Align clocks")
    until(page, "() => window.htkHandle.state.shown.aligned === true")
    until(page, "() => !location.hash.includes('aligned')")
    page.click(".bar >> text=Critical path")
    until(page, "() => document.querySelector('.panel').innerText.includes('ritical path of')")


def test_the_cell_of_a_notebook(browser: Any, timeline: TraceTimeline) -> None:
    """The widget's module with a kernel at the other end; Jupyter itself is not needed."""
    kernel = WidgetServer(lambda aligned: timeline)

    def answer(text: str) -> list[Any]:
        head, buffers = kernel.answer(json.loads(text))
        return [head, [base64.b64encode(b).decode() for b in buffers]]

    page = new_tab(browser)
    wrong: list[str] = []
    watch(page, wrong)
    page.expose_function("kernel", answer)
    page.set_content(f"<style>{read_style()}</style><div id='cell'></div>")
    page.add_script_tag(content=read_script(*COMPONENT, "widget"))
    page.evaluate(
        """() => {
          let hear = null;
          const bytes = (text) =>
            new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
          const model = {
            on: (_, act) => { hear = act; },
            send: async (asked) => {
              const [head, buffers] = await window.kernel(JSON.stringify(asked));
              hear(head, buffers.map(bytes));
            },
          };
          const el = document.getElementById('cell');
          window.htkTimeline.widget({ model, el });
        }"""
    )
    until(page, "() => (document.getElementById('cell').htkHandle?.count() ?? 0) > 0")
    page.evaluate("() => document.getElementById('cell').htkHandle.search('gemm')")
    until(page, "() => document.querySelector('.found').innerText.startsWith('4 events')")
    page.close()
    assert wrong == []
    assert COMM in timeline.lanes.names


def tops(page: Any) -> dict[str, float]:
    """Where the first row of each track is drawn, by its key."""
    found: dict[str, float] = page.evaluate(
        """() => {
          const { state } = window.htkHandle, T = window.htkTimeline;
          const first = state.rows.list.filter(row => !row.head && !row.depth);
          return Object.fromEntries(first.map(row => [row.key, T.screenY(state, row.y)]));
        }"""
    )
    return found


def in_margin(page: Any, key: str, x: float) -> tuple[float, float]:
    """Return where on the screen a track's name is, so far from the left."""
    box = page.locator("canvas.main").bounding_box()
    return box["x"] + x, box["y"] + tops(page)[key] + 8


def test_pinned_tracks_stay_on_top_in_the_order_they_are_dragged_to(opened: Any) -> None:
    first, second = "1|streams|stream 7", "0|streams|stream 20"
    low = "() => { window.htkHandle.state.options.height = 150; window.htkHandle.arrange(); }"
    opened.evaluate(low)
    for key in (first, second):
        opened.evaluate(
            """key => {
              const { state } = window.htkHandle, row = state.rows.list.find(r => r.key === key);
              const top = row.pinned ? 0 : row.y - state.rows.pinned;
              document.querySelector('.scroller').scrollTop = top;
            }""",
            key,
        )
        scrolled = "document.querySelector('.scroller').scrollTop"
        until(opened, f"() => window.htkHandle.state.scroll === {scrolled}")
        opened.mouse.click(*in_margin(opened, key, 206))
        until(opened, "k => window.htkHandle.state.pinned.includes(k)", key)
    assert opened.evaluate("() => window.htkHandle.rows().slice(0, 2).map(r => r.label)") == [
        "rank 1 · stream 7", "rank 0 · stream 20",
    ]  # fmt: skip
    pinned = {key: tops(opened)[key] for key in (first, second)}
    assert pinned == {first: 24, second: 41}, "below the axis, a row each"
    opened.evaluate("() => { document.querySelector('.scroller').scrollTop = 40; }")
    until(opened, "() => window.htkHandle.state.scroll > 0")
    assert {key: tops(opened)[key] for key in pinned} == pinned, "they do not scroll"
    opened.mouse.move(*in_margin(opened, second, 60))
    opened.mouse.down()
    opened.mouse.move(*in_margin(opened, first, 60), steps=3)
    opened.mouse.move(in_margin(opened, first, 60)[0], in_margin(opened, first, 60)[1] - 6)
    opened.mouse.up()
    assert opened.evaluate("() => window.htkHandle.state.pinned") == [second, first]


def test_tracks_are_filtered_and_moved_and_the_link_holds_it(browser: Any, opened: Any) -> None:
    opened.fill(".htk-timeline input.filter", "rank 1 stream 7")
    until(opened, "() => window.htkHandle.state.filterText === 'rank 1 stream 7'")
    shown = opened.evaluate("() => window.htkHandle.rows().filter(r => !r.head).map(r => r.key)")
    assert shown == ["1|streams|stream 7", "1|gpu ranges|ranges on stream 7"][: len(shown)]
    assert opened.evaluate("() => window.htkHandle.rows().filter(r => r.head).length") == 1
    opened.press(".htk-timeline input.filter", "Escape")
    until(opened, "() => window.htkHandle.state.filterText === ''")
    before = [key for key in tops(opened) if key.startswith("1|")]
    opened.click(".bar >> text=Tracks")
    last = before[-1].rpartition("|")[2]
    opened.click(f'[aria-label="move up: rank 1 · {last}"]')
    after = [key for key in tops(opened) if key.startswith("1|")]
    assert after == [*before[:-2], before[-1], before[-2]]
    opened.evaluate("() => window.htkHandle.pin('0|streams|stream 20')")
    until(opened, "() => location.hash.includes('order=') && location.hash.includes('pins=')")
    again = new_tab(browser)
    again.goto(opened.url)
    until(again, DRAWN)
    assert tops(again) == tops(opened)
    again.close()


def test_notes_travel_in_the_link(browser: Any, opened: Any) -> None:
    opened.evaluate("() => window.htkHandle.go(0, 100000)")
    opened.evaluate("() => window.htkHandle.mark(20000, 30000)")
    opened.focus("canvas.main")
    opened.keyboard.press("n")
    text = "slow, <b>why</b>? 100 % & more"
    opened.fill(".note input", text)
    opened.keyboard.press("Enter")
    until(opened, "() => location.hash.includes('notes=')")
    again = new_tab(browser)
    again.goto(opened.url)
    until(again, DRAWN)
    note = {"start": 20_000, "end": 30_000, "text": text}
    assert again.evaluate("() => window.htkHandle.state.notes") == [note]
    again.click(".bar >> text=Notes (1)")
    assert text in panel(again)
    again.click(".panel >> text=Delete")
    assert again.evaluate("() => window.htkHandle.state.notes") == []
    until(again, "() => !location.hash.includes('notes=')")
    again.close()


def test_matches_stand_on_the_axis_though_their_tracks_are_folded_away(opened: Any) -> None:
    opened.fill(".htk-timeline input.filter", "threads")
    until(opened, "() => window.htkHandle.state.filterText === 'threads'")
    opened.evaluate("() => window.htkHandle.search('gemm')")
    until(opened, "() => !!window.htkHandle.state.shown?.head.hits")
    found = opened.evaluate(
        """() => {
          const { shown } = window.htkHandle.state;
          const cell = (shown.end - shown.start) / shown.head.cells;
          return shown.head.hits.map(run => run.map(x => shown.start + x * cell));
        }"""
    )
    # Products of rank 0 from 5 to 35 µs, of rank 1 from 15 to 45; the next step is 100 µs later.
    assert len(found) == 2
    cell = width(opened) / 400
    assert found[0] == pytest.approx([5_000, 45_000], abs=cell)
