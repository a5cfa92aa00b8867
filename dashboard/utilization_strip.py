"""How busy the GPUs are over time; a range drawn with the mouse becomes the time filter."""

from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, match_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, merge_spans
from htk.base.columns.types import Ints
from htk.dashboard import plots
from htk.dashboard.components import draw_empty_panel, draw_plot, draw_section
from htk.dashboard.page import Visit
from htk.quantities.derived.recorded import recorded_spans
from htk.traces.timeline.cuts import group_recordings

_SLICES = 300
_LEAST = 12  # slices of a recording, however short
_LEAST_LOST = 0.5  # %: ranks never begin and end at once
_KINDS = ("compute", "comm", "memory")

Layers = tuple[list[float], dict[str, list[float]]]  # edges of the slices in ms, and their parts


def draw_utilization_strip(visit: Visit) -> Any:
    """Return the brush, over the whole recording whatever range is chosen."""
    heading = "Busy over time"
    computed = visit.kept("busy", lambda: _build_layers(visit))
    if computed is None:
        return draw_section(
            heading, draw_empty_panel("No GPU work under the filters that are set.")
        )
    fig = plots.draw_busy_time(computed, visit.dark)
    low = visit.view.selection.from_ns
    high = visit.view.selection.to_ns
    for number, (edges, _) in enumerate(computed, 1):
        begin = edges[0] if low is None else max(edges[0], low / 1e6)
        end = edges[-1] if high is None else min(edges[-1], high / 1e6)
        if (low is not None or high is not None) and begin < end:
            axis = plots.axis_of("x", number)
            fig.add_vrect(x0=begin, x1=end, line_width=1, opacity=0.25, xref=axis)
    plot_id = {"type": "brush", "name": "busy"}
    unrecorded = any("unrecorded" in layers for _, layers in computed)
    note = "Hatched: not recorded of some GPUs. " if unrecorded else ""
    if len(computed) > 1:
        note += f"{len(computed)} recordings; the time between them is left out. "
    note += "Drag across a range to look at it alone, on every page."
    return draw_section(heading, draw_plot(fig, heading, plot_id, 220), note=note)


def _build_layers(visit: Visit) -> list[Layers] | None:
    """Percent of each slice of time that GPUs run each kind, mean over GPUs; by recording."""
    chosen = visit.view.selection.ranks
    trace = visit.runs.trace(visit.view.run)
    if trace is None:
        return None
    table = (trace if chosen is None else trace.sel(ranks=sorted(chosen))).tables["activities"]
    if not table.num_rows:
        return None
    ranks = trace.tables["ranks"]
    origin = trace.origin_ns
    files = np.flatnonzero(mark_valid(ranks["start_ns"]) & mark_valid(ranks["end_ns"]))
    times = [read_numbers(ranks[name])[files] - origin for name in ("start_ns", "end_ns")]
    spans = group_recordings(np.stack(times, 1).tolist())
    if len(spans) < 2:
        return [busy_layers(table, ranks, origin)]
    total = sum(end - start for start, end in spans)
    return [
        busy_layers(table, ranks, origin, span, max(_LEAST, _SLICES * (span[1] - span[0]) // total))
        for span in spans
    ]


def busy_layers(
    table: pa.Table,
    ranks: pa.Table,
    origin_ns: int,
    span: tuple[int, int] | None = None,
    slices: int = _SLICES,
) -> Layers:
    """Percent of each slice that GPUs run each kind, and that was not recorded of some GPU; of the
    whole, or of a span of time."""
    start = read_numbers(table["start_ns"]) - origin_ns
    end = read_numbers(table["end_ns"]) - origin_ns
    who = np.column_stack([read_keys(table[c]) for c in ("rank", "device")])
    lanes = Groups.by_keys(who)
    gpu, gpus = lanes.group_ids, len(lanes)
    if span is None:  # of servers, whose captures are left out, from where they serve
        begins = read_numbers(ranks["start_ns"])[mark_valid(ranks["start_ns"])] - origin_ns
        span = (min(begins.tolist(), default=0), int(end.max()))
    low, high = span
    edges = np.linspace(low, high, slices + 1).astype(np.int64)
    width = np.maximum(np.diff(edges), 1)
    layers = {}
    upto = np.zeros(slices, np.int64)
    kinds = np.zeros(len(start), bool)
    for kind in _KINDS:  # each on top of those before: what runs while none of them does
        kinds |= match_texts(table["kind"], kind.__eq__)
        total = _measure_covered_slices(_merge_by_gpu(gpu[kinds], start[kinds], end[kinds]), edges)
        layers[kind] = (100 * (total - upto) / width / gpus).round(2).tolist()
        upto = total
    recorded = [*recorded_spans(ranks, table).values()]
    held = _measure_covered_slices(
        Spans(*map(np.concatenate, zip(*recorded, strict=True))), edges + origin_ns
    )
    lost = np.clip(100 * (1 - held / width / gpus), 0, 100)
    layers["unrecorded"] = np.where(lost > _LEAST_LOST, lost, 0).round(2).tolist()
    return (edges / 1e6).tolist(), {k: v for k, v in layers.items() if any(v)}


def _merge_by_gpu(gpu: Ints, start: Ints, end: Ints) -> Spans:
    """Return the disjoint spans of each GPU, one GPU's behind the other's."""
    if not len(start):
        return Spans(start, end)
    low = int(start.min())
    apart = int(end.max()) - low + 1  # each on a stretch of its own
    spans = merge_spans(start + gpu * apart, end + gpu * apart)
    own = (spans.start - low) // apart * apart
    return Spans(spans.start - own, spans.end - own)


def _measure_covered_slices(spans: Spans, edges: Ints) -> Ints:
    """Return the time covered in each slice, added up over spans that may lie over each other."""
    covered: Ints = np.diff(_measure_passed(spans.start, edges) - _measure_passed(spans.end, edges))
    return covered


def _measure_passed(moments: Ints, times: Ints) -> Ints:
    """Return how long each time lies behind the moments before it, added up."""
    moments = np.sort(moments)
    sums = np.concatenate([[0], np.cumsum(moments - times[0])])
    position = np.searchsorted(moments, times, side="right")
    passed: Ints = position * (times - times[0]) - sums[position]
    return passed
