"""How fast the timeline answers, how much it sends, how it moves in a browser.

    python bench/timeline.py [--events 100000 1000000] [--browser]

Prints one JSON object. For each number of made-up events on 8 ranks, in a process of its own:
seconds of CPU to build the index, and its memory; of requests of a screen of
1920 pixels, from the whole down to deep zoom, anywhere: time with compression, by the clock and by
the processor (less, on a busy machine), and compressed size; seconds of CPU for the page that opens
from disk, its size, what it left out, and the most memory of the process, the made-up events
included. With --browser: the same behind the dashboard's server, driven by Chromium: frame time
while panning and zooming, time to fresh data after a move; and of the page from disk, the time to
open.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.detail import Detail
from htk.traces.timeline.lanes import assemble_lanes
from htk.traces.timeline.page import Events, write_bounded_page
from htk.traces.timeline.sources import KINDS, SpanSource
from htk.traces.trace.opening import OpenOptions, open_trace

RANKS, WIDTH, ROWS = 8, 1920, 60
_STREAMS = 4
_CPU, _LAUNCH = KINDS.index("cpu"), KINDS.index("launch")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--events", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--browser", action="store_true")
    args = parser.parse_args()
    few, *more = args.events
    by_events = {f"{few} events": of_events(few, args.browser)}
    for count in more:  # in processes of their own, for the memory of each
        words = [sys.executable, __file__, "--events", str(count)]
        words += ["--browser"] if args.browser else []
        by_events |= json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    print(json.dumps(by_events, indent=1))


def of_events(count: int, browser: bool) -> dict[str, Any]:
    timeline = TraceTimeline(open_trace("sample", OpenOptions(cache=False)))
    events = made_up(count)
    begun = time.process_time()
    timeline.lanes = assemble_lanes(events, 0)
    timeline.detail = detail = Detail(timeline.lanes)
    detail.view(0, detail.lanes.high, WIDTH, range(ROWS))
    built = time.process_time() - begun
    figures = {
        "events": len(detail.lanes.start),
        "lanes": len(detail.lanes.lanes),
        "build_s": round(built, 2),
        "index_mb": round(_held_bytes(detail, set()) / 2**20),
        **requests(timeline),
    }
    begun = time.process_time()
    page = as_page(timeline)
    figures["page_s"] = round(time.process_time() - begun, 1)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["process_mb"] = most // 1024
    figures["page_mb"] = round(len(page) / 1e6, 2)
    figures["page_left_out"] = page.partition('"badges":')[2].partition("]")[0].strip('["')
    if browser:
        figures |= in_browser(timeline, page)
    return figures


def _held_bytes(holder: Any, seen: set[int]) -> int:
    """Return the bytes of the arrays that something holds, each counted once."""
    if id(holder) in seen:
        return 0
    seen.add(id(holder))
    if isinstance(holder, np.ndarray):
        return holder.nbytes
    parts = getattr(holder, "__dict__", {})
    return sum(_held_bytes(part, seen) for part in parts.values())


def requests(timeline: TraceTimeline, each: int = 12) -> dict[str, Any]:
    """Requests as the canvas makes them: half a view more than is seen, the lanes of a screen."""
    rng = np.random.default_rng(1)
    high, lanes = timeline.lanes.high, len(timeline.lanes.lanes)
    spent, worked, sizes = [], [], []
    for zoom in (1, 3, 10, 30, 100, 1000, 10_000):
        for _ in range(each):
            span = high / zoom
            start = rng.uniform(0, high - span)
            first = int(rng.integers(0, max(1, lanes - ROWS)))
            query = {
                "start": str(start - span / 4),
                "end": str(start + span * 1.25),
                "width": str(WIDTH * 3 // 2),
                "lanes": f"{first}..{min(lanes, first + ROWS) - 1}",
            }
            begun, before = time.perf_counter(), time.thread_time()
            data = timeline.answer("view", query)
            spent.append(time.perf_counter() - begun)
            worked.append(time.thread_time() - before)
            sizes.append(len(data))
    return {
        "request_ms": {q: _ms(spent, q) for q in (50, 95, 100)},
        "request_cpu_ms": {q: _ms(worked, q) for q in (50, 95, 100)},
        "sent_kb": {
            "p50": round(statistics.median(sizes) / 1000),
            "max": round(max(sizes) / 1000),
        },
    }


def as_page(timeline: TraceTimeline) -> str:
    lanes = timeline.lanes
    kernels = np.flatnonzero(lanes.kind < 3)
    calls = np.flatnonzero(lanes.kind == _LAUNCH)
    cause = np.full(len(lanes.start), -1, np.int64)
    cause[kernels] = calls[np.minimum(np.arange(len(kernels)), len(calls) - 1)]
    none = np.full(len(lanes.start), -1, np.int64)
    return write_bounded_page(Events(lanes, cause, none), timeline.about(), "made up", {})


def made_up(count: int) -> list[SpanSource]:
    """Two of five events on GPUs; operators three deep, with a launch in the innermost."""
    rng = np.random.default_rng(0)
    each = count // RANKS
    parts = []
    for rank in range(RANKS):
        parts.append(_gpu(rng, rank, each * 2 // 5))
        parts += _host(rng, rank, each * 3 // 5)
    return parts


def _gpu(rng: np.random.Generator, rank: int, count: int) -> SpanSource:
    track = rng.choice(_STREAMS, count, p=[0.7, 0.15, 0.1, 0.05])
    length = rng.lognormal(9.5, 1.0, count).astype(np.int64) + 800
    gap = rng.exponential(4000, count).astype(np.int64)
    start = np.zeros(count, np.int64)
    for stream in range(_STREAMS):
        on_stream = track == stream
        share = on_stream.mean()
        busy = np.cumsum(((length + gap)[on_stream] / max(share, 0.01)).astype(np.int64))
        start[on_stream] = busy - length[on_stream]
    kind = np.where(track == 1, 1, np.where(track == 3, 2, 0))
    names = [f"void kernel_{k}<c10::BFloat16, {k % 7}>(long, int)" for k in range(400)]
    tracks = [f"stream {7 + s}" for s in range(_STREAMS)]
    return _source("kernels", "streams", rank, track, tracks, kind, names, rng, start, length)


def _host(rng: np.random.Generator, rank: int, count: int) -> list[SpanSource]:
    """Trees of an operator, two inside of it one after the other, and a launch in each."""
    trees = count // 5
    length = rng.lognormal(10.6, 0.8, trees).astype(np.int64) + 5000
    start = np.cumsum(length + rng.exponential(9000, trees).astype(np.int64)) - length
    thread = (np.arange(trees) // 50) % 2
    half = length // 2 - 400
    inner = np.concatenate([start + 200, start + 300 + half])
    halves, threads = np.concatenate([half, half]), np.concatenate([thread, thread])
    tracks = ["thread 4000", "thread 4001"]
    names = [f"aten::operator_{k}" for k in range(300)]
    ops = _source(
        "cpu_ops",
        "threads",
        rank,
        np.concatenate([thread, threads]),
        tracks,
        np.full(3 * trees, _CPU),
        names,
        rng,
        np.concatenate([start, inner]),
        np.concatenate([length, halves]),
    )
    calls = _source(
        "launches",
        "threads",
        rank,
        threads,
        tracks,
        np.full(2 * trees, _LAUNCH),
        ["cudaLaunchKernel", "cudaMemcpyAsync"],
        rng,
        inner + halves // 3,
        np.minimum(halves // 3, 4000),
    )
    return [ops, calls]


def _source(
    table: str,
    section: str,
    rank: int,
    track: Any,
    tracks: list[str],
    kind: Any,
    names: list[str],
    rng: np.random.Generator,
    start: Any,
    length: Any,
) -> SpanSource:
    count = len(start)
    name = np.minimum(rng.zipf(1.4, count) - 1, len(names) - 1)
    who = np.full(count, rank)
    rows = np.arange(count)
    return SpanSource(
        table, section, who, track, tracks, kind, name, names, start, start + length, rows
    )


def in_browser(timeline: TraceTimeline, page: str) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("HTK_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as p, tempfile.TemporaryDirectory() as folder:
        opened = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        figures = {"served": _driven(opened, _served(timeline))}
        file = Path(folder) / "page.html"
        file.write_text(page)
        figures["from_disk"] = _driven(opened, file.as_uri())
        opened.close()
    return figures


def _served(timeline: TraceTimeline) -> str:
    """The dashboard's server, with this timeline in place of its run's."""
    from waitress.server import create_server

    from htk.dashboard.app import create_app
    from htk.dashboard.runs import Runs
    from htk.dashboard.timeline import routes

    routes.TraceTimeline = lambda trace, aligned: timeline  # type: ignore[assignment,misc]
    app = create_app(Runs(trace=timeline.trace))
    server = create_server(app.server, host="127.0.0.1", port=0, threads=8)
    threading.Thread(target=server.run, daemon=True).start()
    return f"http://127.0.0.1:{server.effective_port}/timeline"


# Pans and zooms 90 frames, then jumps 30 times and waits for data of that very view.
_DRIVE = """async () => {
  const h = window.htkHandle, s = h.state, frames = [], fresh = [];
  const whole = s.about.high - s.about.low, frame = () => new Promise(requestAnimationFrame);
  let last = await frame();
  for (let k = 0; k < 90; k++) {
    const span = whole / (2 + k);
    h.go(s.about.low + (k / 120) * whole, s.about.low + (k / 120) * whole + span);
    const now = await frame();
    frames.push(now - last);
    last = now;
  }
  while (!h.idle()) await frame();
  for (let k = 0; k < 30; k++) {
    const span = whole / (1 + k * k), from = s.about.low + ((k * 0.37) % 1) * (whole - span);
    const before = s.shown, begun = performance.now();
    h.go(from, from + span);
    while (s.shown === before || !h.idle()) await new Promise((r) => setTimeout(r, 1));
    fresh.push(performance.now() - begun);
  }
  return { frames, fresh };
}"""


def _driven(browser: Any, address: str) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": WIDTH, "height": 1080})
    begun = time.perf_counter()
    page.goto(address)
    while not page.evaluate("() => !!window.htkHandle && window.htkHandle.count() >= 0"):
        page.wait_for_timeout(20)
    opened = time.perf_counter() - begun
    page.wait_for_timeout(500)
    drawn = page.evaluate(_DRIVE)
    page.close()
    return {
        "opens_s": round(opened, 2),
        "frame_ms": {q: _at(drawn["frames"], q) for q in (50, 95, 100)},
        "fresh_ms": {q: _at(drawn["fresh"], q) for q in (50, 95, 100)},
    }


def _at(values: list[float], q: int) -> float:
    return round(float(np.percentile(values, q)), 1)


def _ms(seconds: list[float], q: int) -> float:
    return _at([1000 * s for s in seconds], q)


if __name__ == "__main__":
    main()
