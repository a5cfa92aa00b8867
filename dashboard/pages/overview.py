"""The first screen: how long a step takes, where each rank's time goes, what to change first."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dash import dcc, html

from htk.analyses import find_analysis
from htk.answers.output.figure_colours import classes_of
from htk.base.columns.arrow import mark_valid, match_texts, read_booleans, read_numbers
from htk.base.columns.groups import Groups
from htk.base.core.humanize import (
    command_name,
    format_bytes,
    format_duration,
    make_sentence,
)
from htk.base.errors import HtkError
from htk.dashboard import headlines
from htk.dashboard.cause_cards import draw_cause_card
from htk.dashboard.components import (
    add_heading,
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    draw_hint,
    draw_meter,
    draw_section,
    draw_spark,
    draw_tile,
    of_all_steps,
    spell_attributes,
)
from htk.dashboard.footing import draw_footing
from htk.dashboard.grids import draw_grid, draw_question
from htk.dashboard.late_rank import last_to_arrive, late_tile
from htk.dashboard.page import Page, Visit, draw_panel
from htk.dashboard.rank_bars import rank_bars
from htk.dashboard.served_parts import iteration_grid, iteration_tile, mfu_of_ranks, parted_headline
from htk.dashboard.utilization_strip import draw_utilization_strip
from htk.verdicts.overview import summary

_KERNELS = ("name", "total_ns", "kernel_time_pct", "count", "duration_ns_mean", "kind")
_OPERATORS = ("op", "device_self_ns", "device_time_pct", "cpu_self_ns", "count")
_PARTS = ("steps", "variance", "overlap", "memory", "kernels", "operators")
_RECORDS = "What do these records say?"


def layout(visit: Visit) -> Any:
    if not _is_profiled(visit):
        return html.Div(
            [headlines.draw_heading("overview", _RECORDS), draw_panel("", "records", 300)]
        )
    on_gpu = bool(visit.trace.tables["kernels"].num_rows)
    parts = _list_parts(visit)
    return html.Div(
        [
            draw_panel("", "headline", 76),
            *headlines.not_named(visit),
            draw_panel("", "tiles", 118),
            html.Div([draw_panel("", "bars", 420), draw_panel("", "causes", 420)], className="two"),
            *([draw_panel("", "busy", 240)] if on_gpu else []),
            *(
                html.Div(
                    [draw_panel("", name, 420) for name in parts[k : k + 2]], className="halves"
                )
                for k in range(0, len(parts), 2)
            ),
            draw_panel("", "trust", 60),
        ]
    )


def _list_parts(visit: Visit) -> list[str]:
    """Return the parts that the recording fills; what was not recorded is said once, below."""
    tables = visit.trace.tables
    filled = {
        "variance": len(pc.unique(tables["step_windows"]["step"])) > 1,
        "overlap": bool(match_texts(tables["activities"]["kind"], "comm".__eq__).any()),
        "memory": tables["memory"].num_rows > 0,
        "kernels": tables["kernels"].num_rows > 0,
        "operators": tables["cpu_ops"].num_rows > 0,
    }
    return [name for name in _PARTS if filled.get(name, True)]


def _is_profiled(visit: Visit) -> bool:
    tables = visit.trace.tables
    return any(tables[name].num_rows for name in ("kernels", "cpu_ops", "annotations"))


def _find_verdict(visit: Visit) -> summary.Verdict:
    verdict: summary.Verdict = visit.kept("verdict", lambda: summary.reach_verdict(visit.trace))
    return verdict


def _draw_headline(visit: Visit) -> Any:
    """Return the answer in a sentence, and where the time goes in another."""
    if not _is_profiled(visit):
        return headlines.fill_heading(_RECORDS, _describe_records)(visit)
    verdict = _find_verdict(visit)
    details: list[str] = []
    if verdict.served:
        first, details = parted_headline(verdict.headline)
    elif verdict.step_ns is None:
        window = f"{format_duration(verdict.window_ns)} from the first to the last GPU work"
        first = f"No whole steps in the {window}"
    else:
        first = f"Steps take {format_duration(verdict.step_ns)}"
    late = last_to_arrive(visit) if verdict.causes else None
    if late is not None and verdict.causes[0].analysis == "stragglers":
        first += f"; rank {late['rank']} holds the others back"
    elif verdict.causes and not verdict.served:
        first += f"; {verdict.causes[0].finding}"
    elif verdict.shares and not verdict.served:
        first += "; nothing stands out"
    large = sorted(verdict.visible_shares, key=lambda share: -share.pct)[:4]
    words = ", ".join(f"{share.pct:.1f} % {share.name}" for share in large)
    details += [f"of the time: {words}"] if words else []
    lead = [html.P(make_sentence("; ".join(details)), className="lead")] if details else []
    return html.Div([html.H1(f"{first}."), *lead])


def _describe_records(visit: Visit) -> tuple[str, str] | None:
    """Return what records without a profile say, a line each: the first is the heading."""
    lines = [line.rstrip(".") for line in _find_verdict(visit).records.splitlines() if line.strip()]
    if not lines:
        return None
    first, _, rest = lines[0].removeprefix("Hang: ").partition("; ")
    return first[:1].upper() + first[1:], ". ".join(text for text in (rest, *lines[1:]) if text)


def _draw_tiles(visit: Visit) -> Any:
    verdict = _find_verdict(visit)
    tiles = [_step_tile(visit, verdict)]
    if verdict.shares and not verdict.on_host:
        share = {s.name: s.pct for s in verdict.shares}
        exposed = sum(v for k, v in share.items() if k.startswith("exposed") and "copies" not in k)
        idle = sum(s.pct for s in verdict.shares if s.analysis == "idle_breakdown")
        parts = (
            ("Compute", share.get("compute", 0.0), "compute", "kernels"),
            ("Exposed communication", exposed, "comm", "communication"),
            ("Idle", idle, "idle", "idle"),
        )
        tiles += [
            draw_tile(
                label,
                f"{pct:.1f} %",
                f"{format_duration(pct / 100 * verdict.total_ns)} of {verdict.whole}",
                _leads_to(visit, page),
                drawn=draw_meter(pct, kind),
            )
            for label, pct, kind, page in parts
        ]
        tiles.append(_draw_mfu(visit))
    return html.Div(
        [t for t in (*tiles, late_tile(visit, verdict)) if t is not None], className="tiles"
    )


def _leads_to(visit: Visit, path: str) -> str:
    """Return the address of a page; nothing where the recording leaves it empty."""
    from htk.dashboard.pages import load_pages

    return visit.view.link(path) if load_pages()[path].fits(visit.trace) else ""


def _step_tile(visit: Visit, verdict: summary.Verdict) -> Any:
    if verdict.served:
        return iteration_tile(visit)
    if verdict.step_ns is None:
        return draw_tile(
            "First to last GPU work", format_duration(verdict.window_ns), "no whole steps"
        )
    on_gpu = bool(verdict.shares) and not verdict.on_host
    spread = f"spread {format_duration(verdict.step_spread_ns or 0)} over {verdict.steps} steps"
    more = ["one step, so no spread" if verdict.steps == 1 else spread]
    if on_gpu and verdict.cpu_step_ns is not None:
        more.append(f"on the host {format_duration(verdict.cpu_step_ns)}")
    label = "GPU step" if on_gpu else "Step on the host"
    return draw_tile(
        label,
        format_duration(verdict.step_ns),
        "; ".join(more),
        visit.view.link("step_times"),
        drawn=draw_spark(_median_steps(visit), dark=visit.dark),
    )


def _median_steps(visit: Visit) -> list[float]:
    """Return the step of a median rank, in the order of steps."""
    table = visit.ask("step_times").table
    complete = read_booleans(table["complete"])
    table = table.filter(pa.array(complete)) if complete.any() else table
    table = table.filter(pa.array(mark_valid(table["duration_ns"])))
    steps = Groups.by_keys(np.column_stack([read_numbers(table[c]) for c in ("cycle", "step")]))
    medians: list[float] = steps.quantiles(read_numbers(table["duration_ns"], 0), [0.5])[0].tolist()
    return medians


_MODELLED_PCT = 50  # of the GPU time: work that is known of less says nothing of the whole


def _draw_mfu(visit: Visit) -> Any:
    try:
        result = visit.ask("flops")
    except HtkError:
        return None
    recorded = mfu_of_ranks(result, _find_verdict(visit))
    if not recorded:
        why = "no peak known for this GPU" if len(result) else "no shapes recorded"
        return draw_tile("MFU", "–", why, visit.view.link("flops"))
    modelled = result.coverage.get("modelled_pct_of_time_launched_here_less_communication")
    if modelled is not None and modelled < _MODELLED_PCT:
        why = f"not known: {100 - modelled:.0f} % of the GPU time is not modelled"
        return draw_tile("MFU", "–", why, visit.view.link("flops"))
    gpus = result.coverage.get("gpu") or ""
    gpu = gpus if isinstance(gpus, str) else ", ".join(map(str, gpus))
    low = min(recorded)
    high = max(recorded)
    mean = float(np.mean(recorded))
    more = gpu if high - low < 1 else f"{low:.1f} to {high:.1f} % by rank"
    drawn = draw_meter(mean, "compute")
    return draw_tile("MFU", f"{mean:.1f} %", more, visit.view.link("flops"), drawn=drawn)


def _draw_bars(visit: Visit) -> Any:
    if not visit.trace.tables["rank_windows"].num_rows:
        return html.Div([_host_time(visit), _draw_phases(visit)], className="stacked")
    verdict = _find_verdict(visit)
    heading = "Where a step goes" if verdict.step_ns else "Where the time goes"
    return draw_section(
        heading,
        html.P(f"mean over ranks, {format_duration(verdict.total_ns)}", className="hint"),
        *_draw_time_bar(verdict),
        html.H2("Each rank's time"),
        html.P("all of its recorded window; a click on a bar looks there", className="hint"),
        rank_bars(visit),
    )


@add_heading("Where the time of the host goes")
def _host_time(visit: Visit) -> list[Any]:
    verdict = _find_verdict(visit)
    lacking = "No GPU work was recorded: profile with ProfilerActivity.CUDA to see it here."
    shares = _draw_time_bar(verdict) if verdict.shares else []
    return [*draw_hint(lacking), *shares]


@add_heading("Phases of a step")
def _draw_phases(visit: Visit) -> list[Any]:
    return draw_question(visit, "phase_breakdown")


def _draw_time_bar(verdict: summary.Verdict) -> list[Any]:
    """Return one bar of the mean, and its legend in numbers."""
    pieces = []
    rows = []
    kinds = classes_of([share.name for share in verdict.visible_shares])
    for share, kind in zip(verdict.visible_shares, kinds, strict=True):
        time = format_duration(share.pct / 100 * verdict.total_ns)
        label = f"{share.name}: {share.pct:.1f} %, {time}"
        pieces.append(html.I(className=kind, style={"flex": f"{share.pct:.3f}"}, title=label))
        first = html.Td([html.I(className=kind), share.name[:1].upper() + share.name[1:]])
        rows.append(html.Tr([first, html.Td(f"{share.pct:.1f} %"), html.Td(time)]))
    label = ", ".join(f"{share.name} {share.pct:.0f} %" for share in verdict.visible_shares)
    bar = html.Div(pieces, className="stack", role="img", **spell_attributes(aria_label=label))
    return [bar, html.Table(html.Tbody(rows), className="legend")]


def _draw_causes(visit: Visit) -> Any:
    verdict = _find_verdict(visit)
    if not verdict.causes:
        text = "Nothing that would save 1 % of the time or more."
        if not verdict.shares:
            text = "No GPU work was recorded, so what a change would save is not known."
        if verdict.served:
            text = "No change is known to save time; the first line says what cannot be told."
        links = [
            html.Li(dcc.Link(f"{command_name(name)}: {why}", href=visit.view.link(name)))
            for name, why in verdict.next
        ]
        return draw_section(
            "What to change first", draw_empty_panel(text), html.Ul(links, className="next")
        )
    best = max((c.cost_ns(verdict.total_ns) or 0 for c in verdict.causes), default=0) or 1
    return draw_section(
        "What to change first",
        *(draw_cause_card(visit, verdict, k, best) for k in range(len(verdict.causes))),
        html.Div(
            [
                dcc.Link("All findings", href=visit.view.link("recommendations")),
                *(
                    [dcc.Link("What each remedy wins at best", href=what_if)]
                    if (what_if := _leads_to(visit, "whatif"))
                    else []
                ),
            ],
            className="links",
        ),
        note=f"What {verdict.unit} gains without each cause, by replay; where nothing can be "
        "replayed the recorded time that shows it.",
    )


def _build_question_heading(name: str) -> Callable[[Visit], Any]:
    """Return what makes the heading of a question, which leads to its page."""
    return lambda visit: dcc.Link(find_analysis(name).question, href=visit.view.link(name))


@add_heading(lambda visit: _build_question_heading(_of_steps(visit))(visit))
def _draw_steps(visit: Visit) -> list[Any]:
    if _find_verdict(visit).served:
        return [iteration_grid(visit)]
    result = visit.ask("step_times")
    return [draw_answer(result, dark=visit.dark), *draw_coverage(result)[1:]]


def _of_steps(visit: Visit) -> str:
    return "iteration_times" if _find_verdict(visit).served else "step_times"


def _build_picture_part(name: str) -> Callable[[Visit], Any]:
    """Return the part that draws the answer to a question."""

    @add_heading(_build_question_heading(name))
    def draw_question_part(visit: Visit) -> list[Any]:
        drawn = draw_answer(visit.ask(name), dark=visit.dark)
        note = of_all_steps(visit) if name == "comm_compute_overlap" else ""
        return [*draw_hint(note), drawn]

    return draw_question_part


@add_heading(_build_question_heading("kernel_top"))
def _draw_kernels(visit: Visit) -> list[Any]:
    result = visit.ask("kernel_top", n=8)
    return [draw_grid(result, visit, {"n": 8}, rows=9, only=_KERNELS)]


@add_heading(_build_question_heading("op_breakdown"))
def _draw_operators(visit: Visit) -> list[Any]:
    result = visit.ask("op_breakdown", n=8)
    return [draw_grid(result, visit, {"n": 8}, rows=9, only=_OPERATORS)]


@add_heading(_build_question_heading("memory_peaks"))
def _draw_memory(visit: Visit) -> list[Any]:
    result = visit.ask("memory_peaks")
    peaks = {(r["rank"], r["device_kind"], r["device"]): r for r in result.to_pylist()}
    top = max(peaks.values(), key=lambda r: r["peak_bytes"])
    where = f"rank {top['rank']}, {top['device_kind']} {top['device'] or 0}"
    most = draw_tile(
        "highest in use", format_bytes(top["peak_bytes"]), where, visit.view.link("memory")
    )
    return [html.Div([most], className="tiles"), draw_answer(result, dark=visit.dark)]


def _draw_records(visit: Visit) -> Any:
    """No profile: what the records of a communication library say."""
    from htk.dashboard.hang_panels import draw_hang_verdict

    return html.Div([draw_hang_verdict(visit), draw_footing(visit)])


PAGE = Page(
    "",
    "Overview",
    0,
    layout,
    {
        "headline": _draw_headline,
        "tiles": _draw_tiles,
        "bars": _draw_bars,
        "causes": _draw_causes,
        "trust": draw_footing,
        "busy": draw_utilization_strip,
        "steps": _draw_steps,
        "variance": _build_picture_part("step_variance"),
        "overlap": _build_picture_part("comm_compute_overlap"),
        "memory": _draw_memory,
        "kernels": _draw_kernels,
        "operators": _draw_operators,
        "records": _draw_records,
    },
)
