"""The first screen: how long a step takes, where each rank's time goes, what to change first."""

from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html

from htk.core.humanize import format_bytes, format_duration, shorten
from htk.dashboard import plots
from htk.dashboard.components import answered, coverage, empty, grid, picture, plot, section, tile
from htk.dashboard.example_ranges import instance, link
from htk.dashboard.page import Page, Visit, panel
from htk.dashboard.time_shares import shares
from htk.dashboard.utilization_strip import strip
from htk.errors import HtkError
from htk.overview import summary
from htk.overview.doctor import doctor

_KERNELS = ("name", "total_ns", "pct_of_kernel_time", "count", "mean_ns", "kind")
_OPERATORS = ("op", "device_self_ns", "pct_of_device_time", "cpu_self_ns", "count")
_ADVICE = ("finding", "gain_ns", "gain_pct", "evidence", "advice", "analysis")
_HALVES = [("steps", "variance"), ("overlap", "memory"), ("kernels", "operators")]
_MARKS = {"ok": "✓", "note": "i", "warning": "!", "missing": "–"}


def layout(visit: Visit) -> Any:
    if not _profiled(visit):
        return html.Div(
            [dmc.Title("What do these records say?", order=2), panel("", "records", 300)]
        )
    on_gpu = bool(visit.trace.tables["kernels"].num_rows)
    halves = [("steps", "operators")] if not on_gpu else _HALVES
    return html.Div(
        [
            dmc.Title("Where did the time go?", order=2),
            panel("", "tiles", 96),
            html.Div([panel("", "bars", 420), panel("", "causes", 420)], className="two"),
            panel("", "trust", 60),
            *([panel("", "busy", 240)] if on_gpu else []),
            *(
                html.Div([panel("", left, 420), panel("", right, 420)], className="halves")
                for left, right in halves
            ),
            *([panel("", "recommendations", 300)] if on_gpu else []),
        ]
    )


def _profiled(visit: Visit) -> bool:
    tables = visit.trace.tables
    return any(tables[name].num_rows for name in ("kernels", "cpu_ops", "annotations"))


def _verdict(visit: Visit) -> summary.Verdict:
    verdict: summary.Verdict = visit.kept("verdict", lambda: summary.verdict(visit.trace))
    return verdict


def _tiles(visit: Visit) -> Any:
    verdict = _verdict(visit)
    on_gpu = bool(verdict.shares)
    step, cpu = verdict.step_ns, verdict.cpu_step_ns
    spread = f"spread {format_duration(verdict.step_spread_ns or 0)} over {verdict.steps} steps"
    spread = "one step, so no spread" if verdict.steps == 1 else spread
    tiles = [
        tile(
            "recorded" if step is None else "GPU step" if on_gpu else "step on the host",
            format_duration(step) if step is not None else format_duration(verdict.window_ns),
            spread if step is not None else "no steps were marked",
            visit.view.link("step_times"),
        )
    ]
    if on_gpu and cpu is not None:
        tiles.append(
            tile("CPU step", format_duration(cpu), "on the host", visit.view.link("step_times"))
        )
    share = {s.name: s.pct for s in verdict.shares}
    exposed = sum(v for k, v in share.items() if k.startswith("exposed") and "copies" not in k)
    idle = sum(s.pct for s in verdict.shares if s.analysis == "idle_breakdown")
    if on_gpu:
        tiles += [
            tile(
                "compute",
                f"{share.get('compute', 0):.1f} %",
                "of the time",
                visit.view.link("kernels"),
            ),
            tile(
                "exposed communication",
                f"{exposed:.1f} %",
                "of the time",
                visit.view.link("communication"),
            ),
            tile("idle", f"{idle:.1f} %", "of the time", visit.view.link("idle")),
            _mfu(visit),
        ]
    return html.Div([t for t in (*tiles, _late(visit)) if t is not None], className="tiles")


def _mfu(visit: Visit) -> Any:
    try:
        result = visit.ask("flops")
    except HtkError:
        return None
    recorded = [r for r in result.table["mfu_pct"].to_pylist() if r is not None]
    if not recorded:
        why = "no peak known for this GPU" if len(result) else "no shapes recorded"
        return tile("MFU", "–", why, visit.view.link("flops"))
    gpus = result.coverage.get("gpu") or ""
    gpu = gpus if isinstance(gpus, str) else ", ".join(map(str, gpus))
    low, high = min(recorded), max(recorded)
    more = gpu if high - low < 1 else f"{low:.1f} to {high:.1f} % by rank"
    return tile("MFU", f"{np.mean(recorded):.1f} %", more, visit.view.link("flops"))


def _late(visit: Visit) -> Any:
    try:
        rows = visit.ask("stragglers").to_pylist()
    except HtkError:
        return None
    worst = max(rows, key=lambda r: r["cost_to_others_ns"] or 0, default=None)
    if worst is None or not worst["cost_to_others_ns"]:
        return None
    late_in = f", late in {worst['late_in']}" if worst["late_in"] else ""
    cost = format_duration(worst["cost_to_others_ns"])
    more = f"last {worst['blamed']} times{late_in}; cost the others {cost} together"
    return tile("who is late", f"rank {worst['rank']}", more, visit.view.link("stragglers"))


def _bars(visit: Visit) -> Any:
    if not visit.trace.tables["rank_windows"].num_rows:
        return section(
            "Each rank's time",
            empty("No GPU work was recorded: profile with ProfilerActivity.CUDA to see it here."),
            *answered(visit, "phase_breakdown"),
        )
    bars = shares(visit)
    height = 130 + 34 * max(len(bars.ranks), 3)
    fig = plots.shares(bars.ranks, bars.labels, bars.layers, visit.dark)
    plot_id = {"type": "by-rank", "name": "shares"}
    note = "Each bar is all of the recorded window. A click on one looks at that rank alone."
    body = plot(fig, "time of each rank", plot_id, min(height, 1600))
    return section("Each rank's time", body, note=note)


def _causes(visit: Visit) -> Any:
    verdict = _verdict(visit)
    if not verdict.causes:
        text = "Nothing that would win back 1 % of the time or more."
        if not verdict.shares:
            text = "What a change would win back is told of GPU work, and none was recorded."
        links = [
            html.Li(dcc.Link(f"{name.replace('_', ' ')}: {why}", href=visit.view.link(name)))
            for name, why in verdict.next
        ]
        return section("What to change first", empty(text), html.Ul(links, className="next"))
    return section(
        "What to change first", *(_cause(visit, k, c) for k, c in enumerate(verdict.causes))
    )


def _cause(visit: Visit, number: int, cause: summary.Cause) -> Any:
    gain = "not a matter of time"
    if cause.time_ns is not None:
        saved = format_duration(cause.time_ns)
        gain = f"up to {saved} of a rank's recorded time ({cause.pct or 0:.1f} %)"
    seen = instance(visit, cause.analysis)
    links = [dcc.Link("the numbers", href=visit.view.link(cause.analysis), className="export")]
    if seen is not None:
        there = dcc.Link(f"timeline: {seen.what}", href=link(visit, seen), className="export")
        links.insert(0, there)
    return html.Div(
        [
            html.Div(f"{number + 1}. {cause.finding}", className="cause-name"),
            html.Div(gain, className="cause-gain"),
            html.P(cause.evidence),
            html.P(f"Try: {cause.advice}", className="doc"),
            html.Div(links, className="links"),
        ],
        className="cause",
    )


def _trust(visit: Visit) -> Any:
    """What the numbers rest on, in a strip of marks."""
    rows = visit.kept("doctor", lambda: doctor(visit.trace)).to_pylist()
    wanted = [r for r in rows if _telling(r)]
    marks = [
        html.Span(
            [html.B(_MARKS[r["state"]]), f" {r['item']}: {shorten(r['finding'], 90)}"],
            className=f"mark {r['state']}",
            title=r["finding"] + (f" — {r['advice']}" if r["advice"] else ""),
        )
        for r in wanted
    ]
    lost = [r["item"] for r in rows if r["section"] == "missing"]
    if lost:
        text = f"– not recorded: {', '.join(lost[:6])}" + (", …" if len(lost) > 6 else "")
        marks.append(html.Span(text, className="mark missing", title="`htk doctor` says how to"))
    return html.Div(
        [html.Div("May it be trusted?", className="control-label"), *marks], className="trust"
    )


def _telling(row: dict[str, Any]) -> bool:
    if row["section"] in ("links", "clocks", "damage"):
        return not row["item"].startswith("operator by") and row["item"] != "first events"
    if row["section"] == "recorded":
        return bool(row["item"] == "profiler options")
    return bool(row["section"] == "files" and (row["item"] == "ranks" or row["state"] != "ok"))


def _steps(visit: Visit) -> Any:
    result = visit.ask("step_times")
    return section(
        _title(visit, "step_times"), picture(result, dark=visit.dark), *coverage(result)[1:]
    )


def _variance(visit: Visit) -> Any:
    result = visit.ask("step_variance")
    return section(_title(visit, "step_variance"), picture(result, dark=visit.dark))


def _overlap(visit: Visit) -> Any:
    result = visit.ask("comm_compute_overlap")
    heading = _title(visit, "comm_compute_overlap")
    if not any(row["overlap_ns"] or row["exposed_comm_ns"] for row in result.to_pylist()):
        return section(heading, empty("No communication ran on these GPUs."))
    return section(heading, picture(result, dark=visit.dark))


def _kernels(visit: Visit) -> Any:
    result = visit.ask("kernel_top", n=8)
    return section(
        _title(visit, "kernel_top"), grid(result, visit, {"n": 8}, rows=9, only=_KERNELS)
    )


def _operators(visit: Visit) -> Any:
    result = visit.ask("op_breakdown", n=8)
    table = grid(result, visit, {"n": 8}, rows=9, only=_OPERATORS)
    return section(_title(visit, "op_breakdown"), table)


def _memory(visit: Visit) -> Any:
    heading = _title(visit, "memory_peaks")
    try:
        result = visit.ask("memory_peaks")
    except HtkError as error:
        return section(heading, empty(str(error)))
    peaks = {(r["rank"], r["device_kind"], r["device"]): r for r in result.to_pylist()}
    top = max(peaks.values(), key=lambda r: r["peak_bytes"])
    where = f"rank {top['rank']}, {top['device_kind']} {top['device'] or 0}"
    most = tile("highest in use", format_bytes(top["peak_bytes"]), where, visit.view.link("memory"))
    return section(heading, html.Div([most], className="tiles"), picture(result, dark=visit.dark))


def _recommendations(visit: Visit) -> Any:
    result = visit.ask("recommendations")
    table = grid(result, visit, {}, only=_ADVICE)
    return section(_title(visit, "recommendations"), table)


def _records(visit: Visit) -> Any:
    """No profile: what the records of a communication library say."""
    from htk.dashboard.hang_panels import verdict

    return html.Div([verdict(visit), _trust(visit)])


def _title(visit: Visit, name: str) -> Any:
    from htk.analyses import find

    return dcc.Link(find(name).question, href=visit.view.link(name))


PAGE = Page(
    "",
    "Overview",
    0,
    layout,
    {
        "tiles": _tiles,
        "bars": _bars,
        "causes": _causes,
        "trust": _trust,
        "busy": strip,
        "steps": _steps,
        "variance": _variance,
        "overlap": _overlap,
        "memory": _memory,
        "kernels": _kernels,
        "operators": _operators,
        "recommendations": _recommendations,
        "records": _records,
    },
)
