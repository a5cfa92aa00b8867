"""The timeline as one file that opens from disk: the component, and the events packed into it."""

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Ints, take_or
from htk.base.core.humanize import format_duration, format_number
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.counters import MOST_KEPT, Counter, describe_counters
from htk.traces.timeline.detail import Detail
from htk.traces.timeline.facts import known_links
from htk.traces.timeline.lanes import Lanes
from htk.traces.timeline.sources import KINDS

MOST_BYTES = 9_500_000
SCREEN = (
    4000  # pixels that a host call must fill a share of, to be kept in a file that is too large
)
_SAMPLE = 200_000  # events, whose size in the file tells about that of all
_TRIED = 1 << 15  # bytes of a plane
_CLEARLY = 1.25  # beyond the limit by such an estimate: not worth packing to find out
_ASSETS = Path(__file__).parents[2] / "dashboard" / "assets"
COMPONENT = ("base", "cuts", "rows", "tracks", "notes", "draw", "panel", "parts", "input")
_PARTS = (*COMPONENT, "engine", "page")
_HOST = [KINDS.index(kind) for kind in ("cpu", "launch", "python", "range")]


@dataclass(frozen=True)
class Events:
    """Spans to be written, and what each was caused by or matched with (-1: nothing)."""

    lanes: Lanes
    cause: Ints
    match: Ints

    def kept(self, keep: NDArray[np.bool_]) -> "Events":
        """Without some of them."""
        new_row = np.where(keep, np.cumsum(keep) - 1, -1)
        lanes = self.lanes
        chosen = replace(
            lanes,
            lane=lanes.lane[keep],
            name=lanes.name[keep],
            start=lanes.start[keep],
            end=lanes.end[keep],
            table=lanes.table[keep],
            row=lanes.row[keep],
        )
        return Events(chosen, take_or(new_row, self.cause[keep]), self.match[keep])


def read_script(*parts: str) -> str:
    """Return the component as one script."""
    return _read_asset("timeline.js") + _read_parts(*parts)


def _read_asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _read_parts(*parts: str) -> str:
    return "\n".join(_read_asset(f"timeline_{part}.js") for part in parts)


def read_style() -> str:
    return _read_asset("timeline.css")


def render_timeline_page(trace_timeline: TraceTimeline, title: str) -> str:
    """Return one HTML file with every event, or with all but the shortest of the host."""
    about = {**trace_timeline.about(), "nodes": []}
    try:
        about["path"] = trace_timeline.path()
    except HtkError:
        about["can_path"] = False
    cause, match = known_links(trace_timeline.facts)
    events = Events(trace_timeline.lanes, cause, match)
    return write_bounded_page(events, about, title, trace_timeline.counters)


def write_bounded_page(
    events: Events, about: Fields, title: str, counters: Mapping[int, Counter]
) -> str:
    """Return the file, not larger than may be."""
    count, least = len(events.lanes.start), 0
    span = events.lanes.high - events.lanes.low
    bytes_each = _bytes_each(events) if count > _SAMPLE else 0.0
    length = _measure_lengths(events.lanes)
    while True:  # each time fewer: what would not fill a thousandth of a pixel, a hundredth, …
        long_enough = length >= least
        left_out = count - int(long_enough.sum())
        # What is left of the host when nothing short is left fits, or is not the host's fault.
        last = least > span
        if last or bytes_each * (count - left_out) <= _CLEARLY * MOST_BYTES:
            kept = events.kept(long_enough) if left_out else events
            packed = _pack_events(kept)
            if last or len(packed[1]) <= MOST_BYTES:
                break
        least = max(1000, span // (SCREEN * 1000)) if not least else least * 2
    badges = []
    if left_out:
        share = f"{format_number(left_out)} of {format_number(count)}"
        lost = f"{share} events left out: calls of the host under"
        badges.append(f"{lost} {format_duration(least)}, less than a pixel of the whole")
    about["counters"], few = _with_points(counters)
    if few:
        badges.append(f"counters: {few} points of each, their extremes among them")
    facts = {
        **about,
        **packed[0],
        "path": _renumber_path(about.get("path"), events, least),
        "badges": badges,
        "can_align": False,
    }
    return _render_html(facts, packed[1], title)


def _bytes_each(events: Events) -> float:
    """Return about how many bytes an event takes in the file, by those in the middle of all."""
    start = events.lanes.start
    share = _SAMPLE / 2 / len(start)
    low, high = np.quantile(start, [0.5 - share, 0.5 + share])
    some = events.kept((start >= low) & (start <= high))
    return len(_pack_events(some)[1]) / max(len(some.lanes.start), 1)


def _with_points(counters: Mapping[int, Counter]) -> tuple[list[Fields], int]:
    """Return the counters with their points, and how many are kept of each; 0: all of them."""
    few = MOST_KEPT // max(1, len(counters))
    listed = describe_counters(counters)
    for counter in listed:
        kept = counters[counter["lane"]].reduced(few)
        values = [None if value != value else value for value in kept.value.tolist()]
        counter["points"] = [kept.time.tolist(), values]
    return listed, few if any(len(c.time) > few for c in counters.values()) else 0


def _renumber_path(path: Any, events: Events, least: int) -> Any:
    """Return the path, its spans numbered as they lie in the file."""
    if not path:
        return None
    keep = _measure_lengths(events.lanes) >= least
    new_span = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
    return {**path, "id": new_span[np.array(path["id"], np.int64)].tolist()}


def _measure_lengths(lanes: Lanes) -> Ints:
    """Return how long each event is that may be left out, in ns; the others are longer than any."""
    host = np.isin(lanes.kind, _HOST)
    return np.where(host, lanes.end - lanes.start, np.iinfo(np.int64).max)


def _pack_events(events: Events) -> tuple[Fields, str]:
    """Return what the page is told of its columns, and the columns: planes of bytes, compressed."""
    lanes = events.lanes
    detail = Detail(lanes)
    offset = detail.offset[:-1].tolist()
    first = np.zeros(len(lanes.start), bool)
    first[offset] = True
    before = np.where(first, lanes.low, np.append(0, lanes.end[:-1])[: len(first)])
    columns = {
        "gap": lanes.start - before,
        "length": lanes.end - lanes.start,
        "name": lanes.name,
        "cause": _fold_differences(events.cause, first),
        "match": _fold_differences(events.match, first),
    }
    planes = []
    sizes = []
    for name, values in columns.items():
        count = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        sizes.append([name, count])
        planes += [(values >> (8 * p)).astype(np.uint8).tobytes() for p in range(count)]
    data = b64encode(_compress_planes(planes)).decode()
    parts = [
        [int(lane), int(first_row)]
        for lane, first_row in zip(detail.part_lane, offset, strict=True)
    ]
    return {"events": len(first), "columns": sizes, "parts": parts}, data


def _compress_planes(planes: Sequence[bytes]) -> bytes:
    """Return planes as one gzip stream, in the way that packs the middle of each smaller: repeated
    steps repeat sequences of bytes; without them most of what repeats are runs of one byte."""
    middle = b"".join(plane[len(plane) // 2 :][:_TRIED] for plane in planes)
    ways = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_RLE)
    return _compress_data(
        b"".join(planes), min(ways, key=lambda way: len(_compress_data(middle, way)))
    )


def _compress_data(data: bytes, way: int) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS, strategy=way)
    return stream.compress(data) + stream.flush()


def _fold_differences(values: Ints, first: NDArray[np.bool_]) -> Ints:
    """Differences to the value before in the same part, folded to be positive; 0 for none."""
    present = np.flatnonzero(values >= 0)
    part = np.cumsum(first)[present]
    some = values[present]
    last = np.append(0, some[:-1])[: len(some)]
    new = np.ones(len(present), bool)
    new[1:] = part[1:] != part[:-1]
    step = some - np.where(new, 0, last)
    out = np.zeros(len(values), np.int64)
    out[present] = np.where(step >= 0, 2 * step, -2 * step - 1) + 1
    return out


def _render_html(about: Fields, data: str, title: str) -> str:
    # Nothing in a name may end the element that it stands in.
    facts = json.dumps(about, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data: blob:; worker-src blob:">
<title>{escape(title)} – timeline</title>
<style>{read_style()}
body {{ margin: 0; padding: 12px 18px; background: #fff; color: #111827; }}
[data-dark="1"] body {{ background: #111827; color: #f3f4f6; }}
header {{ display: flex; align-items: baseline; justify-content: space-between; gap: 16px;
  font: 13px system-ui, sans-serif; }}
h1 {{ font-size: 20px; margin: 0 0 10px; }}
#dark {{ font: inherit; color: inherit; background: none; border: 1px solid; border-radius: 6px;
  padding: 3px 10px; cursor: pointer; }}
</style>
</head>
<body>
<header><h1>{escape(title)}</h1><button id="dark" type="button">light / dark</button></header>
<main id="timeline">reading the events …</main>
<script type="application/json" id="about">{facts}</script>
<script type="text/plain" id="events">{data}</script>
<script type="text/plain" id="engine">{_read_parts("cuts", "engine", "worker")}</script>
<script>{read_script(*_PARTS)}
htkTimeline.page();</script>
</body>
</html>
"""
