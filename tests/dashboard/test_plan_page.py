"""The page of plans: with no recording open, in a real browser, against the search itself."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlparse

import pytest

from htk.dashboard.plan_answer import key_of, search_layouts
from htk.dashboard.plan_fields import FIELDS, FieldErrors, errors_of, read_request
from htk.dashboard.runs import Runs
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.search import SearchAnswer, layout_words, search_plans
from htk.planning.sites.site import GpuAtSite, PlanAtSite, Rate, Site
from htk.planning.sites.site_file import write_site
from tests.dashboard.conftest import serving, settled, shows, until, visiting
from tests.dashboard.figure_marks import drawn

JOB = PlannedJob(
    decoder("llama2-7b"), gpu("a100-80gb"), 1, 8, seq=4096, strategy="zero1", price=2.0
)
FILLED = {
    "model": "llama2-7b", "gpu": "a100-80gb", "gpus": "8", "seq": "4096", "batch": "32",
    "price": "2",
}  # fmt: skip
PAGE = "/plan?" + "&".join(f"o.{name}={value}" for name, value in FILLED.items())


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A server with no recording at all."""
    with serving(Runs([])) as address:
        yield address


@pytest.fixture(scope="module")
def visitor(browser: Any, bare: str) -> Iterator[tuple[Any, list[str]]]:
    yield from visiting(browser, bare)


@pytest.fixture(scope="module")
def truth() -> SearchAnswer:
    return search_plans(JOB, 32)


_TRACES = """() => [...document.querySelectorAll('main .js-plotly-plot')][0].data.map(
  t => ({name: t.name, x: [...t.x], y: [...t.y], key: [...(t.customdata || [])],
         over: [...(t.error_x?.array || [])], under: [...(t.error_x?.arrayminus || [])]}))"""


# Of each figure: the lengths of its marks, trace by trace, and its lines from edge to edge.
_FIGURES = """() => [...document.querySelectorAll('main .js-plotly-plot')].map(gd => ({
  x: gd.data.flatMap(t => [...t.x]),
  lines: gd._fullLayout.shapes.map(s => s.x0 === s.x1 ? s.x0 : s.y0) }))"""


def _opened(page: Any, bare: str, path: str = PAGE) -> None:
    page.goto(bare + path)
    page.wait_for_selector("#plan-opened")
    settled(page)


def test_the_picture_and_the_table_hold_what_the_search_gives(
    page: Any, bare: str, truth: SearchAnswer
) -> None:
    _opened(page, bare)
    assert page.inner_text("nav") == "Runs\nPlan"
    best = truth.plans[0]
    others, wide, narrow, front, ring = page.evaluate(_TRACES)
    fast = [p for p in truth.plans if p.step_ns <= 4 * best.step_ns]
    assert len(others["x"]) + len(front["x"]) == len(fast) > 20
    steps = [truth.plans[k].step_ns / 1e9 for k in sorted(truth.front) if k < len(fast)]
    assert front["x"] == pytest.approx(steps)
    held = [truth.plans[k].memory.total / 2**30 for k in sorted(truth.front) if k < len(fast)]
    assert front["y"] == pytest.approx(held)
    for bars, percent in ((wide, 90), (narrow, 50)):
        low, high = best.interval(percent)
        assert bars["over"][0] == pytest.approx((high - best.step_ns) / 1e9)
        assert bars["under"][0] == pytest.approx((best.step_ns - low) / 1e9)
    assert ring["x"] == pytest.approx([best.step_ns / 1e9])
    assert layout_words(best.job) in page.inner_text("main .ag-row[row-index='0']")
    assert page.inner_text("#plan-opened") == layout_words(best.job)
    text = page.inner_text("main")
    assert f"{len(truth.plans):,} of {truth.tried:,} layouts fit" in text
    assert "--" not in text and "htk" not in text, "no word of the command line"


def test_the_parts_of_a_step_and_its_memory_are_those_of_the_plan(
    page: Any, bare: str, truth: SearchAnswer
) -> None:
    _opened(page, bare)
    best = truth.plans[0]
    limit, parts, *held = page.evaluate(_FIGURES)
    assert limit["lines"] == pytest.approx([JOB.gpu.memory_bytes / 2**30], rel=1e-6)
    taken = [ns / 1e9 for ns in vars(best.parts).values() if ns > 0]
    assert parts["x"] == pytest.approx(sorted(taken, reverse=True))
    assert sum(parts["x"]) == pytest.approx(best.step_ns / 1e9)
    (memory,) = held
    stages = [best.memory_of_stage(k) for k in range(best.job.pipeline_parallel)]
    layers = ("parameters", "gradients", "optimizer", "activations", "logits")
    expected = [getattr(stage, name) for name in layers for stage in stages]
    expected += [stage.total - sum(getattr(stage, name) for name in layers) for stage in stages]
    drawn = [x for x in memory["x"] if x]
    assert drawn == pytest.approx([value / 2**30 for value in expected if value])
    assert memory["lines"] == pytest.approx([JOB.gpu.memory_bytes / 2**30], rel=1e-6)


def test_each_stage_of_a_pipeline_is_drawn_at_its_memory(
    page: Any, bare: str, truth: SearchAnswer
) -> None:
    """Stages hold unlike much: each layer of each bar begins where the one before ends."""
    plan = next(p for p in truth.plans if p.job.pipeline_parallel > 2)
    _opened(page, bare, f"{PAGE}&o.layout={quote(f'8 GPUs: {layout_words(plan.job)}')}")
    assert page.inner_text("#plan-opened") == layout_words(plan.job)
    layers = {
        "parameters": "parameters",
        "gradients": "gradients",
        "optimizer": "optimizer state",
        "activations": "activations",
        "logits": "logits",
    }
    expected: dict[tuple[str, str], tuple[float, float]] = {}
    totals = []
    for number in range(plan.job.pipeline_parallel):
        held, end = plan.memory_of_stage(number), 0.0
        for name, words in layers.items():
            begin, end = end, end + getattr(held, name) / 2**30
            expected[f"stage {number}", words] = begin, end
        expected[f"stage {number}", "libraries and fragmentation"] = end, held.total / 2**30
        totals.append(held.total)
    assert len(set(totals)) > 1, "stages differ"
    bars = drawn(page, "memory by stage")["bars"]
    shown = {(bar["at"], bar["trace"]): bar for bar in bars}
    assert len(shown) == len(bars)
    for key, (begin, end) in expected.items():
        if end == begin:
            assert key not in shown or shown[key]["value"] == 0
            continue
        bar = shown.pop(key)
        assert bar["ends"] == pytest.approx([begin, end], abs=2 * bar["pixel"])
        assert (bar["from"], bar["value"]) == pytest.approx((begin, end - begin))
    assert all(bar["value"] == 0 for bar in shown.values())
    assert max(totals) == pytest.approx(plan.memory.total), "the fullest is the plan's"


def test_a_row_and_a_point_open_their_layout_which_the_link_shares(
    page: Any, bare: str, truth: SearchAnswer
) -> None:
    _opened(page, bare)
    third = layout_words(truth.plans[2].job)
    page.click("main .ag-row[row-index='2'] .ag-cell >> nth=0")
    until(page, "t => document.querySelector('#plan-opened')?.innerText === t", third)
    until(page, "() => location.search.includes('o.layout=')")
    until(
        page,
        "x => Math.abs(document.querySelector('main .js-plotly-plot').data.at(-1).x[0] - x) < 1e-9",
        truth.plans[2].step_ns / 1e9,
    )
    assert parse_qs(urlparse(page.url).query)["o.layout"] == [f"8 GPUs: {third}"]
    _opened(page, bare, page.url.removeprefix(bare))
    assert page.inner_text("#plan-opened") == third
    least = sorted(truth.front)[1]
    page.evaluate(
        """() => { const plot = document.querySelector('main .js-plotly-plot');
          plot.emit('plotly_click', {points: [{curveNumber: 3, pointNumber: 1}]}); }"""
    )
    words = layout_words(truth.plans[least].job)
    until(page, "t => document.querySelector('#plan-opened')?.innerText === t", words)


def test_what_is_wrong_is_said_at_its_field_and_spoils_nothing_else(page: Any, bare: str) -> None:
    _opened(page, bare)
    lead = page.inner_text("#plan-lead")
    count = page.get_by_label("number of GPUs")
    count.fill("12")
    shows(page, "12 is no multiple of the 8 GPUs of a node")
    assert page.inner_text("#plan-lead") == lead
    count.fill("16")
    until(page, "old => document.querySelector('#plan-lead').innerText !== old", lead)
    until(page, "() => location.search.includes('o.gpus=16')")
    assert "is no multiple" not in page.inner_text("main")


def test_cost_stands_against_the_step_where_there_is_a_price(page: Any, bare: str) -> None:
    _opened(page, bare, f"{PAGE}&o.against=cost")
    _, _, _, front, _ = page.evaluate(_TRACES)
    best = search_plans(JOB, 32).plans[0]
    assert front["y"] == pytest.approx([best.cost_per_million_tokens])
    page.goto(f"{bare}{PAGE.replace('o.price=2', 'o.price=0')}&o.against=cost")
    shows(page, "a positive number was expected")


def test_the_page_is_there_beside_a_recording_whatever_the_filters(
    page: Any, bare: str, address: str
) -> None:
    page.goto(f"{address}{PAGE}&steps=99")
    page.wait_for_selector("#plan-opened")
    assert "Overview" in page.inner_text("nav") and "Plan" in page.inner_text("nav")


def test_it_can_be_used_on_a_phone(page: Any, bare: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        _opened(page, bare)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, "nothing stands beyond the edge"
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model", "gpt-17", "there is no 'gpt-17'"),
        ("model", "../../etc/passwd", "there is no"),
        ("gpu", "abacus", "there is no 'abacus'"),
        ("gpus", "0", "1 to 131,072"),
        ("gpus", "9999999999999999999999", "a whole number"),
        ("gpus", "8,16,32,64,128,256,512", "at most 6"),
        ("gpus", "-8", "a whole number"),
        ("gpus", "²", "a whole number"),
        ("gpus", "20", "no multiple of the 8 GPUs of a node"),
        ("node", "73", "1 to 72"),
        ("network", "string and tins", "no network"),
        ("seq", "1e9", "a whole number"),
        ("batch", "many", "a whole number"),
        ("memory", "inf", "a positive number"),
        ("memory", "nan", "a positive number"),
        ("memory", "81", "a100-80gb has 79 GiB"),
        ("precision", "fp8", "no matrix products in fp8"),
        ("optimizer", "sophia", "there is no"),
        ("price", "-1", "a positive number"),
        ("tokens", "1e400", "a positive number"),
    ],
)
def test_a_wrong_value_is_its_fields_own(name: str, value: str, words: str) -> None:
    wrong = errors_of({**FILLED, name: value})
    assert list(wrong) == [name] and words in wrong[name]
    with pytest.raises(FieldErrors, match=FIELDS[name].label):
        read_request({**FILLED, name: value})


def test_the_fields_make_the_job() -> None:
    options = {
        **FILLED, "gpus": "4, 16,32", "node": "8", "network": "roce-400", "memory": "40",
        "optimizer": "adam-8bit", "tokens": "2",
    }  # fmt: skip
    request = read_request(options)
    assert [(j.nodes, j.gpus_per_node) for j in request.jobs] == [(1, 4), (2, 8), (4, 8)]
    job = request.jobs[1]
    assert job.fabric is not None and job.fabric.gbps == 50
    assert job.gpu.memory_bytes == pytest.approx(40 * 2**30)
    assert (job.optimizer, job.run_tokens, request.batch) == ("adam-8bit", 2e9, 32)
    assert (
        read_request({**FILLED, "network": "nvl72", "gpus": "72", "node": "4"}).jobs[0].domain == 72
    )


def test_a_memory_limit_leaves_out_what_is_larger() -> None:
    limited = search_layouts({**FILLED, "memory": "24"})
    held = search_plans(replace(JOB, gpu=gpu("a100-80gb").limited_to(24)), 32)
    assert limited.fitting == len(held.plans) < len(search_plans(JOB, 32).plans)
    assert all(p.memory.total < 24 * 2**30 for p in limited.answer.plans)


def test_several_numbers_of_gpus_are_searched_with_one_batch() -> None:
    plan = search_layouts({**FILLED, "gpus": "8,16"})
    both = [search_plans(JOB, 32), search_plans(replace(JOB, nodes=2), 32)]
    assert plan.fitting == sum(len(a.plans) for a in both)
    assert plan.answer.tried == sum(a.tried for a in both)
    assert {p.job.global_batch for p in plan.answer.plans} == {32}
    steps = [p.step_ns for p in plan.answer.plans]
    assert {key_of(a.plans[0]) for a in both} <= set(plan.keys), "the best of each number"
    assert steps == sorted(steps) and len(set(plan.keys)) == len(plan.keys)


def test_a_sites_own_figures_are_used_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrix products at half of the usual rate; a file that is written anew counts at once."""
    usual, file = search_layouts(FILLED), tmp_path / "site.toml"
    for ratio in (0.5, 0.8):
        site = Site({"a100-80gb": GpuAtSite(products=Rate(ratio, 3))})
        write_site(site, file)
        os.utime(file, (1, 1000 * ratio))
        monkeypatch.setenv("HTK_SITE", str(file))
        plan = search_layouts(FILLED)
        best = search_plans(JOB, 32, lambda job, site=site: PlanAtSite(job, site)).plans[0]
        assert plan.site == file
        assert plan.answer.plans[0].step_ns == best.step_ns > 1.1 * usual.answer.plans[0].step_ns
    monkeypatch.setenv("HTK_SITE", "none")
    assert search_layouts(FILLED).site is None


def test_where_nothing_fits_it_is_said() -> None:
    assert not search_layouts({**FILLED, "model": "llama3-405b"}).answer.plans
    assert search_layouts({**FILLED, "gpus": "65536", "batch": "1"}).answer.tried == 0
