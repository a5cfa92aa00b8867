"""Pictures and pages of many ranks, in a real browser."""

import gzip
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from htk.answers.output.figures import draw_figure
from htk.answers.output.plotting_library import packed_library
from htk.base.core.chart import Bar, Chart, Heatmap
from htk.dashboard.runs import Runs
from htk.faces.cli.commands.simulate import command as simulate
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import new_tab
from tests.dashboard.conftest import go, serving, settled, until, visiting
from tests.thinned import thinned

PAGES = ("", "kernels", "operators", "communication", "memory", "idle")
HIGHEST = 4000
WIDTHS = (330, 520, 900)  # of a telephone, half a page, a page
RANKS = (8, 64, 512, 4096)
_WORDS = (
    ".xtick text, .ytick text, .x2tick text, .y2tick text, .gtitle, .textpoint text, .legendtext"
)
_BOXES = """words => [...document.querySelectorAll(words)].filter(t => t.textContent).map(t => {
  const box = t.getBoundingClientRect();
  return {text: t.textContent, x: box.x, y: box.y, right: box.right, bottom: box.bottom}; })"""
_DRAW = """async ([{data, layout}, width]) => {
  document.body.innerHTML = `<div id="drawn" style="width:${width}px;height:460px"></div>`;
  await Plotly.newPlot("drawn", data, {...layout, width}, {displayModeBar: false}); }"""


@pytest.fixture(scope="module")
def paper(browser: Any) -> Iterator[Any]:
    """An empty page that can draw."""
    tab = new_tab(browser)
    tab.set_content("<body></body>")
    tab.add_script_tag(content=gzip.decompress(packed_library()).decode())
    yield tab
    tab.close()


def pictures_of(ranks: int) -> list[tuple[pa.Table, Chart]]:
    """Bars in groups and in stacks, rows of ranks, pairs; ranks 3 and 4 are unlike the others."""
    random = np.random.default_rng(ranks)
    columns: dict[str, Any] = {"rank": range(ranks), "device": [rank % 8 for rank in range(ranks)]}
    for name in ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns"):
        values = random.normal(5e6, 5e4, ranks)
        values[3:5] *= (2, 3)
        columns[name] = values.astype(np.int64)
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    steps = [(rank, step, int(random.integers(0, 99))) for rank in range(ranks) for step in (8, 9)]
    late = pa.table(dict(zip(("rank", "step", "wait_ns"), zip(*steps, strict=True), strict=True)))
    pairs = [(rank, (rank + 1) % ranks, 1 << 20) for rank in range(ranks)]
    names = ("from_rank", "to_rank", "sent_bytes")
    sent = pa.table(dict(zip(names, zip(*pairs, strict=True), strict=True)))
    ys = tuple(name for name in columns if name.endswith("_ns"))
    return [
        (table, Bar("rank", ys[:2], stacked=False)),
        (table, Bar("rank", ys)),
        (late, Heatmap("step", "rank", "wait_ns")),
        (sent, Heatmap("to_rank", "from_rank", "sent_bytes")),
    ]


@pytest.mark.parametrize(("width", "ranks"), thinned(product(WIDTHS, RANKS), 3))
def test_no_words_of_a_picture_lie_over_each_other(paper: Any, width: int, ranks: int) -> None:
    for table, chart in pictures_of(ranks):
        drawn = json.loads(draw_figure(table, chart).to_json())
        paper.evaluate(_DRAW, [drawn, width])
        boxes = paper.evaluate(_BOXES, _WORDS)
        assert boxes, chart
        for place, box in enumerate(boxes):
            assert box["x"] >= -1 and box["right"] <= width + 1, (chart, box)
            for other in boxes[place + 1 :]:
                across = min(box["right"], other["right"]) - max(box["x"], other["x"])
                down = min(box["bottom"], other["bottom"]) - max(box["y"], other["y"])
                assert across <= 2 or down <= 4, (chart, box["text"], other["text"])


@contextmanager
def serving_nodes(nodes: int, folder: Path) -> Iterator[str]:
    """Give the address of a server of a job of eight ranks a node, one of which is slow."""
    words = (
        "--model any --layers 2 --hidden 256 --heads 4 --ffn 688 --vocab 32000 "
        f"--nodes {nodes} --gpus-per-node 8 --strategy full_shard --steps 2 --no-stacks --seed 3 "
        "--plant straggler:rank=33,factor=1.4"
    )
    made = CliRunner().invoke(simulate, [*words.split(), "-o", str(folder)])
    assert made.exit_code == 0, made.output
    with serving(Runs([], trace=open_trace(folder, OpenOptions(cache=False)))) as address:
        yield address


@pytest.fixture(scope="module")
def visitor(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, list[str]]]:
    with serving_nodes(9, tmp_path_factory.mktemp("many") / "run") as address:
        yield from visiting(browser, address)


FILLED = "[...document.querySelectorAll('main .part')].every(p => p.childElementCount)"


def assert_bounded(page: Any, names: Iterable[str], *, drawn: bool) -> None:
    """Pages are no higher than one scrolls through, and no wider than the window. What is not drawn
    yet has the place that it will take."""
    page.set_viewport_size({"width": 1440, "height": 900})
    for name in names:
        go(page, f"/{name}")
        until(page, FILLED)
        if drawn:
            settled(page)
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height <= HIGHEST, (name, height)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1440, name


def test_no_page_is_endless(page: Any) -> None:
    assert_bounded(page, PAGES, drawn=False)


@pytest.mark.nightly
def test_no_page_of_512_ranks_is_endless(browser: Any, tmp_path: Path) -> None:
    with serving_nodes(64, tmp_path / "run") as address:
        for page, wrong in visiting(browser, address):
            assert_bounded(page, (*PAGES, "whatif", "compare", "critical_path", "plan"), drawn=True)
            assert wrong == []


def test_ranks_that_behave_alike_are_one_bar(page: Any) -> None:
    go(page, "/")
    until(page, "document.querySelectorAll('.rank-bar').length > 0")
    labels = page.evaluate("[...document.querySelectorAll('.rank-bar span')].map(s => s.innerText)")
    assert len(labels) <= 10 and "rank 33" in labels


def test_a_cell_leads_to_its_rank_by_keys(page: Any) -> None:
    go(page, "/comm_compute_ratio")
    until(page, "!!document.querySelector('figure.population .js-plotly-plot .xy')")
    page.focus("figure.population")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    told = "document.querySelector('.hoverlayer')?.textContent.includes('rank 11:')"
    until(page, told)  # the second node's fourth GPU
    page.keyboard.press("Enter")
    until(page, "location.search.includes('ranks=11')")


def test_a_what_if_is_answered_by_a_few_ranks_that_stand_for_all(page: Any) -> None:
    go(page, "/whatif?o.batch=2x")
    until(page, "!!document.querySelector('#whatif-answer .tile')")
    settled(page)
    shown = page.inner_text("main")
    assert "Twice the batch: a step takes" in shown and " of 72 ranks" in shown
    assert "This part failed" not in shown and "Predict it from every rank" in shown


def test_the_timeline_has_a_row_for_each_node(page: Any) -> None:
    go(page, "/timeline")
    until(page, "!!window.htkHandle && window.htkHandle.count() >= 0 && window.htkHandle.idle()")
    keys = page.evaluate("window.htkHandle.rows().map((row) => row.key)")
    assert len(keys) == 9 and all(key.startswith("node ") for key in keys)
    assert page.evaluate("window.htkHandle.state.shown.head.strips.length") >= 9
