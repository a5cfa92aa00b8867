"""What is drawn against its table, in a real browser: a simulated job with a straggler."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from click.testing import CliRunner

from htk.answers.ask import ask_trace
from htk.answers.output.tokens import DARK, LIGHT
from htk.base.core.humanize import format_duration, shorten_apart
from htk.dashboard.plots import marks_in_seconds
from htk.dashboard.runs import Runs
from htk.faces.cli.commands.simulate import command as simulate
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import IDLE_WORDS
from tests.conftest import ROOT, new_tab
from tests.dashboard.conftest import go, serving, settled, shows, until, visiting

TIMELINE_DRAWN = """() => window.htkHandle && window.htkHandle.idle()
    && window.htkHandle.count() > 0 && document.querySelector('canvas.main')?.isConnected"""
CAUSES = "idle time by cause"
SAMPLE = ROOT / "sample_traces/simulated/llama2-7b"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("pictures") / "run"
    words = (
        "--model gpt3-126m --layers 3 --nodes 1 --gpus-per-node 3 --micro-batch 4 --steps 3 "
        "--seed 7 --plant straggler:rank=1,factor=1.4"
    )
    made = CliRunner().invoke(simulate, [*words.split(), "-o", str(folder)])
    assert made.exit_code == 0, made.output
    return open_trace(folder, OpenOptions(cache=False))


@pytest.fixture(scope="module")
def visitor(browser: Any, job: Trace) -> Iterator[tuple[Any, list[str]]]:
    with serving(Runs([], trace=job)) as address:
        yield from visiting(browser, address)


def figure_of(page: Any, label: str) -> list[dict[str, Any]]:
    """Names, points and colours of a drawn figure, found by its label."""
    where = f"main figure[aria-label='{label}'] .js-plotly-plot"
    until(page, "where => !!document.querySelector(where)?.data?.length", where)
    traces: list[dict[str, Any]] = page.evaluate(
        """where => document.querySelector(where).data.map(d => ({name: d.name, x: [...d.x],
          y: [...d.y], shape: d.line?.shape, colour: d.line?.color || d.marker?.color}))""",
        where,
    )
    return traces


def test_memory_is_drawn_as_it_was(page: Any, job: Trace) -> None:
    """In every silence of all ranks the band and its line are at the lowest, median and highest of
    what the raw events say; no peak is lost. The ranks do the same: they are one line."""
    go(page, "/memory")
    settled(page)
    drawn = {d["name"]: d for d in figure_of(page, "In use over time")}
    memory = job.tables["memory"].to_pylist()
    ranks = sorted({r["rank"] for r in memory})
    assert ranks == [0, 1, 2]
    names = ["highest", "lowest to highest", "median"]
    assert list(drawn) == [f"ranks 0..2: {name}" for name in names]
    assert {d["shape"] for d in drawn.values()} == {"hv"}
    raw = {
        rank: sorted((r["time_ns"], r["event"], r["allocated_bytes"]) for r in memory
                     if r["rank"] == rank)
        for rank in ranks
    }  # fmt: skip
    highest, lowest, middle = drawn.values()
    assert max(highest["y"]) == pytest.approx(max(v for of in raw.values() for *_, v in of) / 2**30)
    times = sorted(t for of in raw.values() for t, *_ in of)
    least = (times[-1] - times[0]) / 100  # twice what a slice of the table is long
    silences = [(a + b) / 2 for a, b in pairwise(times) if b - a > least]
    silences = [at for at in silences if all(of[0][0] < at < of[-1][0] for of in raw.values())]
    assert silences
    for at in silences:
        values = [[v for t, _, v in of if t <= at][-1] / 2**30 for of in raw.values()]
        place = (at - job.origin_ns) / 1e6
        for line, expected in (
            (lowest, min(values)), (middle, median(values)), (highest, max(values)),
        ):  # fmt: skip
            shown = [y for x, y in zip(line["x"], line["y"], strict=True) if x <= place][-1]
            assert shown == pytest.approx(expected)


def test_a_rank_s_strip_says_what_the_overview_says(page: Any, job: Trace) -> None:
    """Compute, exposed communication and copies fill the strips as their share of the window."""
    go(page, "/timeline")
    until(page, TIMELINE_DRAWN)
    view = page.evaluate("window.htkHandle.view()")
    rows = ask_trace(job, "time_breakdown").to_pylist()
    assert any(r["exposed_comm_ns"] < 0.8 * r["comm_ns"] for r in rows), "some of it is hidden"
    for row in rows:
        drawn = strip_shares(page, row["rank"])
        span = view["end"] - view["start"]
        for kind, column in (("compute", "compute_ns"), ("comm", "exposed_comm_ns")):
            assert drawn[kind] == pytest.approx(row[column] / span, abs=0.02)


def test_every_match_of_a_search_is_lit(page: Any, job: Trace) -> None:
    """As much of a rank's strip as its matching kernels run, and nothing when it is over."""
    go(page, "/timeline?name=gemm")
    lit = "() => !!window.htkHandle?.state.shown?.lit"
    until(page, TIMELINE_DRAWN)
    until(page, lit)
    kernels = job.tables["kernels"].to_pylist()
    view = page.evaluate("window.htkHandle.view()")
    for rank in job.ranks:
        gemm = sum(k["end_ns"] - k["start_ns"] for k in kernels
                   if k["rank"] == rank and "gemm" in k["name"].lower())  # fmt: skip
        assert gemm > 0
        expected = gemm / (view["end"] - view["start"])  # one stream computes: nothing overlaps
        assert strip_shares(page, rank)["compute"] == pytest.approx(expected, abs=0.02)
    page.press("canvas.main", "/")
    page.press("input[aria-label='search names']", "Escape")
    assert page.input_value("input[aria-label='search names']") == ""
    until(page, "() => !window.htkHandle.state.wanted && !window.htkHandle.state.shown.lit")


def strip_shares(page: Any, rank: int) -> dict[str, float]:
    """How much of a rank's strip on the canvas has the full colour of each kind."""
    shares: dict[str, float] = page.evaluate(
        """async rank => {
          const s = window.htkHandle.state, T = window.htkTimeline;
          const canvas = document.querySelector('canvas.main');
          const lane = s.about.lanes.findIndex(l => l[0] === rank && l[1] === 'busy');
          canvas.parentElement.scrollTop = Math.max(0, s.rows.at[lane] - 60);
          const frame = () => new Promise(r => requestAnimationFrame(r));
          const { parentElement: box } = canvas;
          const still = () => window.htkHandle.idle() && s.scroll === box.scrollTop;
          for (let k = 0; k < 200 && !still(); k++) await frame();
          window.htkHandle.redraw();
          s.pointer = s.hover = null;
          await frame(); await frame();
          const ratio = canvas.size.ratio;
          const top = (T.AXIS + s.rows.at[lane] - s.scroll + 4) * ratio;
          const height = (T.HEAD - 8) * ratio, left = T.GUTTER * ratio;
          const wide = canvas.width - left;
          const pixels = canvas.getContext('2d').getImageData(left, top, wide, height).data;
          const counts = {};
          for (const kind of T.STRIPES) {
            const [r, g, b] = s.palette[s.about.kinds.indexOf(kind)].base;
            let count = 0;
            for (let i = 0; i < pixels.length; i += 4)
              if (pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b) count++;
            counts[kind] = count / (pixels.length / 4);
          }
          return counts;
        }""",
        rank,
    )
    return shares


def test_the_timeline_has_the_colours_of_the_figures(page: Any) -> None:
    go(page, "/timeline")
    until(page, TIMELINE_DRAWN)
    kinds = ("compute", "comm", "memory", "cpu", "launch")
    for scheme, palette in (("LIGHT", LIGHT), ("DARK", DARK)):
        drawn = page.evaluate(f"window.htkTimeline.{scheme}")
        assert {k: drawn["kinds"][k][0] for k in kinds} == {k: palette[k] for k in kinds}
        assert drawn["paper"] == palette["panel"] and drawn["ink"] == palette["ink"]


def test_a_row_leads_to_its_longest_instance(page: Any, job: Trace) -> None:
    go(page, "/kernel_top")
    page.wait_for_selector(".ag-row .go")
    page.locator(".ag-row[row-index='1'] .go").click()
    until(page, "() => location.pathname === '/timeline'")
    until(page, "() => !!window.htkHandle?.selected()")
    name = page.evaluate("new URLSearchParams(location.search).get('name')")
    kernels = [k for k in job.tables["kernels"].to_pylist() if k["name"] == name]
    selected = page.evaluate("window.htkHandle.selected()")
    assert selected["name"] == name
    longest = max(k["end_ns"] - k["start_ns"] for k in kernels)
    assert selected["end"] - selected["start"] == longest


def test_idle_time_is_drawn_by_causes_in_words(page: Any, job: Trace) -> None:
    """Each bar is the time of its cause, of the window; nothing stands under an internal name."""
    go(page, "/idle")
    settled(page)
    rows = ask_trace(job, "idle_breakdown").to_pylist()
    windows = ask_trace(job, "time_breakdown").to_pylist()
    words = {row["cause"]: IDLE_WORDS[row["cause"]].removeprefix("idle: ") for row in rows}
    bars = {d["name"]: dict(zip(d["y"], d["x"], strict=True)) for d in figure_of(page, CAUSES)}
    compared = 0
    for row in rows:
        if words[row["cause"]] not in bars:
            continue  # among the smallest, drawn together
        (window,) = [w["total_ns"] for w in windows if w["rank"] == row["rank"]]
        drawn = bars[words[row["cause"]]][f"rank {row['rank']}"]
        assert drawn == pytest.approx(100 * row["idle_ns"] / window, abs=1e-6)
        compared += 1
    assert compared >= len(job.ranks) and len(bars) >= 2
    table = page.locator("main .grid").first
    text = table.inner_text()
    assert words[rows[0]["cause"]] in text and not any(f"_{w}" in text for w in ("data", "sync"))
    heads = table.locator(".ag-header").inner_text().split()
    assert "cause" in heads and "complete" not in heads, "all are: that goes without saying"


def test_filters_that_leave_nothing_say_what_there_is(page: Any) -> None:
    go(page, "/kernels?steps=99")
    page.wait_for_selector("main .empty")
    said = page.inner_text("main .empty")
    assert "99" in said and "Not recorded" not in said
    go(page, "/compare?o.base=0&o.new=7")
    assert "The other has no rank 7; it has 0..2." in page.inner_text("main .problem")
    until(page, "() => document.querySelectorAll('.twin canvas.main').length === 1")


HEADED = ["timeline", "kernels", "operators", "communication", "memory", "idle", "whatif"]


@pytest.mark.parametrize("path", [*HEADED, "compare?o.base=0&o.new=1"])
def test_the_heading_answers_with_a_number(page: Any, path: str) -> None:
    go(page, f"/{path}")
    until(page, "() => /[0-9].*[.]$/.test(document.querySelector('main h1')?.innerText)")


def test_headings_say_what_the_tables_say(page: Any, job: Trace) -> None:
    """The rank that waits longest, the share that is exposed, the idlest cause."""
    go(page, "/communication")
    settled(page)
    times = ask_trace(job, "time_breakdown").to_pylist()
    total = sum(r["total_ns"] for r in times)
    exposed = 100 * sum(r["exposed_comm_ns"] for r in times) / total
    assert f"{exposed:.1f} % of the GPUs' time" in page.inner_text("main h1").replace(
        "\N{NO-BREAK SPACE}", " "
    )
    late = max(ask_trace(job, "stragglers").to_pylist(), key=lambda r: r["cost_to_others_ns"])
    assert late["rank"] == 1, "planted"
    assert "Rank 1 is waited for most" in page.inner_text("main .lead")
    waits = {r["rank"]: r["wait_ns"] for r in ask_trace(job, "comm_wait").to_pylist()}
    longest = max(waits, key=lambda rank: waits[rank])
    heading = f"Rank {longest} waits longest, {format_duration(waits[longest])}"
    assert any(heading in text for text in page.locator("main h2").all_inner_texts())
    go(page, "/idle")
    settled(page)
    idle = 100 * sum(r["idle_ns"] for r in times) / total
    assert f"GPUs are idle {idle:.1f} % of the time" in page.inner_text("main h1").replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_the_heading_is_of_what_a_filter_leaves(page: Any, job: Trace) -> None:
    kernels = job.tables["kernels"].to_pylist()
    gemms = [k for k in kernels if "gemm" in k["name"].lower()]
    lengths = [sum(k["end_ns"] - k["start_ns"] for k in of) for of in (gemms, kernels)]
    go(page, "/kernels?name=gemm")
    shows(page, f"in {len(gemms):,} calls.")
    words = page.inner_text("main h1").replace("\N{NO-BREAK SPACE}", " ")
    share = 100 * lengths[0] / lengths[1]
    assert words.startswith(f"Kernels whose name has gemm take {share:.1f} % of the time")
    go(page, "/kernels?name=nosuchkernel")
    shows(page, "There are no kernels whose name has nosuchkernel.")


def test_ranks_that_a_filter_leaves_out_are_not_called_unrecorded(page: Any) -> None:
    go(page, "/timeline?ranks=0")
    until(page, TIMELINE_DRAWN)
    assert page.evaluate("window.htkHandle.state.about.unrecorded_ranks") == 0
    assert "not recorded" not in page.inner_text("main .htk-timeline .bar")


def test_sides_are_picked_from_the_ranks_that_are_there(page: Any) -> None:
    go(page, "/compare")
    page.get_by_role("textbox", name="ranks of the base").click()
    options = page.locator("[role=option]:visible")
    options.first.wait_for()
    assert options.all_inner_texts() == ["0", "1", "2"]
    options.nth(2).click()
    until(page, "() => new URLSearchParams(location.search).get('o.base') === '2'")


def test_long_names_are_told_apart_in_tables(page: Any, job: Trace) -> None:
    """A long name is shortened to its telling parts; hovering shows it as recorded."""
    go(page, "/kernel_top")
    page.wait_for_selector(".ag-pinned-left-cols-container .ag-cell-value")
    rows = ask_trace(job, "kernel_top", n=20).to_pylist()[:5]  # the grid holds those in sight
    names = [row["name"] for row in rows if len(row["name"]) > 60]
    assert names
    shown = page.locator(".ag-pinned-left-cols-container .ag-cell").all_inner_texts()
    short = shorten_apart(
        [row["name"] for row in ask_trace(job, "kernel_top", n=20).to_pylist()], 42
    )
    for name in names:
        assert short[name] in shown and name not in shown


def test_idle_time_of_unrecorded_ranks_is_hatched(browser: Any, tmp_path: Path) -> None:
    """A rank without a file is not drawn as one that was never idle."""
    for rank in (0, 4):
        shutil.copy(SAMPLE / f"rank{rank}.pt.trace.json.gz", tmp_path)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    with serving(Runs([], trace=trace)) as address:
        page = new_tab(browser)
        page.goto(f"{address}/idle")
        settled(page)
        lost = [d for d in figure_of(page, CAUSES) if d["name"] == "unrecorded"]
        hatched = page.evaluate(
            """label => [...document.querySelector(`figure[aria-label='${label}'] .js-plotly-plot`)
              .data].filter(d => d.marker.pattern?.shape === '/').map(d => d.name)""",
            CAUSES,
        )
        page.close()
    assert hatched == ["unrecorded"]
    drawn = {label for label, length in zip(lost[0]["y"], lost[0]["x"], strict=True) if length}
    assert drawn == {f"rank {rank}" for rank in range(8) if rank not in (0, 4)}


def test_marks_of_a_long_recording_are_round_seconds() -> None:
    marks = marks_in_seconds(1500.0, 15_100.0, 12)
    assert marks["ticktext"] == ["2", "4", "6", "8", "10", "12", "14"]
    assert marks["tickvals"] == [2e3, 4e3, 6e3, 8e3, 10e3, 12e3, 14e3]
    assert marks_in_seconds(0, 2300.0, 12)["ticktext"][:3] == ["0", "0.2", "0.4"]
