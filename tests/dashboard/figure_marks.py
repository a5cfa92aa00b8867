"""What a figure of a page shows, as its marks lie in the browser."""

from typing import Any

from tests.dashboard.conftest import until

# The marks as they lie in the SVG, and the data that Plotly bound to each; of an axis its title
# and the names of its places.
_READ = """label => {
  const figure = [...document.querySelectorAll('main figure.plot')]
    .find(f => f.getAttribute('aria-label') === label);
  const gd = figure && figure.querySelector('.js-plotly-plot');
  if (!gd || !gd.calcdata || !gd.querySelector('.main-svg')) return null;
  const { xaxis, yaxis } = gd._fullLayout;
  const name = (axis, p) => axis?.type === 'category' ? axis._categories[p]
    : axis?.type === 'log' && typeof p === 'number' ? p : p;
  const bars = [], points = [], cells = [];
  for (const group of gd.querySelectorAll('.barlayer .trace')) {
    const { trace } = group.__data__[0], lies = trace.orientation === 'h';
    for (const path of group.querySelectorAll('.point path')) {
      const mark = path.parentNode.__data__, box = path.getBBox();
      const along = lies ? xaxis : yaxis;
      const ends = lies ? [box.x, box.x + box.width] : [box.y + box.height, box.y];
      bars.push({ trace: trace.name, at: name(lies ? yaxis : xaxis, mark.p), value: mark.s,
        from: mark.b, ends: ends.map(e => along.p2l(e)),
        pixel: Math.abs(along.p2l(1) - along.p2l(0)),
        box: [box.x, box.y, box.x + box.width, box.y + box.height] });
    }
  }
  for (const group of gd.querySelectorAll('.scatterlayer .trace')) {
    const { trace } = group.__data__[0];
    for (const mark of group.__data__)
      if (typeof mark.x === 'number' && typeof mark.y === 'number')
        points.push({ trace: trace.name, x: name(xaxis, mark.x), y: name(yaxis, mark.y) });
  }
  for (const [mark] of gd.calcdata) {
    if (mark.trace.type !== 'heatmap') continue;
    const { _x, _y, _z, x, y, z } = mark.trace;
    (_z || z).forEach((row, j) => row.forEach((value, i) => {
      if (value !== undefined && value !== null && !Number.isNaN(value))
        cells.push({ trace: mark.trace.name, value,
          x: _z ? name(xaxis, _x[i]) : x[i], y: _z ? name(yaxis, _y[j]) : y[j] });
    }));
  }
  const title = axis => axis?.title?.text || '';
  const bar = gd.calcdata.map(c => c[0].trace.colorbar).find(Boolean);
  return { bars, points, cells, x: title(xaxis), y: title(yaxis), scale: title(bar),
    mode: gd._fullLayout.barmode };
}"""


def drawn(page: Any, label: str) -> dict[str, Any]:
    """Return what a figure of the page shows, found by its label."""
    until(page, f"label => !!({_READ})(label)", label)
    picture: dict[str, Any] = page.evaluate(_READ, label)
    return picture
