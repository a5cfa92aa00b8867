"""Pictures that pages compose by hand, against the tables that belong to them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from htk.answers.ask import ask
from htk.compare.runs import compare
from htk.core.humanize import shorten
from htk.dashboard.runs import Runs
from htk.trace.opening import SAMPLE, OpenOptions, open_trace
from htk.trace.trace import Trace
from htk.whatif.api import WhatIf
from tests.dashboard.conftest import go, serving, settled, visiting

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
    return { kind: trace.type, name: trace.name, text: trace.text && [...trace.text],
      mode: trace.mode, x: [...trace.x], y: [...trace.y], sums: marks.map(m => m.rawS),
      lengths: [...gd.querySelectorAll('.barlayer .trace')].filter(
        g => g.__data__[0].trace.index === trace.index).flatMap(
        g => [...g.querySelectorAll('.point path')].map(p => p.getBBox().width)),
      pixels: gd._fullLayout.xaxis?._m };
  });
}"""


@pytest.fixture(scope="module")
def sample() -> Trace:
    return open_trace(SAMPLE, OpenOptions(cache=False))


@pytest.fixture(scope="module")
def visitor(browser: Any, sample: Trace) -> Iterator[tuple[Any, list[str]]]:
    with serving(Runs([], trace=sample)) as address:
        yield from visiting(browser, address)


def drawn(page: Any, label: str) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = page.evaluate(_DRAWN, label)
    return traces


def test_kernels(page: Any, sample: Trace) -> None:
    """Top kernels, what tensor cores run, and each operator under the roofline."""
    go(page, "/kernels")
    settled(page)
    rows = ask(sample, "kernel_top", n=20).to_pylist()
    bars = drawn(page, "top kernels")
    found = {
        int(y): (x, t) for b in bars for x, y, t in zip(b["x"], b["y"], b["text"], strict=True)
    }
    assert sorted(found) == list(range(len(rows)))
    for number, row in enumerate(rows):
        length, text = found[number]
        assert length == pytest.approx(row["total_ns"] / 1e6)
        assert text.replace("&lt;", "<") == shorten(row["name"], 56)
    for bar in bars:
        assert bar["lengths"] == pytest.approx([x * bar["pixels"] for x in bar["x"]], abs=2)
    families = [r for r in ask(sample, "kernel_families").to_pylist() if r["kind"] == "compute"]
    columns = ("tensor_core_ns", "no_tensor_core_ns", "tensor_core_unknown_ns")
    for bar, column in zip(drawn(page, "tensor cores"), columns, strict=True):
        times = {row["family"]: (row[column] or 0) / 1e6 for row in families}
        assert dict(zip(bar["y"], bar["x"], strict=True)) == pytest.approx(times)
        assert bar["lengths"] == pytest.approx([x * bar["pixels"] for x in bar["x"]], abs=2)
    label = "Roofline: how close does each operator come to what its GPU can do?"
    roofs = drawn(page, label)
    found_points = sorted(
        (d["name"], x, y)
        for d in roofs
        if d["mode"] == "markers"
        for x, y in zip(d["x"], d["y"], strict=True)
    )
    expected = sorted(
        (r["family"], r["flops_per_byte"], r["achieved_tflops"])
        for r in ask(sample, "roofline", n=100).to_pylist()
        if r["flops_per_byte"] and r["achieved_tflops"]
    )
    assert expected and [p[0] for p in found_points] == [p[0] for p in expected]
    for found_point, point in zip(found_points, expected, strict=True):
        assert found_point[1:] == pytest.approx(point[1:])


def test_communication(page: Any, sample: Trace) -> None:
    """Who waits in which collective, and bandwidth by size."""
    go(page, "/communication")
    settled(page)
    (cells,) = drawn(page, "Who waits in which collective?")
    rows = ask(sample, "collective_times").to_pylist()
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
    study = ask(sample, "bucket_study").to_pylist()
    assert sorted(points) == [
        pytest.approx(p) for p in sorted((r["size_from_bytes"], r["busbw_gbps_p50"]) for r in study)
    ]


def test_flame_chart(page: Any, sample: Trace) -> None:
    """Boxes are as wide as their operators' GPU time is long."""
    go(page, "/operators")
    settled(page)
    (tree,) = drawn(page, "Call tree by GPU time")
    widths = dict(tree["cells"])
    rows = {str(r["id"]): r for r in ask(sample, "op_tree").to_pylist()}
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
    rows = {r["name"]: r for r in compare(base, new, ("time",), 200).to_pylist()}
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
