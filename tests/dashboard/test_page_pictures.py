"""Pictures that pages compose by hand, against the tables that belong to them."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from htk.analyses import find_analysis
from htk.answers.ask import ask_trace
from htk.answers.output.figure_colours import colour_of, meaning_of, place_of
from htk.answers.output.tokens import LIGHT
from htk.base.core.humanize import format_duration, shorten_text
from htk.dashboard.runs import Runs
from htk.traces.compare.runs import compare_runs
from htk.traces.trace.opening import SAMPLE, OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import IDLE_WORDS
from htk.whatif.api import WhatIf
from htk.whatif.label import BATCHES, SHARDINGS
from tests.dashboard.conftest import go, serving, settled, visiting
from tests.kineto_file import Event, kernel, launch, of_rank, write

_DRAWN = """label => {
  const figure = [...document.querySelectorAll('main figure.plot')]
    .find(f => f.getAttribute('aria-label') === label);
  const gd = figure.querySelector('.js-plotly-plot');
  return gd.calcdata.map(marks => {
    const { trace } = marks[0];
    if (trace.type === 'icicle') {
      const slices = [...gd.querySelectorAll('.slice')].map(s => s.__data__);
      return { kind: 'icicle', cells: slices.map(s => [s.data.data.id, s.x1 - s.x0]) };
    }
    if (trace.type === 'heatmap')
      return { kind: 'heatmap', x: [...trace.x], y: [...trace.y],
        z: marks[0].z.map(row => [...row]) };
    const [over, under] = ['array', 'arrayminus'].map(k => [...(trace.error_x?.[k] || [])]);
    return { kind: trace.type, name: trace.name, base: trace.base && [...trace.base], over, under,
      group: trace.stackgroup, text: trace.text && [...trace.text],
      mode: trace.mode, x: [...trace.x], y: [...trace.y], sums: marks.map(m => m.rawS),
      lengths: [...gd.querySelectorAll('.barlayer .trace')].filter(
        g => g.__data__[0].trace.index === trace.index).flatMap(
        g => [...g.querySelectorAll('.point path')].map(p => p.getBBox().width)),
      pixels: gd._fullLayout.xaxis?._m };
  });
}"""


# Lines across a whole figure, such as limits: from where to where they go.
_LINES = """label => {
  const figure = [...document.querySelectorAll('main figure.plot')]
    .find(f => f.getAttribute('aria-label') === label);
  return figure.querySelector('.js-plotly-plot')._fullLayout.shapes.map(
    s => [s.x0, s.x1, s.y0, s.y1]);
}"""
# Of every series in the legends of a page: its name and its fill.
_FILLS = """() => [...document.querySelectorAll('main .js-plotly-plot')].flatMap(
  gd => (gd.calcdata || []).map(([mark]) => mark.trace).flatMap(trace => {
    const fill = trace.type === 'bar' ? trace.marker.color
      : trace.type === 'scatter' ? trace.fillcolor || trace.marker?.color || trace.line?.color : 0;
    return typeof fill === 'string' && trace.name ? [[trace.name, fill.toUpperCase()]] : [];
  }))"""


@pytest.fixture(scope="module")
def sample() -> Trace:
    return open_trace(SAMPLE, OpenOptions(cache=False))


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All-reduces of two ranks: of three sizes in sizes/three, of two in sizes/two."""
    root = tmp_path_factory.mktemp("sized") / "sizes"
    for name, count in (("three", 3), ("two", 2)):
        (root / name).mkdir(parents=True)
        for rank in (0, 1):
            write(root / name / f"rank{rank}.json", *all_reduces(count), **of_rank(rank, 2))
    return root


def all_reduces(count: int) -> list[Event]:
    """Return twenty all-reduces of each size, of 1, 4, 16 MiB."""
    events: list[Event] = []
    for k in range(20 * count):
        elements, begin = 1 << (18 + 2 * (k % count)), 1000 * k
        gpu = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, 100 << (k % count), k + 1)
        gpu["args"] |= {
            "Collective name": "allreduce", "dtype": "Float", "In msg nelems": elements,
            "Out msg nelems": elements, "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        }  # fmt: skip
        events += [launch(k + 1, begin - 15), gpu]
    return events


@pytest.fixture(scope="module")
def visitor(browser: Any, sample: Trace, sizes: Path) -> Iterator[tuple[Any, list[str]]]:
    with serving(Runs([sizes], trace=sample)) as address:
        yield from visiting(browser, address)


def drawn(page: Any, label: str) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = page.evaluate(_DRAWN, label)
    return traces


def test_kernels(page: Any, sample: Trace) -> None:
    """Top kernels, what tensor cores run, and each under the roofline."""
    go(page, "/kernels")
    settled(page)
    rows = ask_trace(sample, "kernel_top", n=20).to_pylist()
    bars = drawn(page, "top kernels")
    found = {
        int(y): (x, t) for b in bars for x, y, t in zip(b["x"], b["y"], b["text"], strict=True)
    }
    assert sorted(found) == list(range(len(rows)))
    for number, row in enumerate(rows):
        length, text = found[number]
        assert length == pytest.approx(row["total_ns"] / 1e6)
        assert text.replace("&lt;", "<") == shorten_text(row["name"], 56)
    for bar in bars:
        assert bar["lengths"] == pytest.approx([x * bar["pixels"] for x in bar["x"]], abs=2)
    families = [
        r for r in ask_trace(sample, "kernel_families").to_pylist() if r["kind"] == "compute"
    ]
    columns = ("tensor_core_ns", "no_tensor_core_ns", "tensor_core_unknown_ns")
    for bar, column in zip(drawn(page, "tensor cores"), columns, strict=True):
        times = {row["family"]: (row[column] or 0) / 1e6 for row in families}
        assert dict(zip(bar["y"], bar["x"], strict=True)) == pytest.approx(times)
        assert bar["lengths"] == pytest.approx([x * bar["pixels"] for x in bar["x"]], abs=2)
    label = "Roofline: how close does the work come to what its GPU can do?"
    roofs = drawn(page, label)
    found_points = sorted(
        (d["name"], x, y)
        for d in roofs
        if d["mode"] == "markers"
        for x, y in zip(d["x"], d["y"], strict=True)
    )
    expected = sorted(
        (r["family"] or "several", r["flops_per_byte"], r["achieved_tflops"])
        for r in ask_trace(sample, "roofline", by="kernel", n=100).to_pylist()
        if r["flops_per_byte"] and r["achieved_tflops"]
    )
    assert expected and [p[0] for p in found_points] == [p[0] for p in expected]
    for found_point, point in zip(found_points, expected, strict=True):
        assert found_point[1:] == pytest.approx(point[1:])
    peaks = {"bf16": 312.0, "tf32": 156.0, "fp32": 19.5}  # of an A100, in TFLOP/s
    limits = {d["name"].split()[-1]: d for d in roofs if d["mode"] == "lines"}
    assert limits.keys() == peaks.keys()
    for kind, limit in limits.items():
        reached = [min(peaks[kind], 2.0 * x) for x in limit["x"]]  # 2 TB/s of memory
        assert limit["y"] == pytest.approx(reached)
        assert any(x == pytest.approx(peaks[kind] / 2.0) for x in limit["x"]), "its bend"


def test_communication(page: Any, sample: Trace) -> None:
    """Who waits in which collective, and bandwidth by size."""
    go(page, "/communication")
    settled(page)
    (cells,) = drawn(page, "Who waits in which collective?")
    rows = ask_trace(sample, "collective_times").to_pylist()
    expected = {
        (f"{r['type']} {r['match']}", f"rank {r['rank']}"): r["wait_ns"] / 1e6
        for r in rows
        if r["match"] is not None and r["wait_ns"] is not None
    }
    found = {
        (x, y): cells["z"][j][i]
        for j, y in enumerate(cells["y"])
        for i, x in enumerate(cells["x"])
        if isinstance(cells["z"][j][i], int | float)
    }
    assert expected and found == pytest.approx(expected)
    begins = {f"{r['type']} {r['match']}": r["start_ns"] for r in reversed(rows)}
    assert sorted(cells["x"], key=lambda name: begins[name]) == cells["x"], "in their order"
    points = [
        (x, y)
        for line in drawn(page, "Bus bandwidth by size")
        if "markers" in line["mode"]
        for x, y in zip(line["x"], line["y"], strict=True)
    ]
    study = ask_trace(sample, "bucket_study").to_pylist()
    assert sorted(points) == [
        pytest.approx(p) for p in sorted((r["size_from_bytes"], r["busbw_gbps_p50"]) for r in study)
    ]


def test_a_limit_of_bandwidth_needs_three_sizes(page: Any, sizes: Path) -> None:
    """It stands where the table says, over all sizes; of two sizes none is drawn."""
    rows = ask_trace(
        open_trace(sizes / "three", OpenOptions(cache=False)), "bucket_study"
    ).to_pylist()
    assert len({row["size_from_bytes"] for row in rows}) == 3
    peak = max(row["peak_busbw_gbps"] for row in rows)
    for run, levels in (("three", [peak, peak]), ("two", [])):
        go(page, f"/communication?run=sizes/{run}")
        settled(page)
        limits = [d for d in drawn(page, "Bus bandwidth by size") if d["mode"] == "lines"]
        assert [y for limit in limits for y in limit["y"]] == pytest.approx(levels)
        assert all(min(d["x"]) < 2**20 and max(d["x"]) > 2**24 for d in limits)


def test_the_overview_has_no_part_for_what_was_not_recorded(page: Any, sizes: Path) -> None:
    """Neither memory nor steps nor operators: said once, at the foot."""
    go(page, "/?run=sizes/two")
    settled(page)
    parts = page.locator("main .halves section h2").all_inner_texts()
    lacking = ("memory_peaks", "step_variance", "op_breakdown")
    assert not {find_analysis(name).question for name in lacking} & set(parts)
    assert find_analysis("comm_compute_overlap").question in parts
    assert "memory" in page.inner_text("main .mark.missing")


@pytest.mark.parametrize("path", ["/", "/idle"])
def test_busy_over_time(page: Any, sample: Trace, path: str) -> None:
    """Each slice against the spans of the activities; what runs beside compute is not counted."""
    go(page, path)
    settled(page)
    layers = {d["name"]: d for d in drawn(page, "Busy over time")}
    assert {"compute", "exposed communication"} <= layers.keys()
    middle = layers["compute"]["x"]
    width = middle[1] - middle[0]
    rows = sample.tables["activities"].select(["rank", "kind", "start_ns", "end_ns"]).to_pylist()
    for k in range(5, len(middle), 29):
        low, high = ((middle[k] + side * width / 2) * 1e6 + sample.origin_ns for side in (-1, 1))
        whole, compute = 0.0, 0.0
        for rank in sample.ranks:
            spans = [
                (max(r["start_ns"], low), min(r["end_ns"], high), r["kind"] == "compute")
                for r in rows
                if r["rank"] == rank and r["start_ns"] < high and r["end_ns"] > low
                and r["kind"] in ("compute", "comm")
            ]  # fmt: skip
            whole += covered([span[:2] for span in spans])
            compute += covered([span[:2] for span in spans if span[2]])
        share = 100 / (high - low) / len(sample.ranks)
        found = [layers[name]["y"][k] for name in ("compute", "exposed communication")]
        assert found == pytest.approx([share * compute, share * (whole - compute)], abs=0.05)


def covered(spans: list[tuple[float, float]]) -> float:
    """Return how long at least one of the spans lasts."""
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_flame_chart(page: Any, sample: Trace) -> None:
    """Boxes are as wide as their operators' GPU time is long."""
    go(page, "/operators")
    settled(page)
    (tree,) = drawn(page, "Call tree by GPU time")
    widths = dict(tree["cells"])
    rows = {str(r["id"]): r for r in ask_trace(sample, "op_tree").to_pylist()}
    roots = [r for r in rows.values() if r["parent"] is None and r["device_total_ns"]]
    total = sum(r["device_total_ns"] for r in roots)
    assert {i for i, r in rows.items() if r["device_total_ns"]} == widths.keys() - {"all"}
    for number, width in widths.items():
        time = total if number == "all" else rows[number]["device_total_ns"]
        assert width / widths["all"] == pytest.approx(time / total, abs=0.005)


def test_waterfall_of_two_sides(page: Any, sample: Trace) -> None:
    """From the base's total to the new one's, by what changed."""
    go(page, "/compare?o.base=0&o.new=1")
    settled(page)
    base, new = (sample.sel(ranks=[rank]).tables for rank in (0, 1))
    rows = {r["name"]: r for r in compare_runs(base, new, ("time",), 200).to_pylist()}
    total = rows.pop("total")
    (falls,) = drawn(page, "From base to new, a step")
    parts = {name: r["diff_ns"] / 1e6 for name, r in rows.items() if r["diff_ns"]}
    assert parts and falls["y"][0] == "base" and falls["y"][-1] == "new"
    assert dict(zip(falls["y"][1:-1], falls["x"][1:-1], strict=True)) == pytest.approx(parts)
    assert falls["x"][0] == pytest.approx(total["base_ns"] / 1e6)
    assert falls["x"][-1] == pytest.approx(total["new_ns"] / 1e6)


def test_what_if(page: Any, sample: Trace) -> None:
    """Bounds of remedies alone, and the way from the measured step to the predicted."""
    go(page, "/whatif?o.network=bandwidth%3D2x")
    settled(page)
    rows = [r for r in WhatIf(sample).run().to_pylist() if r["step_time_ns"] is not None]
    (bars,) = drawn(page, "Best case of each remedy alone")
    gains = sorted((r["measured_step_time_ns"] - r["step_time_ns"]) / 1e6 for r in rows)
    assert rows and bars["x"] == pytest.approx(gains)
    assert bars["lengths"] == pytest.approx([abs(x) * bars["pixels"] for x in gains], abs=2)
    row = WhatIf(sample).network(bandwidth=2).run().to_pylist()[0]
    (falls,) = drawn(page, "what changes")
    causes = {name: ns / 1e6 for name, ns in json.loads(row["waterfall"]).items() if ns}
    assert causes
    assert dict(zip(falls["y"][1:-1], falls["x"][1:-1], strict=True)) == pytest.approx(causes)
    assert falls["x"][0] == pytest.approx(row["measured_step_time_ns"] / 1e6)
    assert falls["x"][-1] == pytest.approx(row["step_time_ns"] / 1e6)


def test_batch_by_sharding(page: Any, sample: Trace) -> None:
    """A cell is the time per sample, in % of now; its words are the step; what is too large for
    the GPU or has no answer is blank."""
    go(page, "/whatif")
    settled(page)
    cells, words = drawn(page, "Micro-batch × sharding")
    asked = WhatIf(sample).sweep("batch", *BATCHES).sweep("sharding", *SHARDINGS)
    rows = {r["whatif"]: r for r in asked.run().to_pylist()}
    said = dict(zip(zip(words["x"], words["y"], strict=True), words["text"], strict=True))
    blank = 0
    for j, sharding in enumerate(cells["y"]):
        for i, batch in enumerate(cells["x"]):
            row = rows.pop(f"batch {batch}, sharding {sharding}")
            change, share = row["time_per_sample_change_pct"], cells["z"][j][i]
            if change is None or "out of memory" in (row["mark"] or ""):
                assert not isinstance(share, int | float)
                blank += 1
            else:
                assert share == pytest.approx(100 + change)
            if row["step_time_ns"] is not None:
                assert said[batch, sharding].startswith(format_duration(row["step_time_ns"]))
    assert not rows and blank < len(BATCHES) * len(SHARDINGS)


def test_scenarios_lie_in_their_intervals(page: Any, sample: Trace) -> None:
    scenarios = {"links": ("network", "bandwidth=2x"), "batch": ("batch", "2x")}
    saved = "|".join(f"{name}~{edit}={value}" for name, (edit, value) in scenarios.items())
    go(page, f"/whatif?o.saved={quote(saved)}")
    settled(page)
    label = "Step time, with 50 % and 90 % intervals"
    wide, narrow, dots = drawn(page, label)
    for k, (name, (edit, value)) in enumerate(scenarios.items()):
        row = WhatIf(sample).change(edit, value).run().to_pylist()[0]
        for bars, level in ((wide, 90), (narrow, 50)):
            low, high = (row[f"step_time_ns_{end}{level}"] / 1e6 for end in ("lo", "hi"))
            assert bars["y"][k] == name
            assert [bars["base"][k], bars["x"][k]] == pytest.approx([low, high - low])
            assert bars["lengths"][k] == pytest.approx((high - low) * bars["pixels"], abs=2)
        assert (dots["y"][k], dots["x"][k]) == (name, pytest.approx(row["step_time_ns"] / 1e6))
    measured = row["measured_step_time_ns"] / 1e6
    ((left, right, *_),) = page.evaluate(_LINES, label)
    assert [left, right] == pytest.approx([measured, measured])


def test_best_cases_have_their_intervals(page: Any, sample: Trace) -> None:
    go(page, "/whatif")
    settled(page)
    rows = [r for r in WhatIf(sample).run().to_pylist() if r["step_time_ns"] is not None]
    (bars,) = drawn(page, "Best case of each remedy alone")
    rows.sort(key=lambda r: -r["step_time_ns"])
    ends = [
        ((r["step_time_ns"] - r["step_time_ns_lo90"]), (r["step_time_ns_hi90"] - r["step_time_ns"]))
        for r in rows
    ]
    assert bars["over"] == pytest.approx([over / 1e6 for over, _ in ends])
    assert bars["under"] == pytest.approx([under / 1e6 for _, under in ends])


def test_a_name_has_one_colour_on_all_pages(page: Any) -> None:
    """That which its owner gives it, wherever it is drawn."""
    fills: dict[str, set[str]] = defaultdict(set)
    for path in ("", "kernels", "communication", "memory", "idle", "operators"):
        go(page, f"/{path}")
        settled(page)
        for name, fill in page.evaluate(_FILLS):
            fills[name].add(fill)
    assert {"compute", "exposed communication", "gemm", "rank 0"} <= fills.keys()
    codes = {words.removeprefix("idle: "): code for code, words in IDLE_WORDS.items()}
    for name, found in fills.items():
        own = codes.get(name, name).replace("_", " ") if name in codes else name
        if place_of(own) is not None or meaning_of(own):
            assert found == {colour_of(own, LIGHT)}, name
